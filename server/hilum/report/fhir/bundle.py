"""The result as a transaction Bundle of FHIR R4 (4.0.1), which a server takes whole or not at all.

    Device             the release; another version or other weights are another device
    ImagingStudy       the study, unless the server knows it by its UID
    Observation …      one for each finding: the decision, and the number beside it
    DiagnosticReport   the result; on a study that was not analysed, that and why
    Provenance         the maker and the images

Each entry is a conditional create (R4 3.1.0.8.1) by an identity that never changes, so the same
Bundle again creates nothing. All is preliminary: no physician has confirmed the result. The patient
is named by identifier, and no Patient is created.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pydicom.sr.coding import Code

from hilum.domain import FHIR, JSON, Document, Finding, Outcome, Release, ReportJob, mint_uid
from hilum.report.context import HeatMap, ReportContext
from hilum.report.fhir.elements import (
    UCUM,
    UIDS,
    Json,
    coding,
    concept,
    from_table,
    full_url,
    given,
    identifier,
    line,
    references,
    taken_at,
    words_or_concept,
)
from hilum.report.headers.header import Said
from hilum.report.sources import Extracts
from hilum.report.sr import codes
from hilum.report.sr.content import parameters, values_of
from hilum.report.wording import DECISIONS, caveats, not_analysed
from hilum.timestamps import iso

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False)
_PRELIMINARY: Final = "preliminary"
_REPLACES: Final = "http://hl7.org/fhir/StructureDefinition/diagnosticReport-replaces"
_ACCESSION: Final = from_table("v2-0203", "ACSN")


def fhir_bundle(
    job: ReportJob,
    release: Release,
    context: ReportContext,
    heat_map: HeatMap | None,
    extracts: Extracts,
    _template: object = None,
) -> Document:
    """Return the encoded Bundle of one result: the same result gives the same bytes.

    Raises the exceptions of `Extracts.whose`.
    """
    said = caveats(job.result, release, context, heat_map)
    result = _ReportedResult(job, release, extracts.whose(), said, context.patient_id_system)
    lines = ",\n".join(_ENCODER.encode(entry) for entry in result.entries())
    head = '{"resourceType": "Bundle", "type": "transaction", "entry": [\n'
    return Document(
        kind=FHIR.key,
        media_type=FHIR.media_type,
        content=f"{head}{lines}\n]}}".encode(),
        result_id=job.result.id,
    )


@dataclass(frozen=True, slots=True)
class _ReportedResult:
    """A result and its resources. `header`: of the image that names the patient."""

    job: ReportJob
    release: Release
    header: Said
    said: list[str]
    patient_id_system: str

    def entries(self) -> Iterator[Json]:
        """Yield an entry for each resource."""
        yield _entry(self._device_url, self._device())
        yield _entry(self._study_url, self._study())
        for finding in self.job.result.findings:
            yield _entry(self._observation_url(finding), self._observation(finding))
        yield _entry(self._report_url, self._report())
        yield _entry(full_url("Provenance", self._uid), self._provenance())

    @property
    def _uid(self) -> str:
        """The identity of the result, the same in all documents of it."""
        return self.job.result.identifiers[JSON.key]

    @property
    def _device_url(self) -> str:
        return full_url("Device", codes.device_uid(self.release))

    @property
    def _study_url(self) -> str:
        return full_url("ImagingStudy", self.job.result.study_instance_uid)

    @property
    def _report_url(self) -> str:
        return full_url("DiagnosticReport", self._uid)

    def _observation_uid(self, finding: Finding) -> str:
        return mint_uid(codes.NAMESPACE, "observation", self._uid, finding.key)

    def _observation_url(self, finding: Finding) -> str:
        return full_url("Observation", self._observation_uid(finding))

    def _device(self) -> Json:
        release = self.release
        return {
            "resourceType": "Device",
            "identifier": [identifier(codes.device_uid(release))],
            "status": "active",
            **given(manufacturer=release.manufacturer),
            "deviceName": [{"name": release.name, "type": "model-name"}],
            "type": concept(codes.ARTIFICIAL_INTELLIGENCE),
            "version": [
                {"value": release.version},
                {"type": {"text": "SHA-256 of the weights"}, "value": release.weights_sha256},
            ],
        }

    def _study(self) -> Json:
        """Return a resource that stands for the study, if the server does not know it.

        Whether all its images are known here is not known, so its status is not.
        """
        result = self.job.result
        modalities = {
            codes.MODALITY_OF_CLASS[image.sop_class_uid]
            for image in result.source_images
            if image.sop_class_uid in codes.MODALITY_OF_CLASS
        }
        return {
            "resourceType": "ImagingStudy",
            "identifier": [identifier(result.study_instance_uid), *self._accession()],
            "status": "unknown",
            **given(modality=[coding(codes.MODALITIES[name]) for name in sorted(modalities)]),
            "subject": self._subject(),
            **given(started=taken_at(self.header)),
        }

    def _observation(self, finding: Finding) -> Json:
        label = Code(finding.code.value, finding.code.scheme, finding.code.meaning)
        return {
            "resourceType": "Observation",
            "identifier": [identifier(self._observation_uid(finding))],
            "status": _PRELIMINARY,
            "category": [from_table("observation-category", "imaging")],
            "code": words_or_concept(label, finding.text),
            "subject": self._subject(),
            **given(effectiveDateTime=taken_at(self.header)),
            "issued": self._decided_at,
            "valueCodeableConcept": concept(codes.PRESENCE[finding.decision]),
            "note": [{"text": "; ".join(parameters(finding, self.job.result, self.release))}],
            "bodySite": concept(codes.CHEST),
            "device": {"reference": self._device_url},
            "derivedFrom": references([self._study_url]),
            "component": [_number(finding)],
        }

    def _report(self) -> Json:
        result = self.job.result
        observations = [self._observation_url(finding) for finding in result.findings]
        words = [f"{item.text}: {DECISIONS[item.decision]}" for item in result.findings]
        is_analysed = result.outcome is not Outcome.NOT_ANALYSED
        return {
            "resourceType": "DiagnosticReport",
            **given(extension=self._replacement()),
            "identifier": [identifier(self._uid)],
            **given(basedOn=[_request(item) for item in self._accession()]),
            "status": _PRELIMINARY,
            "category": [from_table("v2-0074", "RAD")],
            "code": concept(codes.DIAGNOSTIC_IMAGING_REPORT),
            "subject": self._subject(),
            **given(effectiveDateTime=taken_at(self.header)),
            "issued": self._decided_at,
            **given(result=references(observations)),
            "imagingStudy": references([self._study_url]),
            "conclusion": "\n".join(
                [*self.said, *(words if is_analysed else [not_analysed(result)])]
            ),
            **given(conclusionCode=[] if is_analysed else [concept(codes.NO_ALGORITHM_SUCCEEDED)]),
        }

    def _provenance(self) -> Json:
        """Return the maker and the images. It has no identifier in R4; a tag stands for one."""
        result = self.job.result
        is_analysed = result.outcome is not Outcome.NOT_ANALYSED
        images = [image for image in result.source_images if image.is_used or not is_analysed]
        observations = [self._observation_url(finding) for finding in result.findings]
        before = _report_uid(self.job)
        return {
            "resourceType": "Provenance",
            "meta": {"tag": [{"system": UIDS, "code": f"urn:oid:{self._uid}"}]},
            "target": references([self._report_url, *observations]),
            "recorded": self._decided_at,
            "agent": [
                {
                    "type": from_table("provenance-participant-type", "author"),
                    "who": {"reference": self._device_url},
                }
            ],
            "entity": [
                *({"role": "revision", "what": _report_before(value)} for value in before),
                *(_source(image.sop_instance_uid) for image in images),
            ],
        }

    def _subject(self) -> Json:
        """Return the patient by identifier: which resource that is, the receiver knows."""
        value = line(self.header, "PatientID")
        if not value:
            return {"type": "Patient", "display": "The images name no Patient ID."}
        issuer = line(self.header, "IssuerOfPatientID")
        system = "" if issuer else self.patient_id_system
        assigner = given(display=issuer)
        named = given(system=system, value=value, assigner=assigner)
        return {"type": "Patient", "identifier": named}

    def _accession(self) -> list[Json]:
        value = line(self.header, "AccessionNumber")
        return [{"type": _ACCESSION, "value": value}] if value else []

    def _replacement(self) -> list[Json]:
        return [
            {"url": _REPLACES, "valueReference": _report_before(value)}
            for value in _report_uid(self.job)
        ]

    @property
    def _decided_at(self) -> str:
        return iso(self.job.result.created_at)


def _entry(url: str, resource: Json) -> Json:
    """Return a conditional create."""
    kind = resource["resourceType"]
    if kind == "Provenance":
        (tag,) = resource["meta"]["tag"]
        condition = f"_tag={tag['system']}|{tag['code']}"
    else:
        identity = resource["identifier"][0]
        condition = f"identifier={identity['system']}|{identity['value']}"
    return {
        "fullUrl": url,
        "resource": resource,
        "request": {"method": "POST", "url": kind, "ifNoneExist": condition},
    }


def _number(finding: Finding) -> Json:
    """Return a calibrated probability in percent, or a score that is called one."""
    name, unit = (
        (codes.SCORE, codes.UNCALIBRATED)
        if finding.probability is None
        else (codes.CERTAINTY_OF_FINDING, codes.PERCENT)
    )
    quantity = {
        "value": values_of(finding)[0],
        "unit": unit.meaning,
        "system": UCUM,
        "code": unit.value,
    }
    return {"code": concept(name), "valueQuantity": quantity}


def _request(accession: Json) -> Json:
    return {"type": "ServiceRequest", "identifier": accession}


def _source(sop_instance_uid: str) -> Json:
    return {"role": "source", "what": {"identifier": identifier(sop_instance_uid)}}


def _report_before(value: str) -> Json:
    return {"type": "DiagnosticReport", "identifier": {"system": UIDS, "value": value}}


def _report_uid(job: ReportJob) -> list[str]:
    """Return the identity of the report that this one replaces; [] where there is none.

    The content of an earlier Bundle may have been erased.
    """
    before = job.predecessors.get(FHIR.key)
    if before is None or not before.content:
        return []
    resources = [entry["resource"] for entry in json.loads(before.content)["entry"]]
    return [
        str(resource["identifier"][0]["value"])
        for resource in resources
        if resource["resourceType"] == "DiagnosticReport"
    ]

"""The result as ORU^R01 of HL7 2.5.1 (chapters 2A, 3 and 7).

    MSH   PID   OBR      one order: this study, read by this release
      OBX ST             Study Instance UID, as IHE RAD TF-2 table 4.7-7 has it
      OBX TX             the caveats, before any number
      OBX CWE + OBX NM   a pair for each finding, joined by OBX-4: decision and number
      OBX CWE + OBX TX   instead, of a study that was not analysed: that, and why

OBR-25 and OBX-11 are P, preliminary, and never F: no physician has confirmed the result.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from pydicom.sr.coding import Code as SrCode

from hilum.domain import HL7, JSON, SR, Code, Document, Finding, Outcome, Release, ReportJob
from hilum.report.context import HeatMap, ReportContext
from hilum.report.hl7 import er7
from hilum.report.hl7.er7 import EMPTY, Er7, components, text
from hilum.report.sources import Extracts, value_text
from hilum.report.sr import codes
from hilum.report.sr.content import values_of
from hilum.report.wording import caveats, not_analysed
from hilum.settings import Hl7MessageSettings
from hilum.timestamps import iso

_VERSION: Final = text("2.5.1")
_TYPE: Final = components(text("ORU"), text("R01"), text("ORU_R01"))
_STUDY: Final = SrCode("113014", "DCM", "DICOM Study")
_RADIOLOGY: Final = text("RAD")  # table 0074
_PRELIMINARY: Final = text("P")  # tables 0085 and 0123
_NO_RESULT: Final = text("O")  # table 0085: order detail
_ISO: Final = text("ISO")  # table 0301
_CONTROL_ID_BYTES: Final = 13
_CONTROL_ID_LETTERS: Final = 20  # the length of MSH-10 in 2.5.1: 100 bits in base 32
_DICOM_NAME_PARTS: Final = 5
_ZONE: Final = re.compile(r"[+-]\d{4}")
_TIME: Final = re.compile(r"(?:\d\d){1,3}")
# Table 0465, and the groups of a name in DICOM (PS3.5 6.2.1.2).
_REPRESENTATIONS: Final = ("A", "I", "P")


def oru(
    job: ReportJob,
    release: Release,
    context: ReportContext,
    heat_map: HeatMap | None,
    extracts: Extracts,
    _template: object = None,
) -> Document:
    """Return the encoded message of one result: the same result gives the same bytes.

    It is in UTF-8, if the character set of the settings lacks a letter of it. Raises the exceptions
    of `Extracts.whose`.
    """
    wanted = context.hl7
    order = _OrderedStudy(job, release, extracts.whose().get, wanted)
    said = caveats(job.result, release, context, heat_map)
    body = [order.patient(), order.request(), *_numbered(_observations(order, said))]
    head = order.header(wanted.character_set)
    character_set = er7.fitting_character_set([head, *body], wanted.character_set)
    return Document(
        kind=HL7.key,
        media_type=HL7.media_type,
        content=er7.encoded([order.header(character_set), *body], character_set),
        result_id=job.result.id,
    )


def control_id(result_uid: str) -> str:
    """Return MSH-10, the identity of the message, from that of its result.

    At most 20 characters, which is the length of this field in HL7 2.5.1.
    """
    digest = hashlib.sha256(result_uid.encode()).digest()[:_CONTROL_ID_BYTES]
    return base64.b32encode(digest).decode()[:_CONTROL_ID_LETTERS]


@dataclass(frozen=True, slots=True)
class _OrderedStudy:
    """The result as the receiver sees it. `said`: values of the header that names the patient."""

    job: ReportJob
    release: Release
    said: Callable[[str], object]
    wanted: Hl7MessageSettings

    def header(self, character_set: str) -> Er7:
        """Return MSH."""
        wanted = self.wanted
        is_enhanced = wanted.acknowledgement == "enhanced"
        return er7.header(
            {
                3: text(wanted.sending_application),
                4: text(wanted.sending_facility),
                5: text(wanted.receiving_application),
                6: text(wanted.receiving_facility),
                7: self.decided_at,
                9: _TYPE,
                10: text(control_id(self.job.result.identifiers[JSON.key])),
                11: text(wanted.processing_id),
                12: _VERSION,
                15: text("AL") if is_enhanced else EMPTY,
                16: text("NE") if is_enhanced else EMPTY,
                18: text(character_set),
            }
        )

    def patient(self) -> Er7:
        """Return PID."""
        return er7.segment(
            "PID",
            {
                1: text("1"),
                3: components(self.value("PatientID"), EMPTY, EMPTY, self._authority()),
                5: er7.repetitions(_names(self._raw("PatientName"))),
                7: self.value("PatientBirthDate"),
                8: self.value("PatientSex"),
            },
        )

    def request(self) -> Er7:
        """Return OBR."""
        accession = self.value("AccessionNumber")
        ours = components(
            text(self.job.result.identifiers[SR.series]), text(self.wanted.sending_application)
        )
        return er7.segment(
            "OBR",
            {
                1: text("1"),
                3: ours,
                4: coded(codes.DIAGNOSTIC_IMAGING_REPORT),
                7: self.taken_at,
                22: self.decided_at,
                24: _RADIOLOGY,
                25: _PRELIMINARY,
                **(
                    {int(field[4:]): accession for field in self.wanted.accession_fields}
                    if accession
                    else {}
                ),
            },
        )

    def value(self, keyword: str) -> Er7:
        """Return a value of the header as one line."""
        return text(self._raw(keyword))

    @property
    def taken_at(self) -> Er7:
        """The study's date and time, with its zone where the image names one; may be empty."""
        day = self._raw("StudyDate")
        time = _TIME.match(self._raw("StudyTime"))
        if not day or time is None:
            return text(day)
        zone = self._raw("TimezoneOffsetFromUTC")
        return text(f"{day}{time[0]}{zone if _ZONE.fullmatch(zone) else ''}")

    @property
    def decided_at(self) -> Er7:
        """When the result was made, in UTC."""
        moment = iso(self.job.result.created_at, "seconds")
        return text(re.sub("[-:TZ]", "", moment) + "+0000")

    @property
    def device(self) -> Er7:
        """OBX-18: the release, and its Unique Device Identifier."""
        return components(text(self.release.id), EMPTY, text(codes.device_uid(self.release)), _ISO)

    def _raw(self, keyword: str) -> str:
        return value_text(self.said(keyword)) or ""

    def _authority(self) -> Er7:
        """Return PID-3.4; its parts are subcomponents here."""
        name = self._raw("IssuerOfPatientID") or self.wanted.assigning_authority
        oid = self.wanted.assigning_authority_oid
        if not oid or name != self.wanted.assigning_authority:
            return text(name)
        return er7.subcomponents(text(name), text(oid), _ISO)


def coded(code: Code | SrCode) -> Er7:
    """Return CWE: identifier, text, coding system (table 0396)."""
    scheme = code.scheme if isinstance(code, Code) else code.scheme_designator
    return components(text(code.value), text(code.meaning), text(scheme))


def _names(name: str) -> Iterator[Er7]:
    """Yield XPN for each group of a name in DICOM.

    DICOM has prefix and suffix in the other order (PS3.5 6.2.1.2, XPN). XPN-7 and
    XPN-8 are given where there are several groups.
    """
    groups = name.split("=")
    for kind, group in zip(_REPRESENTATIONS, groups, strict=False):
        parts = [*group.split("^"), *[""] * _DICOM_NAME_PARTS][:_DICOM_NAME_PARTS]
        family, given, middle, prefix, suffix = map(text, parts)
        if any(parts):
            tail = (EMPTY, text("L"), text(kind)) if len(groups) > 1 else ()
            yield components(family, given, middle, suffix, prefix, *tail)


_Fields = Mapping[int, Er7]


def _numbered(observations: Iterator[_Fields]) -> Iterator[Er7]:
    for number, fields in enumerate(observations, 1):
        yield er7.segment("OBX", {11: _PRELIMINARY, **fields, 1: text(str(number))})


def _observations(order: _OrderedStudy, said: list[str]) -> Iterator[_Fields]:
    result = order.job.result
    uid = text(result.study_instance_uid)
    yield {2: text("ST"), 3: coded(_STUDY), 5: uid, 11: _NO_RESULT}
    yield from map(_comment, said)
    if result.outcome is Outcome.NOT_ANALYSED:
        summary = coded(codes.PROCESSING_SUMMARY)
        yield {2: text("CWE"), 3: summary, 5: coded(codes.NO_ALGORITHM_SUCCEEDED)}
        yield _comment(not_analysed(result))
    for number, finding in enumerate(result.findings, 1):
        joined = {
            4: text(str(number)),
            14: order.taken_at,
            18: order.device,
            19: order.decided_at,
        }
        presence = codes.PRESENCE[finding.decision]
        yield {2: text("CWE"), 3: _label(finding), 5: coded(presence), **joined}
        yield {**_number(finding), **joined}


def _comment(sentence: str) -> _Fields:
    return {2: text("TX"), 3: coded(codes.COMMENT), 5: er7.paragraph(sentence)}


def _label(finding: Finding) -> Er7:
    """Return the code of a finding, and its key in the model as the alternate, local one."""
    code = finding.code
    values = (code.value, code.meaning, code.scheme, finding.key, finding.text, "L")
    return components(*map(text, values))


def _number(finding: Finding) -> _Fields:
    """A calibrated probability in percent, or a score that is called one."""
    name, unit = (
        (codes.SCORE, codes.UNCALIBRATED)
        if finding.probability is None
        else (codes.CERTAINTY_OF_FINDING, codes.PERCENT)
    )
    value = format(Decimal(repr(values_of(finding)[0])), "f")  # NM has no exponents
    return {2: text("NM"), 3: coded(name), 5: text(value), 6: coded(unit)}

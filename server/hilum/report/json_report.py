"""The result as JSON, for REST, folders and programs.

`result.schema.json` beside this file is its contract.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hilum.domain import JSON, SR, Document, Finding, Release, ReportJob, Result, SourceImage
from hilum.errors import NotAnalysed
from hilum.report.context import HeatMap, ReportContext
from hilum.report.sources import Extracts, value_text
from hilum.report.sr.codes import device_uid
from hilum.report.wording import caveats, meaning_of
from hilum.timestamps import is_moment, iso
from hilum_preprocessing.errors import flag_meaning

SCHEMA: Final = "hilum/result/1.0"
_SCHEMA_FILE: Final = Path(__file__).with_name("result.schema.json")
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False)
_MOMENTS: Final = ("first_received_at", "last_received_at", "quiet_until")


def json_schema() -> dict[str, Any]:
    """The published JSON Schema (draft 2020-12) of `json_report`'s content."""
    schema: dict[str, Any] = json.loads(_SCHEMA_FILE.read_text(encoding="utf-8"))
    return schema


def json_report(
    job: ReportJob,
    release: Release,
    context: ReportContext,
    heat_map: HeatMap | None,
    extracts: Extracts,
    _template: object = None,
) -> Document:
    """The encoded document of any result, also of one that was not analysed.

    The same result gives the same bytes.
    """
    result = job.result
    content = {
        "schema": SCHEMA,
        "result_uid": result.identifiers[JSON.key],
        "revision": result.revision,
        "supersedes": superseded(job),
        "created_at": iso(result.created_at),
        "outcome": result.outcome.value,
        "reason": result.reason,
        "reason_text": meaning_of(result.reason),
        "verification": "unverified",
        "disclaimer": context.disclaimer,
        "caveats": caveats(result, release, context, heat_map),
        "study": _study(job, extracts),
        "release": _release(release, result),
        "preprocessing_version": result.preprocessing_version,
        "findings": [_finding(finding) for finding in result.findings],
        "source_images": [_source(image) for image in result.source_images],
        "structured_report": structured_report_uids(result),
        "heat_map": _heat_map(heat_map),
        "timings": _timings(result),
    }
    return Document(
        kind=JSON.key, media_type=JSON.media_type, content=encoded(content), result_id=result.id
    )


def encoded(content: Mapping[str, Any]) -> bytes:
    """A line for each member: readable, and Python's fast encoder writes no indentation."""
    lines = [f'"{name}": {_ENCODER.encode(value)}' for name, value in content.items()]
    return ("{\n" + ",\n".join(lines) + "\n}").encode()


def superseded(job: ReportJob) -> str | None:
    """The `result_uid` of the document that this one replaces."""
    before = job.predecessors.get(JSON.key)
    return (
        str(json.loads(before.content)["result_uid"]) if before and before.content else None
    )  # it may have been erased


def _study(job: ReportJob, extracts: Extracts) -> dict[str, Any]:
    """Return the identifiers by which a program finds the patient's study in its own system.

    Dates and times are as in DICOM.
    """
    header = _identity(extracts)
    return {
        "study_instance_uid": job.result.study_instance_uid,
        "accession_number": header.get("AccessionNumber"),
        "patient_id": header.get("PatientID"),
        "issuer_of_patient_id": header.get("IssuerOfPatientID"),
        "study_date": header.get("StudyDate"),
        "study_time": header.get("StudyTime"),
        "calling_ae_title": job.study.calling_ae_title,
        "called_ae_title": job.study.called_ae_title,
    }


def _identity(extracts: Extracts) -> dict[str, str | None]:
    """From the image that the structured report takes its patient from.

    {} where no header can be read.
    """
    try:
        header = extracts.whose()
    except NotAnalysed:
        # unreadable images are a reason in this very document, not an obstacle to it
        return {}
    keywords = ("AccessionNumber", "PatientID", "IssuerOfPatientID", "StudyDate", "StudyTime")
    return {keyword: value_text(header.get(keyword)) for keyword in keywords}


def _release(release: Release, result: Result) -> dict[str, Any]:
    return {
        "name": release.name,
        "version": release.version,
        "architecture": release.architecture,
        "manufacturer": release.manufacturer,
        "device_uid": device_uid(release),
        "weights_sha256": release.weights_sha256,
        "engine": release.engine,
        "precision": release.precision,
        "activation": release.activation,
        "aggregation": release.aggregation,
        "is_trained": result.is_trained,
        "is_calibrated": result.is_calibrated,
        "intended_use": release.intended_use,
        "licence": release.licence,
        **(
            {"operating_points": dict(release.operating_points)} if release.operating_points else {}
        ),
        **({"members": list(release.members), "rule": release.rule} if release.members else {}),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "key": finding.key,
        "text": finding.text,
        "code": {
            "value": finding.code.value,
            "scheme": finding.code.scheme,
            "meaning": finding.code.meaning,
        },
        "logit": finding.logit,
        "score": finding.score,
        "probability": finding.probability,
        "operating_point": finding.operating_point,
        "decision": finding.decision.value,
        "source_sop_instance_uids": list(finding.source_sop_instance_uids),
        **_of_members(finding.member_scores),
    }


def _source(image: SourceImage) -> dict[str, Any]:
    return {
        "sop_instance_uid": image.sop_instance_uid,
        "sop_class_uid": image.sop_class_uid,
        "series_instance_uid": image.series_instance_uid,
        "view": image.view,
        "is_used": image.is_used,
        "reason": image.reason,
        "reason_text": meaning_of(image.reason),
        "logits": dict(image.logits),
        "scores": dict(image.scores),
        "flags": [{"flag": flag, "text": flag_meaning(flag)} for flag in image.flags],
        **_of_members({name: dict(scores) for name, scores in image.member_scores.items()}),
    }


def _of_members(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that only an ensemble's result has."""
    return {"member_scores": dict(scores)} if scores else {}


def structured_report_uids(result: Result) -> dict[str, str] | None:
    """Return the SR with the same content; None when no image could be analysed."""
    if not result.findings:
        return None
    return {
        "sop_instance_uid": result.identifiers[SR.key],
        "series_instance_uid": result.identifiers[SR.series],
    }


def _heat_map(heat_map: HeatMap | None) -> dict[str, Any] | None:
    """Return the heat map and the findings that it shows.

    None when there is none; if one was asked for, a caveat says why.
    """
    if heat_map is None or not heat_map.finding_keys:
        return None
    uids = {
        "sop_instance_uid": heat_map.sop_instance_uid,
        "series_instance_uid": heat_map.series_instance_uid,
    }
    return {**uids, "findings": list(heat_map.finding_keys)}


def _timings(result: Result) -> dict[str, Any]:
    steps = {name: seconds for name, seconds in result.timings.items() if not is_moment(name)}
    return {**_moments(result.timings), "longest_step_seconds": steps}


def _moments(timings: Mapping[str, float]) -> dict[str, str | None]:
    return {name: iso(timings[name]) if name in timings else None for name in _MOMENTS}

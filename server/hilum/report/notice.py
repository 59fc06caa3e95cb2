"""The notice of a result: a small JSON for webhooks, which names documents and no patient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from hilum.domain import JSON, NOTICE, Document, Release, ReportJob
from hilum.report.context import HeatMap, ReportContext
from hilum.report.json_report import encoded, structured_report_uids, superseded
from hilum.report.sources import Extracts
from hilum.report.wording import meaning_of
from hilum.timestamps import iso

EVENT: Final = "result.reported"
NOTICE_SCHEMA: Final = "hilum/notice/1.0"


def notice(
    job: ReportJob,
    _release: Release,
    _context: ReportContext,
    heat_map: HeatMap | None,
    _extracts: Extracts,
    _template: object = None,
) -> Document:
    """Return the notice of any result, also of one that was not analysed.

    No header of an image is read for it, and no finding is in it. The same result gives the same
    bytes.
    """
    content = {
        "type": EVENT,
        "schema": NOTICE_SCHEMA,
        "timestamp": iso(job.result.created_at),
        "data": _data(job, heat_map),
    }
    return Document(
        kind=NOTICE.key,
        media_type=NOTICE.media_type,
        content=encoded(content),
        result_id=job.result.id,
    )


def _data(job: ReportJob, heat_map: HeatMap | None) -> dict[str, Any]:
    result = job.result
    return {
        "result_uid": result.identifiers[JSON.key],
        "revision": result.revision,
        "supersedes": superseded(job),
        "study_instance_uid": result.study_instance_uid,
        "release": result.release,
        "is_trained": result.is_trained,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "reason_text": meaning_of(result.reason),
        "verification": "unverified",
        "structured_report": structured_report_uids(result),
        "heat_map": _picture(heat_map),
        "paths": _paths(result.study_instance_uid),
    }


def _picture(heat_map: HeatMap | None) -> Mapping[str, str] | None:
    """Return the UIDs of the heat map. The findings that it shows are left out."""
    if heat_map is None or not heat_map.finding_keys:
        return None
    return {
        "sop_instance_uid": heat_map.sop_instance_uid,
        "series_instance_uid": heat_map.series_instance_uid,
    }


def _paths(study: str) -> Mapping[str, str]:
    """Return paths on this server; its address, as the receiver sees it, is not known here."""
    uid = quote(study, safe="")
    return {"documents": f"/api/v1/studies/{uid}/documents", "page": f"/studies/{uid}"}

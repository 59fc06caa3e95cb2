"""Rows to domain types and back. The JSON of a result is the plain dictionary form of its findings and source images."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from operator import attrgetter
from typing import Any

from hilum.domain import (
    Code,
    Decision,
    Document,
    Finding,
    Instance,
    Lane,
    Outcome,
    Reading,
    ReadingState,
    Result,
    ResultState,
    SourceImage,
    Study,
    StudyState,
)
from hilum.store.prepared import Row

_ARRIVING = tuple(name for name in Instance.__slots__ if name not in ("id", "removal_reason"))
_arriving: Callable[[Instance], tuple[Any, ...]] = attrgetter(*_ARRIVING)


def instance_of(row: Row) -> Instance:
    """A stored SOP Instance."""
    return Instance(
        sop_instance_uid=row.sop_instance_uid,
        sop_class_uid=row.sop_class_uid,
        study_instance_uid=row.study_instance_uid,
        series_instance_uid=row.series_instance_uid,
        transfer_syntax_uid=row.transfer_syntax_uid,
        path=row.path,
        size_bytes=row.size_bytes,
        digest=row.digest,
        pixel_digest=row.pixel_digest,
        received_at=row.received_at,
        calling_ae_title=row.calling_ae_title,
        called_ae_title=row.called_ae_title,
        header=row.header,
        header_revision=row.header_revision,
        pixels_removed_at=row.pixels_removed_at,
        id=row.id,
        peer_address=row.peer_address,
        removal_reason=row.removal_reason,
    )


def instance_values(instance: Instance) -> dict[str, Any]:
    """Columns of an instance row, as an object that arrives fills them: whether it was rejected is not in the object."""
    return dict(zip(_ARRIVING, _arriving(instance), strict=True))


def reading_of(row: Row, sop_instance_uid: str) -> Reading:
    """One release's output for one image."""
    return Reading(
        id=row.id,
        instance_id=row.instance_id,
        sop_instance_uid=sop_instance_uid,
        release=row.release,
        state=ReadingState(row.state),
        reason=row.reason,
        detail=row.detail,
        logits=None if row.logits is None else tuple(row.logits),
        view=row.view,
        preprocessing_version=row.preprocessing_version,
        timings=row.timings or {},
        member_logits=None if row.member_logits is None else tuple(map(tuple, row.member_logits)),
    )


def study_of(row: Row) -> Study:
    """A study's row."""
    return Study(
        study_instance_uid=row.study_instance_uid,
        revision=row.revision,
        state=StudyState(row.state),
        lane=Lane(row.lane),
        first_received_at=row.first_received_at,
        last_received_at=row.last_received_at,
        quiet_until=row.quiet_until,
        calling_ae_title=row.calling_ae_title,
        called_ae_title=row.called_ae_title,
        id=row.id,
        peer_address=row.peer_address,
    )


_SCALARS = frozenset({str, float, int, bool})  # nearly all that a result holds


def _plain(value: object) -> object:
    """Domain types as what JSON has. `dataclasses.asdict` copies every number by itself, which takes longer than writing the row."""
    if value is None or type(value) in _SCALARS:
        return value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return dict(value) if isinstance(value, Mapping) else value


_RESULT_CONTENT = ("findings", "source_images", "is_trained", "is_calibrated", "preprocessing_version", "timings", "has_several_orders")


def result_values(result: Result) -> dict[str, Any]:
    """Columns of a new result row."""
    return {
        "study_instance_uid": result.study_instance_uid,
        "release": result.release,
        "source_digest": result.source_digest,
        "revision": result.revision,
        "outcome": result.outcome.value,
        "outcome_reason": result.reason,
        "content": {name: _plain(getattr(result, name)) for name in _RESULT_CONTENT},
        "identifiers": dict(result.identifiers),
        "created_at": result.created_at,
        "supersedes_id": result.supersedes_id,
    }


def result_of(row: Row) -> Result:
    """All findings of a study by one release."""
    content = row.content
    return Result(
        study_instance_uid=row.study_instance_uid,
        release=row.release,
        source_digest=row.source_digest,
        revision=row.revision,
        outcome=Outcome(row.outcome),
        reason=row.outcome_reason,
        findings=tuple(_finding_of(item) for item in content["findings"]),
        source_images=tuple(SourceImage(**item) for item in content["source_images"]),
        is_trained=content["is_trained"],
        is_calibrated=content["is_calibrated"],
        preprocessing_version=content["preprocessing_version"],
        identifiers=row.identifiers,
        timings=content["timings"],
        created_at=row.created_at,
        supersedes_id=row.supersedes_id,
        id=row.id,
        is_shadow=row.state == ResultState.SHADOW,
        has_several_orders=content.get("has_several_orders", False),  # a row of an earlier version does not say
    )


def _finding_of(item: dict[str, Any]) -> Finding:
    fixed = {
        "code": Code(**item["code"]),
        "decision": Decision(item["decision"]),
        "source_sop_instance_uids": tuple(item["source_sop_instance_uids"]),
    }
    return Finding(**{**item, **fixed})


def document_of(row: Row) -> Document:
    """The encoded bytes of one report."""
    return Document(
        kind=row.kind,
        media_type=row.media_type,
        content=row.content,
        sop_class_uid=row.sop_class_uid,
        sop_instance_uid=row.sop_instance_uid,
        series_instance_uid=row.series_instance_uid,
        predecessor_uid=row.predecessor_uid,
        result_id=row.result_id,
        id=row.id,
    )

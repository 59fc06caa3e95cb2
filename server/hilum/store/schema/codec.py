"""Rows to domain types and back.

The JSON of a result is its findings and source images, each an object of its fields (`json_text`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict
from operator import attrgetter
from typing import Any

from hilum.domain import (
    Code,
    Decision,
    Document,
    Finding,
    Instance,
    Outcome,
    Priority,
    Reading,
    ReadingState,
    Result,
    ResultState,
    RuleDecision,
    SourceImage,
    Study,
    StudyState,
    WorklistAnswer,
)
from hilum.store.database.json_columns import Finite
from hilum.store.database.prepared import PreparedRow

_ARRIVING = tuple(name for name in Instance.__slots__ if name not in ("id", "removal_reason"))
_EFFECTS = tuple(name for name in RuleDecision.__slots__ if name not in ("rule", "digest"))
_arriving: Callable[[Instance], tuple[Any, ...]] = attrgetter(*_ARRIVING)


def instance_of(row: PreparedRow) -> Instance:
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
    """Columns of an instance row, from an object that arrives.

    Rejections are stored apart.
    """
    return dict(zip(_ARRIVING, _arriving(instance), strict=True))


def reading_of(row: PreparedRow, sop_instance_uid: str) -> Reading:
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
        campaign_id=row.campaign_id,
    )


def readings_of(rows: Iterable[PreparedRow], images: Iterable[PreparedRow]) -> tuple[Reading, ...]:
    """Readings of these images; rows of other images are left out."""
    names = {image.id: image.sop_instance_uid for image in images}
    return tuple(
        reading_of(row, names[row.instance_id]) for row in rows if row.instance_id in names
    )


def study_of(row: PreparedRow) -> Study:
    """A study's row."""
    return Study(
        study_instance_uid=row.study_instance_uid,
        revision=row.revision,
        state=StudyState(row.state),
        priority=Priority(row.priority),
        first_received_at=row.first_received_at,
        last_received_at=row.last_received_at,
        quiet_until=row.quiet_until,
        calling_ae_title=row.calling_ae_title,
        called_ae_title=row.called_ae_title,
        id=row.id,
        peer_address=row.peer_address,
        decision=decision_of(row),
        worklist=worklist_answer_of(row),
    )


def decision_of(row: PreparedRow) -> RuleDecision | None:
    """The decision of the rules about a study; None: there were none."""
    if row.rule is None:
        return None
    effect: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in (row.rule_effect or {}).items()
    }
    return RuleDecision(row.rule, row.rules_digest, **effect)


def decision_values(decision: RuleDecision | None) -> dict[str, Any]:
    """Columns of a study's row. A rule that leaves a setting out writes none."""
    if decision is None:
        return {"rule": None, "rules_digest": None, "rule_effect": None}
    effect = {name: getattr(decision, name) for name in _EFFECTS}
    return {
        "rule": decision.rule,
        "rules_digest": decision.digest,
        "rule_effect": {name: value for name, value in effect.items() if value not in (None, "")},
    }


def worklist_answer_of(row: PreparedRow) -> WorklistAnswer | None:
    """The answer of a modality worklist about a study; None: none named a priority."""
    if row.worklist is None:
        return None
    return WorklistAnswer(**{**row.worklist, "words": tuple(row.worklist["words"])})


def worklist_values(answer: WorklistAnswer) -> dict[str, Any]:
    """Columns of a study's row."""
    return {"worklist": {**asdict(answer), "words": list(answer.words)}}


def _is_finite(result: Result) -> bool:
    """Whether all numbers of a result are finite.

    A number that is not makes the sum not finite.
    """
    by_name = [item.member_scores for item in result.findings]
    for image in result.source_images:
        by_name += (image.scores, image.logits, *image.member_scores.values())
    of_findings = sum(
        [
            item.logit + item.score + (item.probability or 0.0) + (item.operating_point or 0.0)
            for item in result.findings
        ]
    )
    return math.isfinite(of_findings + sum([sum(said.values()) for said in by_name]))


def result_values(result: Result) -> dict[str, Any]:
    """Columns of a new result row."""
    content = {
        "findings": result.findings,
        "source_images": result.source_images,
        "is_trained": result.is_trained,
        "is_calibrated": result.is_calibrated,
        "preprocessing_version": result.preprocessing_version,
        "timings": dict(result.timings),
        "has_several_orders": result.has_several_orders,
    }
    return {
        "study_instance_uid": result.study_instance_uid,
        "release": result.release,
        "source_digest": result.source_digest,
        "revision": result.revision,
        "outcome": result.outcome.value,
        "outcome_reason": result.reason,
        "content": Finite(content) if _is_finite(result) else content,
        "identifiers": dict(result.identifiers),
        "created_at": result.created_at,
        "supersedes_id": result.supersedes_id,
        "campaign_id": result.campaign_id,
    }


def result_of(row: PreparedRow) -> Result:
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
        source_images=tuple(_source_image_of(item) for item in content["source_images"]),
        is_trained=content["is_trained"],
        is_calibrated=content["is_calibrated"],
        preprocessing_version=content["preprocessing_version"],
        identifiers=row.identifiers,
        timings=content["timings"],
        created_at=row.created_at,
        supersedes_id=row.supersedes_id,
        id=row.id,
        is_shadow=row.state == ResultState.SHADOW,
        # A row of an earlier version does not say.
        has_several_orders=content.get("has_several_orders", False),
        campaign_id=row.campaign_id,
    )


def _source_image_of(item: dict[str, Any]) -> SourceImage:
    # A row of an earlier version has no flags.
    return SourceImage(**{**item, "flags": tuple(item.get("flags", ()))})


def _finding_of(item: dict[str, Any]) -> Finding:
    fixed = {
        "code": Code(**item["code"]),
        "decision": Decision(item["decision"]),
        "source_sop_instance_uids": tuple(item["source_sop_instance_uids"]),
    }
    return Finding(**{**item, **fixed})


def document_of(row: PreparedRow) -> Document:
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

"""Results of a study: findings and the images that they come from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from hilum.domain.dicom import Code


class Decision(StrEnum):
    """The decision of a finding. Untrained weights never yield PRESENT or ABSENT."""

    PRESENT = "present"
    ABSENT = "absent"
    UNDECIDED = "undecided"


class Outcome(StrEnum):
    """How a study ended for one release."""

    ANALYSED = "analysed"
    PARTIAL = "partial"
    NOT_ANALYSED = "not_analysed"


@dataclass(frozen=True, slots=True)
class Finding:
    """A decision on one label for the study.

    `score` is the activation, never called a probability unless calibrated.

    `member_scores`: of an ensemble, by member.
    """

    key: str
    text: str
    code: Code
    logit: float
    score: float
    probability: float | None
    operating_point: float | None
    decision: Decision
    source_sop_instance_uids: tuple[str, ...]
    member_scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceImage:
    """One image of the study as a release saw it, numbers by finding.

    `member_scores` of an ensemble by member, then finding.

    `flags`: see `Reading.flags`.
    """

    sop_instance_uid: str
    sop_class_uid: str
    series_instance_uid: str
    view: str | None
    is_used: bool
    reason: str | None
    scores: Mapping[str, float] = field(default_factory=dict)
    logits: Mapping[str, float] = field(default_factory=dict)
    member_scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """All findings of a study by one release, from exactly these source images.

    `identifiers` maps a document kind ("sr") and "<kind>_series" to the UID minted for it when the
    result was stored.
    `is_shadow`: for comparison only; it gets no document. `campaign_id`: the campaign that wanted
    its newest reading; None: none did. `has_several_orders`: its images name
    different Accession Numbers.
    """

    study_instance_uid: str
    release: str
    source_digest: str
    revision: int
    outcome: Outcome
    reason: str | None
    findings: tuple[Finding, ...]
    source_images: tuple[SourceImage, ...]
    is_trained: bool
    is_calibrated: bool
    preprocessing_version: str | None
    identifiers: Mapping[str, str]
    timings: Mapping[str, float]
    created_at: float
    supersedes_id: int | None = None
    id: int = 0
    is_shadow: bool = False
    has_several_orders: bool = False
    campaign_id: int | None = None


def source_digest(sources: Sequence[tuple[str, int, str]], release: str) -> str:
    """Digest of the sources of a result.

    (SOP Instance UID, header revision, pixel digest) of every image, in any order.
    """
    text = "\n".join(f"{uid} {revision} {pixels}" for uid, revision, pixels in sorted(sources))
    return hashlib.sha256(f"{release}\n{text}".encode()).hexdigest()[:32]

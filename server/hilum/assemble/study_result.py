"""`assemble`: decides whether the study has ended, and its result by each release. Pure.

Its inputs are a job, the releases and the time.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, repeat
from typing import Final

from hilum.assemble.findings import ImageScores, find, score_image
from hilum.assemble.images import Identify, Image, images_of, of_one_patient
from hilum.domain import (
    Outcome,
    ReadingState,
    Release,
    Result,
    ServerReason,
    SourceImage,
    Study,
    StudyJob,
    identifier_names,
    is_out_of_scope,
    mint_uid,
    source_digest,
)

_OPEN: Final = frozenset({ReadingState.DUE, ReadingState.LEASED})
# Of each release the rules that were last asked for, and of which object: a configured release is
# one as long as the process lives.
_RULES: Final[dict[str, tuple[Release, str]]] = {}


@dataclass(frozen=True, slots=True)
class WaitingStudy:
    """Not yet. `until`: when to look again; None: when the last open reading has ended."""

    until: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Close:
    """The study has ended: one result for each release with a changed result.

    Empty: no result has changed.
    """

    results: tuple[Result, ...]


def assemble(
    job: StudyJob,
    releases: Mapping[str, Release],
    namespace: uuid.UUID,
    now: float,
    identify: Identify,
    epoch: str = "",
) -> WaitingStudy | Close:
    """Return Waiting while the quiet period runs or a reading is open, else the new results.

    There is a result for each release that read this study.

    Idempotent: a release whose source digest equals its current result's gets no new one. A release
    that is no longer configured ends as not analysed (release_not_available), unless it has a
    result, which then stands as long as none of its images is rejected.

    Images that name more than one patient give no findings (patient_conflict); `identify` is called
    where there are several. `namespace` and `epoch` (see `store.epoch`) are the base of the UIDs of
    documents.
    """
    if now < job.study.quiet_until:
        return WaitingStudy(job.study.quiet_until, "the quiet period runs")
    if open_readings := sum(reading.state in _OPEN for reading in job.readings):
        return WaitingStudy(None, f"{open_readings} readings are open")
    current = {result.release: result for result in job.current_results}
    # A study that has lost its images (rejected, or put into another study) still has to say so.
    names = dict.fromkeys([*(reading.release for reading in job.readings), *current])
    results = (
        _result(job, name, releases.get(name), current.get(name), namespace, now, identify, epoch)
        for name in names
    )
    return Close(tuple(result for result in results if result is not None))


def _result(
    job: StudyJob,
    name: str,
    release: Release | None,
    current: Result | None,
    namespace: uuid.UUID,
    now: float,
    identify: Identify,
    epoch: str,
) -> Result | None:
    images, has_several_orders = of_one_patient(images_of(job, name), identify)
    campaign_id = _campaign_of(images, current)
    spent = job.superseded_digests.get(name, frozenset())
    kept = current
    if current is not None and campaign_id is None and _becomes_live(current, release):
        kept = None
        spent |= {current.source_digest}
    digest = _unspent(_digest(images, name, release), kept, spent)
    if kept is not None and _stands(kept, digest, release, images):
        return None
    scores = [_scored(image, release) for image in images]
    used = [item for item in scores if item is not None]
    outcome, reason = _outcome(images, is_configured=release is not None)
    return Result(
        study_instance_uid=job.study.study_instance_uid,
        release=name,
        source_digest=digest,
        revision=current.revision + 1 if current is not None else 1,
        outcome=outcome,
        reason=reason,
        findings=find(used, release) if used and release is not None else (),
        source_images=tuple(map(_source, images, scores, repeat(release))),
        is_trained=release is not None and release.is_trained,
        is_calibrated=_is_calibrated(release),
        preprocessing_version=_preprocessing_version(images),
        identifiers=_identifiers(namespace, epoch, job.study, name, digest),
        timings=_timings(job, images),
        created_at=now,
        supersedes_id=current.id if current is not None else None,
        has_several_orders=has_several_orders,
        campaign_id=campaign_id,
    )


def _campaign_of(images: Iterable[Image], current: Result | None) -> int | None:
    """Return the campaign of the newest reading; None where any image was read for another cause.

    So a study with a live image in it is reported, corrected and withdrawn as a live one. A study
    that has lost its images stays as it was.
    """
    readings = [image.reading for image in images if image.reading is not None]
    if not readings:
        return None if current is None else current.campaign_id
    if any(reading.campaign_id is None for reading in readings):
        return None
    return max(readings, key=lambda reading: reading.id).campaign_id


def _becomes_live(current: Result, release: Release | None) -> bool:
    """Whether a result has to be made anew: live images have come to a campaign's study."""
    return current.campaign_id is not None and release is not None


def _rests_on_rejected(current: Result, images: Iterable[Image]) -> bool:
    """Whether a result speaks for an image that has been rejected since, or has left the study."""
    left = {image.instance.sop_instance_uid for image in images if not image.is_rejected}
    return any(
        source.is_used and source.sop_instance_uid not in left for source in current.source_images
    )


def _stands(current: Result, digest: str, release: Release | None, images: Iterable[Image]) -> bool:
    """Return whether the current result needs no successor."""
    if current.source_digest == digest:
        return True
    return release is None and not _rests_on_rejected(current, images)


def _is_calibrated(release: Release | None) -> bool:
    return release is not None and release.is_trained and release.calibration is not None


def _scored(image: Image, release: Release | None) -> ImageScores | None:
    if release is None or image.reading is None or image.logits is None:
        return None
    return score_image(image.reading, release)


def _digest(images: Iterable[Image], name: str, release: Release | None) -> str:
    """Return the digest of everything that the content depends on.

    Pixels, headers, the outcome of each image, and the rules of the decision.

    A late image, a corrected header, a repeated reading or a new operating point gives a new
    result. A late lateral image of a study that a frontal release has reported does not, because
    the report would be the same.
    """
    everything = list(images)
    in_scope = [item for item in everything if not item.is_out_of_scope] or everything
    sources = [
        (item.instance.sop_instance_uid, item.instance.header_revision, _seen(item))
        for item in in_scope
    ]
    return source_digest(sources, f"{name} {_rules(name, release)}")


def _unspent(digest: str, current: Result | None, spent: Collection[str]) -> str:
    """Return the current result's digest if its content is the same; else one not used before.

    A study that returns to earlier content gets a new document, which replaces the one between:
    the UIDs of the old document are taken.
    """
    found = digest
    for number in count(1):
        if (current is not None and found == current.source_digest) or found not in spent:
            break
        found = source_digest([], f"{digest} {number}")
    return found


def _seen(image: Image) -> str:
    if image.is_rejected:
        return f"{image.instance.pixel_digest} {image.reason}"
    reading = image.reading
    said = [
        image.reason,
        image.logits,
        reading.view if reading else None,
        reading.preprocessing_version if reading else None,
    ]
    # Only where there are some: results of images without flags keep the digest that they have.
    return (
        f"{image.instance.pixel_digest} {json.dumps([*said, image.flags] if image.flags else said)}"
    )


def _rules(name: str, release: Release | None) -> str:
    """Return the digest of the rules from logits to findings; a manifest may change them."""
    if release is None:
        return "not configured"
    of, rules = _RULES.get(name, (None, ""))
    if of is not release:
        rules = _rules_of(release)
        _RULES[name] = release, rules
    return rules


def _rules_of(release: Release) -> str:
    labels = [
        (
            label.key,
            label.code.value,
            label.code.scheme,
            label.operating_point,
            label.is_masked,
            label.rescaled_at,
        )
        for label in release.labels
    ]
    rules = [
        labels,
        release.activation,
        release.aggregation,
        release.is_trained,
        _plain(release.calibration),
        release.weights_sha256,
    ]
    return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()


def _plain(value: object) -> object:
    """Read-only mappings as dictionaries, so that they can be written as JSON."""
    return (
        {str(key): _plain(item) for key, item in value.items()}
        if isinstance(value, Mapping)
        else value
    )


def _outcome(images: Sequence[Image], *, is_configured: bool) -> tuple[Outcome, str | None]:
    """PARTIAL: an image that the release should have read has no number.

    A lateral view is out of a frontal release's scope.
    """
    if not is_configured:
        return Outcome.NOT_ANALYSED, ServerReason.RELEASE_NOT_AVAILABLE.value
    left = [image for image in images if not image.is_rejected]
    if not left:
        return Outcome.NOT_ANALYSED, ServerReason.REJECTED.value
    reasons = [image.reason for image in left if image.reason is not None]
    if ServerReason.PATIENT_CONFLICT.value in reasons:
        return Outcome.NOT_ANALYSED, ServerReason.PATIENT_CONFLICT.value
    if len(reasons) == len(left):
        only = reasons[0] if len(set(reasons)) == 1 else ServerReason.NO_ANALYSED_IMAGE.value
        return Outcome.NOT_ANALYSED, only
    failed = [reason for reason in reasons if not is_out_of_scope(reason)]
    return (Outcome.PARTIAL, failed[0]) if failed else (Outcome.ANALYSED, None)


def _source(image: Image, score: ImageScores | None, release: Release | None) -> SourceImage:
    labels = release.labels if release is not None and score is not None else ()
    keys = [(position, label.key) for position, label in enumerate(labels) if not label.is_masked]
    return SourceImage(
        sop_instance_uid=image.instance.sop_instance_uid,
        sop_class_uid=image.instance.sop_class_uid,
        series_instance_uid=image.instance.series_instance_uid,
        view=image.reading.view if image.reading else None,
        is_used=score is not None,
        reason=None
        if score is not None
        else image.reason or ServerReason.RELEASE_NOT_AVAILABLE.value,
        scores=_by_key(score.scores, keys) if score else {},
        logits=_by_key(score.logits, keys) if score else {},
        member_scores=_member_scores(score, release, keys) if score and release else {},
        flags=image.flags,
    )


def _member_scores(
    score: ImageScores, release: Release, keys: Sequence[tuple[int, str]]
) -> dict[str, dict[str, float]]:
    """Of an ensemble; empty also for a reading from before its numbers were kept."""
    pairs = zip(release.members, score.member_scores, strict=False)
    return {name: _by_key(scores, keys) for name, scores in pairs}


def _by_key(values: Sequence[float], keys: Iterable[tuple[int, str]]) -> dict[str, float]:
    return {key: values[position] for position, key in keys}


def _preprocessing_version(images: Iterable[Image]) -> str | None:
    versions = {
        image.reading.preprocessing_version
        for image in images
        if image.reading is not None and image.logits is not None
    }
    return ", ".join(sorted(version for version in versions if version)) or None


def _identifiers(
    namespace: uuid.UUID, epoch: str, study: Study, name: str, digest: str
) -> dict[str, str]:
    """Minted once, here: a document of the same content always bears the same UID, within an epoch.

    A study that comes again after its rows have left gets others: its documents have other dates
    than those that were sent. Revisions share their series, also across epochs.
    """
    uid = study.study_instance_uid
    since = (repr(study.first_received_at), epoch)
    kinds, series = identifier_names()
    return {
        **{kind: mint_uid(namespace, uid, name, kind, digest, *since) for kind in kinds},
        **{item: mint_uid(namespace, uid, name, item) for item in series},
    }


def _timings(job: StudyJob, images: Iterable[Image]) -> dict[str, float]:
    """Return times of the study, and the longest time of each step; seconds."""
    longest: dict[str, float] = {}
    for image in images:
        for step, seconds in (image.reading.timings if image.reading else {}).items():
            if step.endswith("_seconds"):
                longest[step] = max(seconds, longest.get(step, 0.0))
    study = job.study
    times = {
        "first_received_at": study.first_received_at,
        "last_received_at": study.last_received_at,
        "quiet_until": study.quiet_until,
    }
    return {**longest, **times}

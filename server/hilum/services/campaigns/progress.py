"""The next state of a series: from its images in the ledger, never from a status. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from hilum.domain import CampaignImageState, SeriesReason, SeriesState
from hilum.store.campaigns.series_queue import ImageRow, SeriesChange, SeriesRow

RETRY_SECONDS: Final = (60.0, 300.0, 1800.0)
_NEARLINE_SECONDS: Final = 7200.0
# A series whose request ends the process each time has to end, too.
MAXIMUM_INTERRUPTIONS: Final = 20


@dataclass(frozen=True, slots=True)
class FetchState:
    """The facts on the last request for a series.

    `is_over`: the source has ended it, and no image came for the quiet period. `refusals`: our own
    checks by SOP Instance UID, with their text. `reason`, `detail`: why images are missing, if the
    source said it. `is_nearline`: the source has to load them first. `may_try_again`: False for a
    source where another request cannot help. `is_interrupted`: the process that asked has ended.
    """

    is_over: bool
    refusals: Mapping[str, str] = field(default_factory=dict)
    reason: SeriesReason = SeriesReason.NOT_RECEIVED
    detail: str = ""
    is_nearline: bool = False
    may_try_again: bool = True
    is_interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """The consequences for one series.

    `unordered`: row ids of studies whose images are here without a reading, and the images' UIDs.
    `unread`: images that are here or asked for, and not read.
    """

    change: SeriesChange | None
    unordered: Sequence[tuple[int, str]] = ()
    unread: int = 0


def step(series: SeriesRow, images: Sequence[ImageRow], fetch: FetchState, now: float) -> Step:
    """Return the next state of a series that is requested, received or dead."""
    states = {image.id: _state_of(image) for image in images}
    missing = [image for image in images if states[image.id] is CampaignImageState.EXPECTED]
    values = _values(series, images, states, now)
    lost: dict[int, dict[str, Any]] = {}
    if missing and fetch.is_over:
        values = _after_loss(series, missing, fetch, now)
        if values["state"] is SeriesState.DEAD:
            lost = {image.id: _lost(image, fetch) for image in missing}
    changed = _changed(images, states) | lost
    is_same = values.get("state") is series.state
    change = None
    if changed or not is_same:
        change = SeriesChange(series.id, {} if is_same else values, changed)
    waiting = (CampaignImageState.EXPECTED, CampaignImageState.RECEIVED)
    unread = sum(state in waiting for state in states.values())
    return Step(change, _unordered(images), unread)


def step_without_list(series: SeriesRow, fetch: FetchState, now: float) -> SeriesChange:
    """Return the next state of a series whose images the source could not list."""
    return SeriesChange(series.id, _after_loss(series, (), fetch, now), {})


def _changed(
    images: Sequence[ImageRow], states: Mapping[int, CampaignImageState]
) -> dict[int, dict[str, Any]]:
    """Return the new columns of images whose state has changed."""
    return {
        image.id: {"state": states[image.id], "reason": image.reason}
        for image in images
        if states[image.id] is not image.state
    }


def _unordered(images: Sequence[ImageRow]) -> list[tuple[int, str]]:
    """Return images in closed studies that are here and have no reading."""
    return [
        (image.study_row, image.sop_instance_uid)
        for image in images
        if image.is_here and not image.has_reading and image.is_closed and image.study_row
    ]


def _state_of(image: ImageRow) -> CampaignImageState:
    if image.state is CampaignImageState.RELEASED:
        return image.state
    if image.is_read:
        return CampaignImageState.READ if image.is_fetched else CampaignImageState.RELEASED
    if image.is_here:
        return CampaignImageState.RECEIVED
    # Asked for again, it is expected again.
    is_missing = image.state is CampaignImageState.MISSING
    return CampaignImageState.MISSING if is_missing else CampaignImageState.EXPECTED


def _values(
    series: SeriesRow,
    images: Sequence[ImageRow],
    states: Mapping[int, CampaignImageState],
    now: float,
) -> dict[str, Any]:
    found = set(states.values())
    ended = {"reason": None, "detail": None, "finished_at": now}
    if not images:
        return {"state": SeriesState.NOTHING_TO_READ, **ended}
    if found & {CampaignImageState.EXPECTED, CampaignImageState.MISSING}:
        return {"state": series.state}
    if CampaignImageState.RECEIVED not in found:
        return {"state": SeriesState.READ, **ended}
    received = {"reason": None, "detail": None, "finished_at": None, "received_at": now}
    return {"state": SeriesState.RECEIVED, **received}


def _after_loss(
    series: SeriesRow, missing: Sequence[ImageRow], fetch: FetchState, now: float
) -> dict[str, Any]:
    """Return the state of a series whose request is over, and images are missing."""
    if fetch.is_interrupted and series.interruptions < MAXIMUM_INTERRUPTIONS:
        return {
            "state": SeriesState.FOUND,
            "due_at": now,
            "attempts": max(0, series.attempts - 1),
            "interruptions": series.interruptions + 1,
        }
    reason, detail = _reason_of(missing, fetch)
    tries = max(series.attempts, 1)
    is_final = reason in (SeriesReason.CONFLICT, SeriesReason.REFUSED_BY_HILUM)
    if not is_final and fetch.may_try_again and tries <= len(RETRY_SECONDS):
        wait = _NEARLINE_SECONDS if fetch.is_nearline else RETRY_SECONDS[tries - 1]
        return {
            "state": SeriesState.FOUND,
            "due_at": now + wait,
            "reason": reason,
            "detail": detail,
        }
    return {
        "state": SeriesState.DEAD,
        "reason": reason,
        "detail": detail,
        "finished_at": now,
    }


def _reason_of(missing: Sequence[ImageRow], fetch: FetchState) -> tuple[SeriesReason, str]:
    if not missing:
        return fetch.reason, fetch.detail
    count = f"{len(missing)} image{'' if len(missing) == 1 else 's'} missing"
    if all(image.is_disputed for image in missing):
        return SeriesReason.CONFLICT, count
    refused = [image for image in missing if image.sop_instance_uid in fetch.refusals]
    if len(refused) == len(missing):
        text = fetch.refusals[refused[0].sop_instance_uid]
        return SeriesReason.REFUSED_BY_HILUM, f"{count}: {text}"
    return fetch.reason, f"{count}: {fetch.detail}" if fetch.detail else count


def _lost(image: ImageRow, fetch: FetchState) -> dict[str, Any]:
    reason, _ = _reason_of([image], fetch)
    detail = fetch.refusals.get(image.sop_instance_uid) or fetch.detail or None
    return {"state": CampaignImageState.MISSING, "reason": reason, "detail": detail}

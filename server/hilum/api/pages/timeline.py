"""The timeline of a study: every stage and delivery as one line, oldest first. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hilum.api.pages.formatting import (
    Chip,
    Moment,
    chip,
    count,
    document_words,
    duration,
    meaning,
    moment,
    plain,
    reading_words,
)
from hilum.domain import DeliveryCommitment, DeliveryState
from hilum.withheld_reports import advice_of

Item = Mapping[str, Any]
_COMMITMENT_WORDS = {
    DeliveryCommitment.ASKED: "to commit to keep it",
    DeliveryCommitment.COMMITTED: "to keep it",
}
_STAGES = ("receive", "analyse", "assemble", "report", "deliver", "person")


@dataclass(frozen=True, slots=True)
class Event:
    """One line.

    `since` is the time since the last image; `words` name the problem, if there is one.
    """

    at: Moment | None
    since: str
    stage: str
    what: str
    chip: Chip | None
    words: str


@dataclass(frozen=True, slots=True)
class _Raw:
    at: float
    stage: str
    what: str
    chip: Chip | None = None
    words: str = ""


def timeline(study: Item, now: float, deeds: Sequence[Item] = ()) -> Sequence[Event]:
    """Return all stages, past and to come, and the reads and changes of the study (`deeds`)."""
    found = sorted(
        [*_raw(study, now), *map(_deed, deeds)],
        key=lambda item: (item.at, _STAGES.index(item.stage)),
    )
    return [_event(item, study["received_last"], now) for item in found]


def _event(raw: _Raw, last_image: float, now: float) -> Event:
    later = raw.at - last_image
    since = f"+{later:.1f} s" if 0 < later < 100 else f"+{duration(later)}" if later > 0 else ""
    return Event(moment(raw.at, now), since, raw.stage, raw.what, raw.chip, raw.words)


def _raw(study: Item, now: float) -> Iterator[_Raw]:
    for number, image in enumerate(study["images"], start=1):
        yield _Raw(
            image["received_at"],
            "receive",
            f"Image {number} received from {image['calling_ae_title']}",
        )
        yield from (_reading(number, item) for item in image["readings"] if item["finished_at"])
    if study["closed_at"]:
        yield _Raw(study["closed_at"], "assemble", "Study closed")
    elif study["quiet_until"] > now:
        yield _Raw(study["quiet_until"], "assemble", "Quiet period ends")
    for result in study["results"]:
        yield from _result(result)


def _deed(row: Item) -> _Raw:
    words = f"{count(row['count'], 'time')}" if row["count"] > 1 else row["detail"] or ""
    state = None if row["outcome"] == "done" else chip(row["outcome"])
    return _Raw(
        row["at"],
        "person",
        f"{plain(row['verb']).capitalize()} by {row['actor']} ({row['channel']})",
        state,
        words,
    )


def _reading(number: int, reading: Item) -> _Raw:
    return _Raw(
        reading["finished_at"],
        "analyse",
        f"Image {number} by {reading['release']}",
        chip(reading["state"]),
        reading_words(reading),
    )


def _meaning(way: Item) -> str:
    """Return a line for each delivery; a withheld one also has its remedy."""
    if way["state"] == DeliveryState.WITHHELD:
        return f"{meaning(way['reason'])}: {advice_of(way['reason'], way['destination'])}"
    return meaning(way["reason"])


def _result(result: Item) -> Iterator[_Raw]:
    what = f"Result {result['revision']} of {result['release']}"
    yield _Raw(
        result["created_at"], "assemble", what, chip(result["outcome"]), meaning(result["reason"])
    )
    for paper in result["documents"]:
        yield _Raw(paper["created_at"], "report", f"{document_words(paper['kind'])} stored")
        for way in paper["deliveries"]:
            yield from _delivery(paper, way)


def _delivery(paper: Item, way: Item) -> Iterator[_Raw]:
    """A delivery that has ended at its end, another one at its next try.

    One in work began when its document was stored.

    Of one that a person made due again also when, and when it was accepted before.
    """
    is_delivered = way["state"] == DeliveryState.DELIVERED
    what = f"{document_words(paper['kind'])} to {way['destination']}"
    if not is_delivered and not way["at"] and way["attempts"]:
        what += f", try {way['attempts'] + 1}"
    words = "; ".join(filter(None, (_meaning(way), way["detail"])))
    if is_delivered and way["attempts"] > 1:
        words = f"after {count(way['attempts'], 'attempt')}"
    yield _Raw(
        way["at"] or way["next_try_at"] or paper["created_at"],
        "deliver",
        what,
        chip(way["state"]),
        words,
    )
    if (kept := _COMMITMENT_WORDS.get(way["commitment"])) is not None and way["commitment_at"]:
        yield _Raw(way["commitment_at"], "deliver", what, chip(way["commitment"]), kept)
    if way["requeued_at"]:
        yield from _requeued(what, way["requeued_at"], way["delivered_at"])


def _requeued(what: str, requeued_at: float, delivered_at: float | None) -> Iterator[_Raw]:
    yield _Raw(requeued_at, "person", f"{what}: due again")
    if delivered_at and delivered_at < requeued_at:
        yield _Raw(delivered_at, "deliver", what, chip(DeliveryState.DELIVERED), "the first time")

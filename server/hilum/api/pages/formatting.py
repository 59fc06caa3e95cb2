"""Rows as words for people: ages, times with their zone, states.

Pure; unknown states and reasons stand for themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from hilum.api.pages.render_process import FAILED
from hilum.api.pages.render_worker import GONE
from hilum.domain import (
    REASONS,
    DeliveryCommitment,
    DeliveryState,
    Identifiers,
    Outcome,
    ReadingState,
    ReportState,
    ResultState,
    StudyState,
    flags_of,
    kind_of,
)
from hilum.timestamps import iso
from hilum_preprocessing.errors import flag_meaning

Tone = Literal["good", "busy", "warn", "bad", "quiet"]
Item = Mapping[str, Any]
_UNITS: Final = ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second"))
_PICTURES: Final = {
    GONE: "The pixels have left the archive.",
    FAILED: "Showing this object crashed or hung its decoder.",
}
_OPEN: Final = ("due", "leased")


@dataclass(frozen=True, slots=True)
class Chip:
    """A word with a colour; the word alone says it all."""

    text: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class Moment:
    """A time: for machines, for people with zone, and how long ago."""

    iso: str
    local: str
    age: str


def moment(at: float | None, now: float) -> Moment | None:
    """A time of the ledger in the words of the server's own zone."""
    return None if at is None else Moment(iso(at), local(at), age(now - at))


def local(at: float) -> str:
    """`2026-11-20 09:31:02 CET`."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def age(seconds: float) -> str:
    """`12 seconds ago`, `in 3 minutes`."""
    if abs(seconds) < 1:
        return "now"
    return f"{duration(seconds)} ago" if seconds > 0 else f"in {duration(-seconds)}"


def duration(seconds: float) -> str:
    """The largest unit that fits: `3 minutes`; below a second `0.3 seconds`."""
    if seconds < 1:
        return f"{seconds:.1f} seconds"
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size))
    return count(int(seconds // size), unit)


def count(number: int, noun: str) -> str:
    """`1 image`, `2 images`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def plain(word: str | None) -> str:
    """`not_analysed` as `not analysed`."""
    return (word or "").replace("_", " ")


def meaning(reason: str | None) -> str:
    """The sentence of a reason; a reason without one in plain words."""
    return REASONS[reason].meaning if reason is not None and reason in REASONS else plain(reason)


def identifier_words(found: Identifiers | None) -> list[tuple[str, str]]:
    """Return name and value of each identifier in a header; None: none may be shown."""
    if found is None:
        return []
    issued = (
        f"{found.patient_id} (issued by {found.issuer})"
        if found.patient_id and found.issuer
        else found.patient_id
    )
    said = (
        ("Patient ID", issued),
        ("Accession Number", found.accession_number),
        ("Study Date", found.study_date),
    )
    return [(name, value) for name, value in said if value]


def reading_words(reading: Item) -> str:
    """Return, in sentences, why there is no number, and the doubts about the image."""
    flags = flags_of(reading["state"], reading["reason"], reading["detail"])
    said = [f"In doubt: {flag_meaning(flag)}" for flag in flags] or [reading["detail"] or ""]
    return " ".join(part for part in (meaning(reading["reason"]), *said) if part)


def document_words(kind: str) -> str:
    """A kind of document."""
    return kind_of(kind).label


def picture_words(reason: str) -> str:
    """Why a picture cannot be shown."""
    return _PICTURES.get(reason) or meaning(reason)


_TONES: Final[Mapping[str, Tone]] = {
    ReadingState.ANALYSED: "good",
    StudyState.CLOSED: "good",
    ResultState.REPORTED: "good",
    DeliveryState.DELIVERED: "good",
    DeliveryCommitment.COMMITTED: "good",
    DeliveryCommitment.ASKED: "busy",
    ReadingState.NOT_ANALYSED: "warn",
    Outcome.PARTIAL: "warn",
    ReadingState.FAILED: "bad",
    DeliveryState.DEAD: "bad",
    DeliveryState.WITHHELD: "warn",
    "due": "busy",
    "leased": "busy",
}
_REPORTED: Final[Mapping[str, Chip]] = {
    ReportState.OPEN: Chip("sending", "busy"),
    ReportState.FAILED: Chip("needs a person", "bad"),
    ReportState.WITHHELD: Chip("report withheld", "warn"),
    ReportState.DELIVERED: Chip("done", "good"),
    ReportState.NOT_DELIVERED: Chip("not sent", "warn"),
}
_NAMES: Final = {"due": "waiting", "leased": "in work", "dead": "not delivered"}


def chip(state: str) -> Chip:
    """A state of any stage, or an outcome."""
    return Chip(_NAMES.get(state) or plain(state), _TONES.get(state, "quiet"))


def association_chip(row: Item) -> Chip:
    """How an association ended; refused objects make it worse."""
    is_well = row["outcome"] == "released" and row["reason"] in (None, "other_objects_discarded")
    return Chip(plain(row["outcome"]), "bad" if row["refused"] else "good" if is_well else "warn")


def study_chip(study: Item, now: float) -> Chip:
    """Return the stage of a study between reception and delivery, from its row and deliveries."""
    if study["state"] == StudyState.FAILED:
        return Chip("failed", "bad")
    if study["state"] != StudyState.CLOSED:
        return _open_chip(study, now)
    if (
        study["failed_readings"]
        or study["deliveries"].get(DeliveryState.DEAD)
        or _has(study["results"], ResultState.FAILED)
    ):
        return Chip("needs a person", "bad")
    if any(_has(study["results"], state) for state in _OPEN):
        return Chip("writing reports", "busy")
    if any(study["deliveries"].get(state) for state in _OPEN):
        return Chip("sending", "busy")
    return _REPORTED[study["report_state"]]


def _open_chip(study: Item, now: float) -> Chip:
    if study["open_readings"]:
        return Chip(f"reading, {count(study['open_readings'], 'image')} open", "busy")
    if study["state"] == "due" and study["quiet_until"] > now:
        return Chip(f"closes in {duration(study['quiet_until'] - now)}", "busy")
    return chip(study["state"]) if study["state"] not in _OPEN else Chip("closing", "busy")


def _has(items: Iterable[Item], state: str) -> bool:
    return any(item["state"] == state for item in items)


def delivery_words(deliveries: Mapping[str, int]) -> Sequence[Chip]:
    """`1 delivered`, `2 waiting`."""
    return [
        Chip(f"{number} {chip(state).text}", chip(state).tone)
        for state, number in sorted(deliveries.items())
        if number
    ]

"""The front page: converts ledger rows to the values of the template. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hilum.api.pages.findings import ResultLine, result_line
from hilum.api.pages.formatting import (
    Chip,
    Moment,
    count,
    delivery_words,
    duration,
    identifier_words,
    meaning,
    moment,
    plain,
    study_chip,
)
from hilum.api.readiness import ReadinessCheck, ReadinessFacts, Role, checks
from hilum.domain import Identifiers

Item = Mapping[str, Any]
_UID_TAIL = 18  # studies of one site differ at the end


@dataclass(frozen=True, slots=True)
class StudyLine:
    """A row of the list.

    `head` and `tail` are the UID in two parts: a narrow screen hides the first.
    """

    uid: str
    head: str
    tail: str
    received: Moment | None
    sender: str
    called: str
    images: str
    chip: Chip
    reason: str
    priority: str
    results: Sequence[ResultLine]
    deliveries: Sequence[Chip]
    identifiers: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class RoleLine:
    """Readiness of a role, and its problems."""

    role: str
    is_ready: bool
    problems: Sequence[ReadinessCheck]


@dataclass(frozen=True, slots=True)
class QueueLine:
    """Open items of one queue."""

    stage: str
    priority: str
    destination: str
    due: int
    waiting: int
    leased: int
    oldest: str


@dataclass(frozen=True, slots=True)
class StuckLine:
    """Items of one kind that need a person."""

    stage: str
    what: str
    destination: str
    items: int
    since: Moment | None


def study_line(study: Item, now: float, identifiers: Identifiers | None = None) -> StudyLine:
    """A study of the list. `identifiers`: those that may be shown."""
    uid = study["study_instance_uid"]
    return StudyLine(
        uid=uid,
        head=uid[:-_UID_TAIL],
        tail=uid[-_UID_TAIL:],
        received=moment(study["received_last"], now),
        sender=study["calling_ae_title"],
        called=study["called_ae_title"],
        images=count(study["images"], "image"),
        chip=study_chip(study, now),
        reason=meaning(study["reason"]),
        priority="" if study["priority"] == "live" else study["priority"],
        results=[result_line(item) for item in study["results"]],
        deliveries=delivery_words(study["deliveries"]),
        identifiers=identifier_words(identifiers),
    )


def role_lines(roles: Sequence[Role], facts: ReadinessFacts) -> list[RoleLine]:
    """Readiness as `/health/ready` judges it."""
    found = [(role, checks(role, facts)) for role in roles]
    return [
        RoleLine(role, all(check.ok for check in items), [check for check in items if not check.ok])
        for role, items in found
    ]


def queue_lines(queues: Sequence[Item]) -> list[QueueLine]:
    """Queues that hold something."""
    return [
        _queue_line(item) for item in queues if item["due"] or item["waiting"] or item["leased"]
    ]


def _queue_line(item: Item) -> QueueLine:
    oldest = duration(item["oldest_age_seconds"]) if item["oldest_age_seconds"] >= 1 else ""
    return QueueLine(
        item["stage"],
        item["priority"],
        item["destination"] or "",
        item["due"],
        item["waiting"],
        item["leased"],
        oldest,
    )


def stuck_lines(stuck: Sequence[Item], now: float) -> list[StuckLine]:
    """Return the items that need a person."""
    return [
        StuckLine(
            item["stage"],
            plain(item["reason"]),
            item["destination"] or "",
            item["items"],
            moment(item["since"], now),
        )
        for item in stuck
    ]

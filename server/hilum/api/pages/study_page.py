"""The page of one study: the facts of REST, in the order in which a person asks. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hilum.api.pages.formatting import (
    Chip,
    Moment,
    chip,
    count,
    identifier_words,
    meaning,
    moment,
    plain,
    reading_words,
    study_chip,
)
from hilum.api.pages.result_box import ResultBox, result_box
from hilum.api.pages.timeline import Event, timeline
from hilum.domain import (
    DeliveryState,
    Identifiers,
    ReadingState,
    Release,
    ResultState,
    ServerReason,
    StudyState,
    WorklistAnswer,
)
from hilum.withheld_reports import advice_of

Item = Mapping[str, Any]
_SAME: Final = "The stored bytes, under the same UID."
_SOP_CLASSES: Final = {
    "1.2.840.10008.5.1.4.1.1.1": "Computed Radiography",
    "1.2.840.10008.5.1.4.1.1.1.1": "Digital X-Ray, for presentation",
    "1.2.840.10008.5.1.4.1.1.1.1.1": "Digital X-Ray, for processing",
    "1.2.840.10008.5.1.4.1.1.7": "Secondary Capture",
}


@dataclass(frozen=True, slots=True)
class ReadingLine:
    """One release's end for one image."""

    release: str
    chip: Chip
    words: str


@dataclass(frozen=True, slots=True)
class ImageBox:
    """One image with its readings. `without`: why there is no picture."""

    number: int
    uid: str
    kind: str
    view: str
    without: str
    received: Moment | None
    readings: Sequence[ReadingLine]


@dataclass(frozen=True, slots=True)
class Again:
    """A button that requeues ended items of a stage, or resends the documents of a destination.

    `action`: the last part of its address; `field`: the value of its form field.
    """

    field: tuple[str, str]
    label: str
    explanation: str
    action: str = "requeue"


@dataclass(frozen=True, slots=True)
class StudyView:
    """The values of the whole page."""

    uid: str
    chip: Chip
    reason: str
    detail: str
    facts: Sequence[tuple[str, str]]
    received: Moment | None
    images: Sequence[ImageBox]
    current: Sequence[ResultBox]
    earlier: Sequence[ResultBox]
    again: Sequence[Again]
    timeline: Sequence[Event]


def study_page(
    study: Item,
    releases: Mapping[str, Release],
    now: float,
    *,
    can_requeue: bool,
    deeds: Sequence[Item] = (),
    identifiers: Identifiers | None = None,
) -> StudyView:
    """Return the page from `LedgerViews.study`, and from the newest audit rows of the study.

    `identifiers`: those that may be shown.
    """
    boxes = [
        (item, result_box(study, item, releases.get(item["release"]), now))
        for item in study["results"]
    ]
    return StudyView(
        uid=study["study_instance_uid"],
        chip=study_chip({**study, **_as_in_a_list(study)}, now),
        reason=meaning(study["reason"]),
        detail=study["detail"] or "",
        facts=[*identifier_words(identifiers), *_facts(study)],
        received=moment(study["received_last"], now),
        images=[
            _image_box(number, item, now) for number, item in enumerate(study["images"], start=1)
        ],
        current=[box for item, box in boxes if item["is_current"]],
        earlier=[box for item, box in boxes if not item["is_current"]],
        again=list(_again(study)) if can_requeue else [],
        timeline=timeline(study, now, deeds),
    )


def _current(study: Item) -> list[Item]:
    return [item for item in study["results"] if item["is_current"]]


def _ways(results: Sequence[Item]) -> Iterator[Item]:
    return (
        way for result in results for paper in result["documents"] for way in paper["deliveries"]
    )


def _as_in_a_list(study: Item) -> dict[str, Any]:
    """Return the columns of a study in the list that its own row lacks."""
    current = _current(study)
    failed = _reading_states(study).count(ReadingState.FAILED)
    states = [way["state"] for way in _ways(current)]
    return {
        "results": current,
        "deliveries": {state: states.count(state) for state in states},
        "failed_readings": failed,
    }


def _reading_states(study: Item) -> list[str]:
    return [item["state"] for image in study["images"] for item in image["readings"]]


def _facts(study: Item) -> Iterator[tuple[str, str]]:
    yield "Sender", f"{study['calling_ae_title']} → {study['called_ae_title']}"
    if study["rule"] is not None:
        yield "Rule", study["rule"]
    yield "Images", str(len(study["images"]))
    yield "Priority", study["priority"]
    if study["worklist"] is not None:
        yield "Order", WorklistAnswer(**study["worklist"]).sentence
    yield "Revision", str(study["revision"])
    for item in study.get("shadow_results", ()):
        yield "Shadow, not reported", f"{item['release']}: {plain(item['outcome'])}"


def _image_box(number: int, image: Item, now: float) -> ImageBox:
    return ImageBox(
        number=number,
        uid=image["sop_instance_uid"],
        kind=_SOP_CLASSES.get(image["sop_class_uid"]) or str(image["sop_class_uid"]),
        view=next((item["view"] for item in image["readings"] if item["view"]), ""),
        without=_without_picture(image),
        received=moment(image["received_at"], now),
        readings=[_reading_line(item) for item in image["readings"]],
    )


def _without_picture(image: Item) -> str:
    if image["is_removed"]:
        return f"{ServerReason.REJECTED.meaning} {plain(image.get('removal_reason')).capitalize()}."
    if image.get("pixels_removed_at"):
        return "The pixels have left the archive. Rows and documents stay."
    return ""


def _reading_line(reading: Item) -> ReadingLine:
    release = f"{reading['release']} (shadow)" if reading.get("is_shadow") else reading["release"]
    return ReadingLine(release, chip(reading["state"]), reading_words(reading))


def _again(study: Item) -> Iterator[Again]:
    """Return the buttons for items that the ledger would requeue."""
    yield from _read_again(_reading_states(study))
    if study["state"] == StudyState.FAILED:
        yield Again(_stage("assemble"), "Close the study again", "The study could not be closed.")
    if failed_results := sum(item["state"] == ResultState.FAILED for item in study["results"]):
        yield Again(
            _stage("report"),
            "Write the reports again",
            f"The documents of {count(failed_results, 'result')} could not be built.",
        )
    states = [way["state"] for way in _ways(study["results"])]
    if dead := states.count(DeliveryState.DEAD):
        yield Again(_stage("deliver"), f"Send {count(dead, 'document')} again", _SAME)
    yield from _release(_ways(study["results"]))
    yield from _resend(_ways(_current(study)))


def _read_again(readings: Sequence[str]) -> Iterator[Again]:
    failed = readings.count(ReadingState.FAILED)
    refused = readings.count(ReadingState.NOT_ANALYSED)
    if failed or refused:
        yield Again(
            _stage("analyse"),
            f"Read {count(failed + refused, 'image')} again",
            _said(failed=failed, not_analysed=refused),
        )


def _release(ways: Iterable[Item]) -> Iterator[Again]:
    """Yield a button for withheld deliveries, with the remedy of each cause."""
    withheld = [way for way in ways if way["state"] == DeliveryState.WITHHELD]
    if withheld:
        remedies = dict.fromkeys(advice_of(way["reason"], way["destination"]) for way in withheld)
        yield Again(
            _stage("deliver"),
            f"Release {count(len(withheld), 'withheld document')}",
            f"Sent once its cause is gone: {'; '.join(remedies)}.",
        )


def _resend(ways: Iterable[Item]) -> Iterator[Again]:
    """Yield a button for each destination that has accepted a document."""
    sent = Counter(way["destination"] for way in ways if way["state"] == DeliveryState.DELIVERED)
    for name, number in sent.items():
        yield Again(
            ("destination", name),
            f"Send {count(number, 'document')} to {name} again",
            f"If {name} has lost it. {_SAME}",
            "resend",
        )


def _stage(name: str) -> tuple[str, str]:
    return "stage", name


def _said(**numbers: int) -> str:
    """Return the counts above zero, as in `2 failed, 1 not analysed`."""
    return ", ".join(f"{number} {plain(name)}" for name, number in numbers.items() if number)

"""Attributes of Unified Procedure Steps: those that are read, and those that are written.

The required attributes of an item that ends are those of PS3.4 table CC.2.5-3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from hilum.dicom.uid import problem_of_uid
from hilum.domain import IMAGE_SOP_CLASSES, AcceptedObject, Code
from hilum.workitems.dicom_json import DataSet, element, items_of, sequence, text_of

SCHEDULED: Final = "SCHEDULED"
IN_PROGRESS: Final = "IN PROGRESS"
COMPLETED: Final = "COMPLETED"
CANCELED: Final = "CANCELED"  # one L: PS3.4 CC.1.1

SOP_INSTANCE_UID: Final = "00080018"
TRANSACTION_UID: Final = "00081195"
STATE: Final = "00741000"
READINESS: Final = "00404041"
WORKITEM_CODE: Final = "00404018"
PRIORITY: Final = "00741200"
START: Final = "00404005"
INPUT: Final = "00404021"
READY: Final = "READY"
_STUDY: Final = "0020000D"
_SERIES: Final = "0020000E"
_REFERENCED: Final = "00081199"
_SOP_CLASS: Final = "00081150"
_SOP_INSTANCE: Final = "00081155"
_PERFORMED: Final = "00741216"
_STATION: Final = "00404028"
_STARTED: Final = "00404050"
_ENDED: Final = "00404051"
_PERFORMED_CODE: Final = "00404019"
_OUTPUT: Final = "00404033"
_PROGRESS: Final = "00741002"
_CANCELLED: Final = "00404052"
_DISCONTINUED: Final = "0074100E"
_REASON: Final = "00741238"
_UNSPECIFIED: Final = Code("110513", "DCM", "Discontinued for unspecified reason")  # CID 9300
_IMAGES: Final = frozenset(IMAGE_SOP_CLASSES.values())
_LONGEST_TIME: Final = 26  # characters of DT
_URGENT: Final = "HIGH"
_RANKS: Final = {_URGENT: 0, "MEDIUM": 1, "LOW": 2}


@dataclass(frozen=True, slots=True)
class InputInformation:
    """The objects that an item is about.

    `studies`: Study Instance UIDs, each once. `images`: SOP Instance UIDs of images that Hilum can
    take; none where the item names the study alone.
    """

    studies: tuple[str, ...]
    images: frozenset[str]


@dataclass(frozen=True, slots=True)
class RetrievePlace:
    """Where others retrieve our objects: an AE Title, or the root of a WADO-RS service."""

    ae_title: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Performance:
    """A performed analysis. Times: seconds since the epoch."""

    station: Code
    code: Code
    started_at: float
    ended_at: float
    objects: Sequence[AcceptedObject] = ()
    place: RetrievePlace = RetrievePlace()


def uid_of(item: DataSet) -> str:
    """Return the SOP Instance UID of an item; empty: it has no valid one."""
    found = text_of(item, SOP_INSTANCE_UID)
    return "" if problem_of_uid(found) else found


def scheduled_code(item: DataSet, codes: Iterable[Code]) -> Code | None:
    """Return that of `codes` which an item asks for, by value and scheme; None: it does not."""
    named = {
        (text_of(code, "00080100"), text_of(code, "00080102"))
        for code in items_of(item, WORKITEM_CODE)
    }
    return next((code for code in codes if (code.value, code.scheme) in named), None)


def may_be_claimed(item: DataSet, codes: Iterable[Code]) -> bool:
    """Return whether an item waits for a performer as we are, and its input is ready."""
    return (
        text_of(item, STATE) == SCHEDULED
        and text_of(item, READINESS) == READY
        and scheduled_code(item, codes) is not None
    )


def may_match(item: DataSet, codes: Iterable[Code]) -> bool:
    """Return whether an answer of a search may be claimed, as far as it has the attributes."""
    asked = ((STATE, SCHEDULED), (READINESS, READY))
    return all(text_of(item, tag) in {"", value} for tag, value in asked) and (
        WORKITEM_CODE not in item or scheduled_code(item, codes) is not None
    )


def order_of(item: DataSet) -> tuple[int, str]:
    """Return the key of the order of claims: Priority (0074,1200), then the scheduled start."""
    return _RANKS.get(text_of(item, PRIORITY), 1), text_of(item, START)[:_LONGEST_TIME]


def is_urgent(item: DataSet) -> bool:
    """Return whether its Priority (0074,1200) is HIGH."""
    return text_of(item, PRIORITY) == _URGENT


def input_of(item: DataSet) -> InputInformation:
    """Return the input of an item. A malformed UID is left out."""
    found = items_of(item, INPUT)
    studies = dict.fromkeys(text_of(each, _STUDY) for each in found)
    images = (
        text_of(reference, _SOP_INSTANCE)
        for each in found
        for reference in items_of(each, _REFERENCED)
        if text_of(reference, _SOP_CLASS) in _IMAGES
    )
    return InputInformation(
        tuple(uid for uid in studies if not problem_of_uid(uid)),
        frozenset(uid for uid in images if not problem_of_uid(uid)),
    )


def change_of_state(state: str, transaction_uid: str) -> dict[str, Any]:
    """Return the Action Information of a change of state (PS3.4 table CC.2.1-1)."""
    return {**element(TRANSACTION_UID, transaction_uid), **element(STATE, state)}


def begun(performance: Performance) -> dict[str, Any]:
    """Return the attributes of an item that is in progress."""
    return sequence(_PERFORMED, [_performed(performance)])


def completed(performance: Performance) -> dict[str, Any]:
    """Return the attributes that an item needs before it is COMPLETED."""
    performed = {
        **_performed(performance),
        **element(_ENDED, date_time(performance.ended_at)),
        **sequence(_OUTPUT, _output(performance)),
    }
    return sequence(_PERFORMED, [performed])


def cancelled(now: float, reason: str) -> dict[str, Any]:
    """Return the attributes that an item needs before it is CANCELED. `reason`: for people."""
    progress = {
        **element(_CANCELLED, date_time(now)),
        **element(_REASON, reason),
        **sequence(_DISCONTINUED, [_code(_UNSPECIFIED)]),
    }
    return sequence(_PROGRESS, [progress])


def date_time(moment: float) -> str:
    """Return seconds since the epoch as DT in UTC."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y%m%d%H%M%S.%f+0000")


def _performed(performance: Performance) -> dict[str, Any]:
    return {
        **sequence(_STATION, [_code(performance.station)]),
        **element(_STARTED, date_time(performance.started_at)),
        **sequence(_PERFORMED_CODE, [_code(performance.code)]),
    }


def _output(performance: Performance) -> list[dict[str, Any]]:
    """Return one item for each series (PS3.3 table 10-3b)."""
    series: dict[tuple[str, str], list[AcceptedObject]] = defaultdict(list)
    for each in performance.objects:
        series[each.study_instance_uid, each.series_instance_uid].append(each)
    return [
        {
            **element("0040E020", "DICOM"),
            **element(_STUDY, study),
            **element(_SERIES, uid),
            **sequence(_REFERENCED, [_reference(each) for each in objects]),
            **_retrieval(performance.place, study, uid),
        }
        for (study, uid), objects in series.items()
    ]


def _retrieval(place: RetrievePlace, study: str, series: str) -> dict[str, Any]:
    if place.url:
        url = f"{place.url.rstrip('/')}/studies/{study}/series/{series}"
        return sequence("0040E025", [element("00081190", url)])
    return sequence("0040E021", [element("00080054", place.ae_title)])


def _reference(each: AcceptedObject) -> dict[str, Any]:
    return {
        **element(_SOP_CLASS, each.sop_class_uid),
        **element(_SOP_INSTANCE, each.sop_instance_uid),
    }


def _code(code: Code) -> dict[str, Any]:
    return {
        **element("00080100", code.value),
        **element("00080102", code.scheme),
        **element("00080104", code.meaning),
    }

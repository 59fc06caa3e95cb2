"""The page of destinations: the facts of REST, in the order in which a person asks.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hilum.api.pages.formatting import Chip, Moment, chip, count, meaning, moment
from hilum.withheld_reports import WithholdingCause, advice_of

Item = Mapping[str, Any]
_QUEUED: Final = (
    ("due", "due now"),
    ("waiting", "waiting for their next try"),
    ("leased", "in work"),
)
_SHOWN: Final = (*_QUEUED, ("uncommitted", "accepted and not committed yet"))


@dataclass(frozen=True, slots=True)
class Error:
    """The last problem. `at` None: it exists now."""

    text: str
    at: Moment | None


@dataclass(frozen=True, slots=True)
class EndedDelivery:
    """Documents that a destination lacks and that no process sends, for one reason.

    `label`: of the button that makes them due again. Empty: the settings must be changed first.
    """

    chip: Chip
    number: int
    reason: str
    words: str
    label: str


@dataclass(frozen=True, slots=True)
class ButtonAction:
    """A button.

    `confirmation`: a text that a person has to confirm first. Empty: the action can be undone.
    """

    verb: str
    label: str
    explanation: str
    confirmation: str = ""


@dataclass(frozen=True, slots=True)
class DestinationBox:
    """One destination."""

    name: str
    kind: str
    address: str
    chip: Chip
    waiting: Sequence[str]
    ended: Sequence[EndedDelivery]
    error: Error | None
    delivered: Moment | None
    actions: Sequence[ButtonAction]
    refusals: Sequence[WithholdingCause]


def destination_box(
    item: Item, now: float, refusals: Sequence[WithholdingCause] = ()
) -> DestinationBox:
    """A destination from `LedgerViews.destination_states`, with its kind and address.

    `refusals`: reports that the settings withhold.
    """
    return DestinationBox(
        name=item["name"],
        kind=item["kind"] or "",
        address=item["address"] or "",
        chip=_chip(item),
        waiting=[
            f"{count(item[name], 'document')} {words}" for name, words in _SHOWN if item[name]
        ],
        ended=list(_ended(item)),
        error=_error(item, now),
        delivered=moment(item["delivered_at"], now),
        actions=list(_actions(item)),
        refusals=[found for found in refusals if found.destination == item["name"]],
    )


def _ended(item: Item) -> Iterator[EndedDelivery]:
    name = item["name"]
    is_configured = item["is_configured"]
    for reason, number in item["dead"].items():
        yield EndedDelivery(
            chip("dead"), number, reason, meaning(reason), "Send again" if is_configured else ""
        )
    for reason, number in item["withheld"].items():
        is_free = is_configured and item["releasable"]
        words = meaning(reason) if is_free else f"{meaning(reason)}; {advice_of(reason, name)}"
        yield EndedDelivery(chip("withheld"), number, reason, words, "Release" if is_free else "")


def _chip(item: Item) -> Chip:
    if not item["is_configured"]:
        return Chip("not in the settings", "bad" if _unsent(item) else "quiet")
    if item["is_paused"]:
        return Chip("paused", "warn")
    if item["detail"]:
        return Chip("away", "bad")
    if item["dead"]:
        return Chip("needs a person", "bad")
    return Chip("up", "good") if item["delivered_at"] is not None else Chip("not used yet", "quiet")


def _unsent(item: Item) -> int:
    ended = (*item["dead"].values(), *item["withheld"].values())
    return sum(int(number) for number in (*(item[name] for name, _ in _QUEUED), *ended))


def _error(item: Item, now: float) -> Error | None:
    """Return the problem of waiting deliveries, else that of the newest ended one."""
    if item["detail"]:
        return Error(item["detail"], None)
    if (dead := item["last_dead"]) is None:
        return None
    said = "; ".join(part for part in (meaning(dead["reason"]), dead["detail"]) if part)
    return Error(said, moment(dead["at"], now))


def _actions(item: Item) -> Iterator[ButtonAction]:
    """Return the buttons of actions that the ledger accepts."""
    if item["is_configured"]:
        yield ButtonAction("probe", "Ask what it accepts", "It sends no document.")
        is_paused = item["is_paused"]
        yield (
            ButtonAction("resume", "Resume", "What waits is sent.")
            if is_paused
            else ButtonAction("pause", "Pause", "Documents wait until you resume it.")
        )
    elif unsent := _unsent(item):
        asked = (
            f"Cancel {unsent} {'delivery' if unsent == 1 else 'deliveries'}. It cannot be undone."
        )
        yield ButtonAction("forget", "Give up what waits", "Nothing is sent to it any more.", asked)

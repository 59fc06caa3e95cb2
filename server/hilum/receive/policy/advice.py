"""Advice for senders about Presentation Contexts, or objects of a class, that were not accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydicom import uid

from hilum.dicom.uid import is_like_uid
from hilum.domain import TRANSFER_SYNTAXES
from hilum.receive.policy.sender_policy import STORAGE_SOP_CLASSES, SenderPolicy

_NAMED = 3  # refused SOP Classes that are named; a router may propose a hundred


@dataclass(frozen=True, slots=True)
class NotAccepted:
    """A proposed Presentation Context that got result 3 or 4 (PS3.8 Table 9-18).

    3 is about the abstract syntax, 4 about the transfer syntaxes.
    """

    abstract_syntax: str
    is_known: bool


def advise(refused: Sequence[NotAccepted], terms: SenderPolicy) -> str | None:
    """Return sentences for the sender, or None if there are none."""
    unknown = [item.abstract_syntax for item in refused if not item.is_known]
    encoded = [item.abstract_syntax for item in refused if item.is_known]
    sentences = []
    if unknown:
        sentences.append(
            f"SOP Classes not accepted: {_list(unknown)}. {_what_to_send(unknown, terms)}."
        )
    if encoded:
        sentences.append(
            f"No Transfer Syntax accepted for: {_list(encoded)}. {_how_to_send(encoded[0], terms)}."
        )
    return " ".join(sentences) or None


def advise_on_object(sop_class: str, terms: SenderPolicy) -> tuple[str, str]:
    """Return the advice for one object of a class that is not taken, short and in full.

    The short one fits into an Error Comment, with any name of the class.
    """
    in_full = f"SOP Class not accepted: {_name(sop_class)}. {_what_to_send([sop_class], terms)}"
    if not _takes_all(terms):
        return f"This SOP Class is not in {terms.key('sop_classes')}", in_full
    return f"Send CR, DX or SC images; SOP Class is {_name(sop_class)}", in_full


def _takes_all(terms: SenderPolicy) -> bool:
    return set(terms.sop_classes) == set(STORAGE_SOP_CLASSES)


def _what_to_send(unknown: Sequence[str], terms: SenderPolicy) -> str:
    if _takes_all(terms):
        return "Send CR, DX and Secondary Capture images only"
    way_out = (
        ""
        if set(STORAGE_SOP_CLASSES).isdisjoint(unknown)
        else f", or add to {terms.key('sop_classes')}"
    )
    return f"Send {_list(terms.sop_classes)} only{way_out}"


def _how_to_send(sop_class: str, terms: SenderPolicy) -> str:
    """Return the advice on Transfer Syntaxes.

    Objects without pixels have Transfer Syntaxes that no setting changes.
    """
    is_chosen = sop_class in STORAGE_SOP_CLASSES and set(terms.transfer_syntaxes) != set(
        TRANSFER_SYNTAXES.values()
    )
    way_out = f", or add to {terms.key('transfer_syntaxes')}" if is_chosen else ""
    return f"Propose {_name(terms.syntaxes_of(sop_class)[0])}{way_out}"


def counted(objects: Mapping[str, int]) -> str:
    """Return the number of objects of each SOP Class, the most frequent ones by name."""
    frequent = sorted(objects.items(), key=lambda item: -item[1])
    named = [f"{count} {_name(sop_class)}" for sop_class, count in frequent[:_NAMED]]
    more = sum(count for _, count in frequent[_NAMED:])
    return ", ".join(named) + (f" and {more} of other classes" if more else "")


def _list(sop_classes: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(map(_name, sop_classes)))
    more = len(distinct) - _NAMED
    return ", ".join(distinct[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _name(registered: str) -> str:
    """Return the name of a SOP Class or Transfer Syntax in the standard, else its UID."""
    return uid.UID(registered).name if is_like_uid(registered) else "an invalid UID"

"""The table of docs/reference/conformance.md on what holds for all senders, and what a section of `senders` may say instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from hilum.settings import Sender, Settings


@dataclass(frozen=True, slots=True)
class _Term:
    """`key`: of the setting for all senders; `otherwise`: the answer to who does not keep to it."""

    meaning: str
    key: str
    otherwise: str


_TERMS: Mapping[str, _Term] = {
    "peers": _Term("addresses", "receive.peers", "A-ASSOCIATE-RJ (1,1,1)"),
    "certificate_names": _Term("names of its certificate", "", "A-ASSOCIATE-RJ (1,1,3)"),
    "called_ae_titles": _Term("Called AE Titles", "receive.ae_titles", "A-ASSOCIATE-RJ (1,1,7)"),
    "maximum_associations": _Term(
        "associations at once", "receive.maximum_associations", "A-ASSOCIATE-RJ (2,3,2)"
    ),
    "sop_classes": _Term(
        "SOP Classes of images", "receive.sop_classes", "Presentation Context result 3"
    ),
    "transfer_syntaxes": _Term(
        "Transfer Syntaxes of images, in order of preference",
        "receive.transfer_syntaxes",
        "Presentation Context result 4",
    ),
    "other_objects": _Term(
        "what becomes of objects that are no images",
        "receive.other_objects",
        "Success and not kept, or Presentation Context result 3",
    ),
    "may_reject": _Term(
        "whose images its rejection notes take out", "", "Success, no effect, a row with advice"
    ),
    "may_correct": _Term("whose images its headers correct", "", "Success, held as a conflict"),
    "quiet_seconds": _Term("quiet period", "studies.quiet_seconds", ""),
    "maximum_wait_seconds": _Term("how long a study may grow", "studies.maximum_wait_seconds", ""),
    "priority": _Term("priority", "", ""),
    "releases": _Term("who reads", "models.releases", ""),
    "destinations": _Term("where documents go", "", ""),
}
_USUAL = {
    "certificate_names": "any, and none",
    "may_reject": "its own",
    "may_correct": "its own",
    "priority": "`live`",
    "destinations": "all",
    "sop_classes": "all images below",
    "transfer_syntaxes": "in the order below",
}
Row = Callable[..., str]


def senders_table(row: Row) -> Iterator[str]:
    """Every term with the setting for all, its default, and what a sender hears that does not keep to it."""
    if set(_TERMS) != set(Sender.model_fields):
        raise ValueError(f"a term is missing: {set(_TERMS) ^ set(Sender.model_fields)}")
    yield (
        "\n| what | for all | default | `[senders.<CALLING_AE_TITLE>]` | otherwise"
        " |\n|---|---|---|---|---|"
    )
    for name, term in _TERMS.items():
        yield row(
            term.meaning,
            f"`{term.key}`" if term.key else "",
            _default(name, term.key),
            f"`{name}`",
            term.otherwise,
        )


def _default(name: str, key: str) -> str:
    if name in _USUAL:
        return _USUAL[name]
    section, _, field = key.partition(".")
    value = getattr(getattr(Settings(), section), field)
    shown = ", ".join(value) if isinstance(value, tuple) else value
    return f"`{shown}`" if shown != "" else "any"

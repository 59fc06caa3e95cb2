"""A structured report as people read it.

An indented tree of at most 80 columns, drawn from the stored bytes alone.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Final

from pydicom import dcmread
from pydicom.dataset import Dataset

from hilum.report.headers.suppress_warnings import quietly

_COLUMNS: Final = 80
_HEADER: Final = (
    ("Patient", "PatientName"),
    ("Patient ID", "PatientID"),
    ("Accession", "AccessionNumber"),
    ("Study", "StudyInstanceUID"),
    ("Series", "SeriesDescription"),
    ("SOP Instance", "SOPInstanceUID"),
)
_FLAGS: Final = ("PreliminaryFlag", "CompletionFlag", "VerificationFlag")


def sr_text(content: bytes) -> str:
    """Text of an encoded SR document, lines of at most 80 columns.

    Raises pydicom's InvalidDicomError for other bytes.
    """
    with quietly():
        return _draw(dcmread(BytesIO(content)))


def _draw(report: Dataset) -> str:
    lines = [
        _line(_name(report) or "SR document"),
        " · ".join(str(report.get(flag, "-")) for flag in _FLAGS),
    ]
    for label, keyword in _HEADER:
        lines += _wrap(f"{label}: {report.get(keyword) or '-'}", "", "")
    for before in report.get("PredecessorDocumentsSequence", []):
        lines += _wrap(f"Replaces: {_referenced(before)}", "", "")
    return "\n".join([*lines, "", *_tree(report, "")]) + "\n"


def _tree(parent: Dataset, indent: str) -> Iterator[str]:
    children = list(parent.get("ContentSequence", []))
    for number, item in enumerate(children, 1):
        branch, below = ("└─ ", "   ") if number == len(children) else ("├─ ", "│  ")
        yield from _wrap(_label(item) + _value(item), indent + branch, indent + below)
        yield from _tree(item, indent + below)


def _label(item: Dataset) -> str:
    name = _name(item)
    return f"{name}: " if name and item.get("ValueType") != "CONTAINER" else name


def _wrap(text: str, first: str, rest: str) -> list[str]:
    """`text` behind `first`; further lines begin with the branches that run past them.

    A very deep tree is wider than 80.
    """
    width = max(_COLUMNS, len(rest) + 24)
    return textwrap.wrap(
        _printable(text),
        width,
        initial_indent=first,
        subsequent_indent=rest + "  ",
        break_on_hyphens=False,
    ) or [first]


def _line(text: str) -> str:
    return _printable(text)[:_COLUMNS]


def _printable(text: str) -> str:
    """Control characters of a foreign document must not reach a terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def _value(item: Dataset) -> str:
    render = _VALUES.get(str(item.get("ValueType", "")))
    return render(item) if render else f"({item.get('ValueType', 'no value type')})"


def _name(item: Dataset) -> str:
    return _meaning(item, "ConceptNameCodeSequence")


def _meaning(item: Dataset, keyword: str) -> str:
    sequence = item.get(keyword)
    return str(sequence[0].get("CodeMeaning", "")) if sequence else ""


def _code(item: Dataset) -> str:
    return _meaning(item, "ConceptCodeSequence")


def _number(item: Dataset) -> str:
    measured = item.get("MeasuredValueSequence")
    if not measured:
        return "(no value)"
    unit = measured[0].get("MeasurementUnitsCodeSequence")
    code = str(unit[0].get("CodeValue", "")) if unit else ""
    shown = {"%": " %", "1": ""}.get(
        code, f" ({_meaning(measured[0], 'MeasurementUnitsCodeSequence')})"
    )
    return f"{measured[0].get('NumericValue', '')}{shown}"


def _image(item: Dataset) -> str:
    reference = item.get("ReferencedSOPSequence")
    return str(reference[0].get("ReferencedSOPInstanceUID", "")) if reference else ""


def _referenced(document: Dataset) -> str:
    uids = [
        str(instance.get("ReferencedSOPInstanceUID", ""))
        for series in document.get("ReferencedSeriesSequence", [])
        for instance in series.get("ReferencedSOPSequence", [])
    ]
    return ", ".join(uids)


def _plain(keyword: str) -> Callable[[Dataset], str]:
    return lambda item: str(item.get(keyword, ""))


_VALUES: Final[Mapping[str, Callable[[Dataset], str]]] = {
    "CONTAINER": lambda _: "",
    "CODE": _code,
    "NUM": _number,
    "IMAGE": _image,
    "COMPOSITE": _image,
    "TEXT": _plain("TextValue"),
    "UIDREF": _plain("UID"),
    "PNAME": _plain("PersonName"),
    "DATE": _plain("Date"),
    "TIME": _plain("Time"),
    "DATETIME": _plain("DateTime"),
}

"""Identifiers of the worklist query, and the priorities in its answers (PS3.4 K.6.1.2).

No attribute of the patient is asked for, and none of an answer is read.
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydicom.dataset import Dataset
from pydicom.sequence import Sequence as DicomSequence
from pynetdicom.dsutils import decode

from hilum.dicom.charset import texts_of
from hilum_preprocessing.header.elements import MALFORMED

_SPECIFIC_CHARACTER_SET: Final = 0x00080005
_ACCESSION_NUMBER: Final = 0x00080050
_SCHEDULED_STEPS: Final = 0x00400100
# Requested Procedure Priority, and the retired Study Priority ID.
_PRIORITIES: Final = (0x00401003, 0x0032000C)
_LARGEST_BYTES: Final = 1 << 20
# Of these a server makes a pattern or a list (PS3.4 C.2.2.2), so it would answer for other orders.
_ASKABLE: Final = re.compile(r"[ -~]{1,64}")
_SPECIAL: Final = frozenset("*?\\")
# PS3.3 C.4.11 and, for the retired attribute, C.3.3 of the standard of 2011.
DEFINED_WORDS: Final = ("STAT", "HIGH", "ROUTINE", "MEDIUM", "LOW")


@dataclass(frozen=True, slots=True)
class OrderPriority:
    """The answer about one order.

    `words`: the known priorities of its entries, urgent ones first. `entries`: their number.
    """

    words: tuple[str, ...]
    entries: int
    is_urgent: bool


class UnreadableEntry(Exception):
    """An answer that is no data set, or is too large. Its content is not repeated."""


def is_askable(accession: str) -> bool:
    """Return whether an Accession Number can be asked for as it is: exactly, and in ASCII."""
    return _ASKABLE.fullmatch(accession) is not None and _SPECIAL.isdisjoint(accession)


def entry_identifier(accession: str) -> Dataset:
    """Return the identifier of the query: one order, at all stations and days."""
    step = Dataset()
    step.Modality = ""
    step.ScheduledStationAETitle = ""
    step.ScheduledProcedureStepStartDate = ""
    step.RequestedProcedurePriority = ""
    identifier = Dataset()
    identifier.AccessionNumber = accession
    identifier.StudyPriorityID = ""
    identifier.RequestedProcedurePriority = ""
    identifier.ScheduledProcedureStepSequence = DicomSequence([step])
    return identifier


def words_of_entry(
    identifier: bytes,
    syntax: Any,  # noqa: ANN401 - pynetdicom ships no types
    accession: str,
) -> list[str] | None:
    """Return the priorities of an answer; None: it is about another order.

    Raises UnreadableEntry.
    """
    if len(identifier) > _LARGEST_BYTES:
        raise UnreadableEntry
    try:
        entry = decode(
            io.BytesIO(identifier),
            syntax.is_implicit_VR,
            syntax.is_little_endian,
            syntax.is_deflated,
        )
        if _accession_of(entry) != accession.strip():
            return None
        return list(_words_of(entry))
    except MALFORMED as error:
        raise UnreadableEntry from error


def judged(entries: Iterable[Iterable[str]], urgent_words: Collection[str]) -> OrderPriority:
    """Return the priority of an order by those of its entries. Unknown words are left out."""
    found = [tuple(words) for words in entries]
    named = {word for words in found for word in words}
    urgent = [word for word in urgent_words if word in named]
    others = [word for word in DEFINED_WORDS if word in named and word not in urgent]
    return OrderPriority((*urgent, *others), len(found), is_urgent=bool(urgent))


def _accession_of(entry: Dataset) -> str:
    names = _bytes_of(entry, _SPECIFIC_CHARACTER_SET)
    return texts_of([_bytes_of(entry, _ACCESSION_NUMBER)], names)[0].strip(" \0")


def _words_of(entry: Dataset) -> Iterator[str]:
    """Yield the priorities of an entry; some servers put them into the scheduled step."""
    for tag in _PRIORITIES:
        yield from _codes(_bytes_of(entry, tag))
    if _SCHEDULED_STEPS in entry:
        for step in entry[_SCHEDULED_STEPS].value:
            for tag in _PRIORITIES:
                yield from _codes(_bytes_of(step, tag))


def _codes(value: bytes) -> Iterator[str]:
    for part in value.decode("ascii", "replace").split("\\"):
        if word := part.strip(" \0").upper():
            yield word


def _bytes_of(entry: Dataset, tag: int) -> bytes:
    value = getattr(entry.get_item(tag), "value", None)
    if isinstance(value, str):
        return value.encode("utf-8")
    return value if isinstance(value, bytes) else b""

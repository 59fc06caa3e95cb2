"""Encoded DICOM with gaps, cut out of a reference data set and filled with a study's values.

Explicit VR Little Endian. Sequences and items have defined lengths, as pydicom writes them, so that
a filled template is byte for byte the reference (PS3.5 7.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

from pydicom.dataelem import DataElement
from pydicom.dataset import Dataset

from hilum.dicom.encoding import before_length, length_bytes
from hilum.report.template.writing import encoded

_ITEM: Final = b"\xfe\xff\x00\xe0"
_SHORT = 2
_LONG = 4
_MOST_SIZES: Final = 64


@dataclass(frozen=True, slots=True)
class Sized:
    """A length field of so many bytes and the parts that it counts."""

    length: int
    parts: Sequence[Part]


# Encoded bytes, the name of a gap, or parts behind their length.
Part = bytes | str | Sized


@dataclass(frozen=True, slots=True)
class _Length:
    """A length field of a filled template.

    `base` bytes that stand fast, and those of the gaps with these numbers.
    """

    length: int
    base: int
    gaps: tuple[int, ...]

    def encoded(self, sizes: Sequence[int]) -> bytes:
        """The field, when the gaps hold values of these sizes."""
        return (self.base + sum([sizes[gap] for gap in self.gaps])).to_bytes(self.length, "little")


class Template:
    """Bytes with gaps.

    Values of equal sizes have equal lengths around them, so those are computed once for the sizes
    that recur.
    """

    __slots__ = ("_order", "_pick", "_pieces", "_sized")

    def __init__(self, parts: Iterable[Part], *gaps: str) -> None:
        pieces = list(_flat(list(parts), gaps))
        self.__setstate__(
            (
                tuple(_pattern(piece) for piece in pieces),
                tuple(piece for piece in pieces if isinstance(piece, int)),
            )
        )

    def __getstate__(self) -> tuple[Any, ...]:
        """Return the state without the cache."""
        return self._pieces, self._order

    def __setstate__(self, state: tuple[tuple[bytes | _Length, ...], tuple[int, ...]]) -> None:
        """It begins to remember anew."""
        self._pieces, self._order = state
        self._pick = _picking(self._order)
        self._sized: dict[tuple[int, ...], bytes] = {}

    def fill(self, *values: bytes) -> bytes:
        """The bytes with `values` in the gaps, in the order in which they were named.

        A value has an even number of bytes (PS3.5 6.2).
        """
        sizes = tuple(map(len, values))
        pattern = self._sized.get(sizes) or self._remember(sizes)
        return pattern % self._pick(values)

    def _remember(self, sizes: tuple[int, ...]) -> bytes:
        if len(self._sized) == _MOST_SIZES:
            self._sized.clear()
        encoded = [
            piece.encoded(sizes).replace(b"%", b"%%") if isinstance(piece, _Length) else piece
            for piece in self._pieces
        ]
        self._sized[sizes] = b"".join(encoded)
        return self._sized[sizes]


def _picking(order: tuple[int, ...]) -> Callable[[tuple[bytes, ...]], tuple[bytes, ...]]:
    """The values with these numbers. A function in C: a report fills some fifty templates."""
    if len(order) > 1:
        return itemgetter(*order)
    return itemgetter(slice(order[0], order[0] + 1) if order else slice(0))


def _pattern(piece: bytes | int | _Length) -> bytes | _Length:
    if isinstance(piece, bytes):
        return piece.replace(b"%", b"%%")
    return b"%b" if isinstance(piece, int) else piece


def _flat(parts: Sequence[Part], gaps: Sequence[str]) -> Iterator[bytes | int | _Length]:
    for part in parts:
        if isinstance(part, Sized):
            base, inside = _measured(part.parts)
            yield (
                _Length(part.length, base, tuple(gaps.index(name) for name in inside))
                if inside
                else base.to_bytes(part.length, "little")
            )
            yield from _flat(part.parts, gaps)
        else:
            yield part if isinstance(part, bytes) else gaps.index(part)


def _measured(parts: Iterable[Part]) -> tuple[int, list[str]]:
    """Bytes that stand fast, and the names of the gaps, each as often as it occurs."""
    base = 0
    names: list[str] = []
    for part in parts:
        if isinstance(part, Sized):
            within, more = _measured(part.parts)
            base = base + part.length + within
            names = names + more
        elif isinstance(part, bytes):
            base += len(part)
        else:
            names.append(part)
    return base, names


def cut_item(dataset: Dataset, gaps: Mapping[str, str | list[Part]] | None = None) -> list[Part]:
    """An item of a sequence.

    `gaps`: keyword to the name of the gap for its value, or the parts that take the place of a
    sequence's items.

    A keyword counts on every level below.
    """
    return item(cut(dataset, gaps))


def item(parts: Sequence[Part]) -> list[Part]:
    """An item around `parts`."""
    return [_ITEM, Sized(_LONG, parts)]


def cut(dataset: Dataset, gaps: Mapping[str, str | list[Part]] | None = None) -> list[Part]:
    """All elements of a data set, in the order of their tags; else as `cut_item`."""
    return [part for element in dataset for part in cut_element(element, gaps)]


def cut_element(
    element: DataElement, gaps: Mapping[str, str | list[Part]] | None = None
) -> list[Part]:
    """One element; else as `cut_item`."""
    gap = (gaps or {}).get(element.keyword)
    if element.VR == "SQ":
        inside = (
            [part for below in element.value for part in cut_item(below, gaps)]
            if gap is None
            else gap
        )
    elif gap is None:
        return [encoded([element])]
    else:
        inside = gap
    before, size = before_value(element)
    return [before, Sized(size, [inside] if isinstance(inside, str) else inside)]


def before_value(element: DataElement) -> tuple[bytes, int]:
    """Return the bytes before the length of an element, and the length's size (PS3.5 7.1.2)."""
    vr = element.VR.encode()
    return before_length(element.tag, vr), length_bytes(vr)

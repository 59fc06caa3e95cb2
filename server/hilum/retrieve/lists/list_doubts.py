"""Signs in all accession numbers of a list that a spreadsheet has changed them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

_FEWEST: Final = 10
# Of 100 numbers with a random first digit, 90 keep their length when zeros are lost.
_FIXED_SHARE: Final = 2 / 3
_EXCEL_DIGITS: Final = 15


class AccessionForms:
    """Lengths of accession numbers, counted while a list is read."""

    def __init__(self) -> None:
        self._numbers: Counter[int] = Counter()
        self._texts: Counter[int] = Counter()
        self._has_leading_zero = False
        self._long = 0
        self._long_rounded = 0

    def count(self, value: str) -> None:
        """Count one accession number."""
        if not (value.isascii() and value.isdigit()):
            self._texts[len(value)] += 1
            return
        self._numbers[len(value)] += 1
        self._has_leading_zero |= value.startswith("0")
        if len(value) > _EXCEL_DIGITS:
            self._long += 1
            self._long_rounded += value.endswith("0")

    def doubts(self) -> Iterable[str]:
        """Return each sign of damage, for people."""
        if shorter := self._shorter():
            yield (
                f"{shorter} of {self._numbers.total()} numeric accession numbers are shorter than"
                " the others, and none begins with 0: a spreadsheet may have removed leading zeros"
            )
        if self._long >= _FEWEST and self._long_rounded == self._long:
            yield (
                "each accession number of 16 digits ends in 0: a spreadsheet may have kept 15"
                " digits alone"
            )

    def _shorter(self) -> int:
        """Return how many numbers are shorter than a fixed width that the list shows."""
        total = self._numbers.total()
        if total < _FEWEST or self._has_leading_zero or len(self._numbers) == 1:
            return 0
        longest = max(self._numbers)
        widths = [length for length in self._texts if length >= longest]
        is_fixed_elsewhere = len(self._texts) == 1 and bool(widths)
        if self._numbers[longest] < _FIXED_SHARE * total and not is_fixed_elsewhere:
            return 0
        return total - self._numbers[longest]

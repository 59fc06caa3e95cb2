"""Values of an encoded header. This module brings pydicom, without which settings are loaded."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from pydicom.dataset import Dataset
from pydicom.filereader import read_dataset

from hilum.dicom.charset import texts_of
from hilum.dicom.elements import values_in
from hilum_preprocessing.errors import NotAnalysable
from hilum_preprocessing.header.element_index import encoding_of
from hilum_preprocessing.header.elements import MALFORMED
from hilum_preprocessing.header.structure import TooComplex
from hilum_preprocessing.header.views import view_of
from hilum_preprocessing.spec.population import age_years

_UNREADABLE: Final = (*MALFORMED, TooComplex, NotAnalysable)


class HeaderValues:
    """A header as an instance's row keeps it. One that cannot be read has no values."""

    def __init__(self, header: bytes, transfer_syntax_uid: str) -> None:
        self._header = header
        self._syntax = transfer_syntax_uid
        self._encoding = encoding_of(transfer_syntax_uid)
        self._dataset: Dataset | None = None

    @property
    def byte_order(self) -> str:
        """That of numbers, as struct names it."""
        return self._encoding.byte_order

    def elements(self, tags: Collection[int]) -> Mapping[int, bytes]:
        """Return the values of these elements, by one walk."""
        try:
            return values_in(self._header, self._syntax, tags)
        except _UNREADABLE:
            return {}

    def texts(self, parts: Sequence[bytes], character_sets: bytes) -> Iterable[str]:
        """Return texts in these values of Specific Character Set; none where it decodes no text."""
        try:
            return texts_of(parts, character_sets)
        except _UNREADABLE:  # pydicom takes any codec of Python by its name, such as "undefined"
            return ()

    def view(self) -> str:
        """Return PA, AP, LATERAL or UNKNOWN."""
        try:
            return view_of(self._whole())
        except _UNREADABLE:
            return "UNKNOWN"

    def age(self) -> float | None:
        """Return the age in years; None where the header names none that can be believed."""
        try:
            return age_years(self._whole())
        except _UNREADABLE:
            return None

    def _whole(self) -> Dataset:
        if self._dataset is None:
            is_little = self._encoding.byte_order == "<"
            stream = io.BytesIO(self._header)
            self._dataset = read_dataset(stream, self._encoding.is_implicit, is_little)
        return self._dataset

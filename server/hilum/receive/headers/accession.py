"""The order of an image: Accession Number (0008,0050) of an encoded header, and its issuer.

Only the top level of the header is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hilum.dicom.charset import texts_of
from hilum.receive.headers.patient import read_texts
from hilum.receive.statuses import understood
from hilum_preprocessing.header.element_index import encoding_of, first_item, index

_SPECIFIC_CHARACTER_SET = 0x00080005
_ACCESSION_NUMBER = 0x00080050
_ISSUER_SEQUENCE = 0x00080051
_READ = frozenset((_SPECIFIC_CHARACTER_SET, _ISSUER_SEQUENCE))
# Local Namespace Entity ID and Universal Entity ID: an issuer has one of them, or both (PS3.3
# 10.14).
_DESIGNATORS = (0x00400031, 0x00400032)


@dataclass(frozen=True, slots=True)
class Accession:
    """The number by which an order is searched for.

    `issuer`: either of its designators; None: any issuer.
    """

    number: str
    issuer: str | None = None

    def is_of(self, header: bytes | memoryview, transfer_syntax_uid: str) -> bool:
        """Return whether a header names this order.

        Raises CannotUnderstand if it cannot be read so far.
        """
        wanted = self.number
        # As for a Patient ID: most headers are ruled out without being parsed.
        if wanted.isascii() and wanted.encode() not in bytes(header):
            return False
        if read_texts(header, transfer_syntax_uid, (_ACCESSION_NUMBER,)) != [wanted]:
            return False
        return self.issuer is None or self.issuer in (
            tuple(_issuer(header, transfer_syntax_uid)) or ("",)
        )

    def issuer_in(self, header: bytes | memoryview, transfer_syntax_uid: str) -> str:
        """Return the issuer of the header's Accession Number; empty: the header has none.

        Raises CannotUnderstand.
        """
        return next(_issuer(header, transfer_syntax_uid), "")


def _issuer(header: bytes | memoryview, transfer_syntax_uid: str) -> Iterator[str]:
    """Return the designators in the first item of Issuer of Accession Number Sequence."""
    data = memoryview(header)
    encoding = encoding_of(transfer_syntax_uid)
    with understood:
        found = index(data, encoding, _READ, _ISSUER_SEQUENCE + 1)
        if (sequence := found.get(_ISSUER_SEQUENCE)) is None:
            return
        items = [
            bytes(data[item.value : item.end or item.value])
            for item in first_item(data, sequence, encoding)
            if item.tag in _DESIGNATORS
        ]
    names = found.get(_SPECIFIC_CHARACTER_SET)
    character_set = b"" if names is None else bytes(data[names.value : names.end or names.value])
    yield from filter(None, texts_of(items, character_set))

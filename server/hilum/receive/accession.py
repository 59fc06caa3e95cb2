"""Which order an image was made for: Accession Number (0008,0050) of an encoded header, at the top level."""

from __future__ import annotations

from dataclasses import dataclass

from hilum.receive.patient import read_texts

_ACCESSION_NUMBER = 0x00080050


@dataclass(frozen=True, slots=True)
class Accession:
    """The number by which an order is asked for."""

    number: str

    def is_of(self, header: bytes | memoryview, transfer_syntax_uid: str) -> bool:
        """Whether a header names this order. Raises CannotUnderstand if it cannot be read so far."""
        wanted = self.number
        # As of a Patient ID: most headers are ruled out without being read.
        if wanted.isascii() and wanted.encode() not in bytes(header):
            return False
        return read_texts(header, transfer_syntax_uid, (_ACCESSION_NUMBER,)) == [wanted]

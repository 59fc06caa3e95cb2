"""Refusals of C-STORE requests: the only table from exception to DIMSE status.

PS3.4 B.2.3, Table B.2-1 (and GG.4.1 for non-patient objects): A7xx out of resources, A9xx data set
does not match SOP Class, Cxxx cannot understand. Senders come back after A7xx and give an object up
after the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hilum_preprocessing.header.element_index import BrokenDataSet
from hilum_preprocessing.header.structure import TooComplex

COMMENT_LENGTH = 64  # Error Comment (0000,0902) is LO, PS3.5 Table 6.2-1


class Refusal(Exception):
    """A request that must not be acknowledged.

    `comment`: the change that the sender should make, without patient data; on the wire it is cut
    to `COMMENT_LENGTH`. `advice`: the same as a sentence, empty: the comment.
    """

    def __init__(self, comment: str, advice: str = "") -> None:
        super().__init__(comment)
        self.comment = comment
        self.advice = advice or comment


class OutOfResources(Refusal):
    """A lack of resources, not a fault of the object: send it again later."""


class TooLarge(OutOfResources):
    """An object over the size limit: the same status, but sending it again does not help."""


class DataSetDoesNotMatch(Refusal):
    """The data set contradicts the command that carries it."""


class CannotUnderstand(Refusal):
    """The data set cannot be read, or does not identify itself."""


class HeaderTooComplex(CannotUnderstand):
    """The header has too many elements, items or levels; more bytes cannot help."""


class _Understood:
    """Raises faults in the bytes of a header as refusals."""

    def __enter__(self) -> None:
        """Begin to read."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Raise CannotUnderstand for BrokenDataSet, HeaderTooComplex for TooComplex."""
        if isinstance(error, TooComplex):
            words = str(error)
            sentence = f"{words[0].upper()}{words[1:]} before Pixel Data; send less"
            raise HeaderTooComplex(sentence) from None
        if isinstance(error, BrokenDataSet):
            raise CannotUnderstand(str(error)) from None


understood: Final = _Understood()


class SopClassNotNegotiated(Refusal):
    """The command names another SOP Class than its Presentation Context."""


class UnsupportedObject(Refusal):
    """An object of a class that is accepted only for own documents or rejection notes.

    The object is neither.
    """


@dataclass(frozen=True, slots=True)
class StatusResponse:
    """A failure as it goes on the wire."""

    status: int
    comment: str

    @property
    def label(self) -> str:
        """The status as in the standard's tables: `0xA700`."""
        return f"0x{self.status:04X}"


_STATUS: tuple[tuple[type[BaseException], int], ...] = (
    (OutOfResources, 0xA700),
    (DataSetDoesNotMatch, 0xA900),
    (SopClassNotNegotiated, 0x0122),  # PS3.7 9.1.1.1.9: Refused: SOP Class Not Supported
    # its class is not supported for documents of others; never 0xA7xx: sending it again does not
    # help
    (UnsupportedObject, 0x0122),
    (CannotUnderstand, 0xC000),
    # disk full, quota, read-only, input/output error: another time or another disk helps
    (OSError, 0xA700),
    (MemoryError, 0xA700),
    (Exception, 0xC000),
)


def answer(error: Exception) -> StatusResponse:
    """Return the status and the comment for an error."""
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    return StatusResponse(status, _comment(error)[:COMMENT_LENGTH])


def _comment(error: Exception) -> str:
    if isinstance(error, Refusal):
        return error.comment
    if isinstance(error, (OSError, MemoryError)):
        return "Storage is full or not writable; send again later"
    return "Internal error at the receiver; see its log"

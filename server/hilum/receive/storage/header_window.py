"""The first bytes of a data set received piece by piece, until its header can be read."""

from __future__ import annotations

from hilum.receive.headers.header import MAXIMUM_HEADER_BYTES, Header, read_header
from hilum.receive.statuses import CannotUnderstand, HeaderTooComplex
from hilum_preprocessing.header.structure import MAXIMUM_ELEMENTS

# The sizes are fixed, so that the result does not depend on how a sender cuts its data set. The
# first one holds nearly every header. An error in the last one is final.
_WINDOWS = (32 << 10, 256 << 10, 2 << 20, MAXIMUM_HEADER_BYTES + 1)


class Beginning:
    """A buffer that grows until the header is known. Pixel Data need not be complete.

    `most`: elements and items that the header may have.
    """

    def __init__(self, transfer_syntax_uid: str, most: int = MAXIMUM_ELEMENTS) -> None:
        self._transfer_syntax_uid = transfer_syntax_uid
        self._most = most
        self._windows = iter(_WINDOWS)
        self._window = next(self._windows)
        self._held = bytearray()
        self.header: Header | None = None

    @property
    def held(self) -> memoryview:
        """The bytes that were kept."""
        return memoryview(self._held)

    @property
    def missing(self) -> int:
        """The number of bytes until the next search for the header."""
        return self._window - len(self._held)

    def add(self, piece: memoryview) -> memoryview:
        """Keep the needed part of a piece, and return the rest.

        Raises CannotUnderstand when more bytes cannot help.
        """
        while piece and self.header is None:
            take = self._window - len(self._held)
            self._held += piece[:take]
            piece = piece[take:]
            if len(self._held) == self._window:
                self._look()
        return piece

    def end(self) -> Header:
        """Return the header of a complete data set. Raises CannotUnderstand."""
        if self.header is None:
            self.header = self._read()
        return self.header

    def _read(self) -> Header:
        return read_header(self.held, self._transfer_syntax_uid, self._most)

    def _look(self) -> None:
        larger = next(self._windows, None)
        try:
            found = self._read()
        except HeaderTooComplex:
            raise
        except CannotUnderstand:
            if larger is None:
                raise
        else:
            # Without Pixel Data in the window the header may continue after it.
            self.header = found if found.pixels_start is not None or larger is None else None
        self._window = larger or self._window

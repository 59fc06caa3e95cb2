"""transfer.c from Python: digests of a data set, and its fragments from socket to file."""

from __future__ import annotations

import ctypes
import os
import threading
from pathlib import Path
from typing import Final

from hilum.receive.upper_layer.provider import BorrowedBuffer
from hilum.store.archive.borrowed_file import BorrowedFile
from hilum.store.installation.digest_seed import written

PATH: Final = Path(__file__).with_name("transfer.so")
_INTERFACE: Final = 6
_DIGEST_BYTES: Final = 16
_PEER_HAS_CLOSED: Final = -1
_BEGINNING_BYTES: Final = 12
_LARGE_BYTES: Final = 1 << 20


_BothDigests = ctypes.c_char * (2 * _DIGEST_BYTES)


class _Transfer(ctypes.Structure):
    _fields_ = (
        ("buffer", ctypes.c_void_p),
        ("capacity", ctypes.c_int64),
        ("start", ctypes.c_int64),
        ("end", ctypes.c_int64),
        ("first", ctypes.c_int64),
        ("beginning", ctypes.c_char_p),
        ("fragment", ctypes.c_int64),
        ("limit", ctypes.c_int64),
        ("held", ctypes.c_void_p),
        ("half", ctypes.c_int64),
        ("held_bytes", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("written_out", ctypes.c_int64),
        ("write_out", ctypes.c_int64),
        ("aligned", ctypes.c_int64),
        ("digests", ctypes.c_void_p),
        ("taken", ctypes.c_int64),
        ("socket", ctypes.c_int32),
        ("file", ctypes.c_int32),
        ("socket_problem", ctypes.c_int32),
        ("file_problem", ctypes.c_int32),
        ("is_last", ctypes.c_int32),
    )


class TransferLibrary:
    """The compiled library, for any number of threads."""

    def __init__(self, path: Path) -> None:
        """Load the library.

        Raises OSError or AttributeError where the file is no such library, ValueError where it is
        of another version of Hilum.
        """
        # The first one releases the interpreter, the second does not: getting it back takes longer
        # than hashing a few kilobytes.
        free = ctypes.CDLL(str(path))
        quick = ctypes.PyDLL(str(path))
        if (interface := quick.hilum_transfer_interface()) != _INTERFACE:
            raise (
                ValueError("another version of Hilum")
                if interface
                else OSError("this processor has no AVX2")
            )
        quick.hilum_digests_bytes.restype = ctypes.c_int64
        self._transfer = free.hilum_transfer
        self._update_large = free.hilum_digests_update
        self._begin = quick.hilum_digests_begin
        self._update = quick.hilum_digests_update
        self._end = quick.hilum_digests_end
        self._transfer.argtypes = (ctypes.c_void_p,)
        self._transfer.restype = None
        self._begin.argtypes = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64, ctypes.c_int64)
        self._begin.restype = ctypes.c_void_p
        for update in (self._update, self._update_large):
            update.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
            update.restype = None
        self._end.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._end.restype = None
        self._memory = ctypes.c_char * int(quick.hilum_digests_bytes())
        self._own = threading.local()

    def digests(
        self, pixels_start: int | None, pixels_end: int | None, seed: int = 0
    ) -> CompiledDigests:
        """Return the digests of a data set whose Pixel Data is there.

        Without an end it runs to the end of the data set.
        """
        return CompiledDigests(self, pixels_start, pixels_end, seed)

    def begin(
        self, pixels_start: int | None, pixels_end: int | None, seed: int
    ) -> tuple[ctypes.Array[ctypes.c_char], int]:
        """Return memory, and an address in it that is valid as long as the memory exists."""
        memory = self._memory()
        start, end = (
            -1 if position is None else position for position in (pixels_start, pixels_end)
        )
        return memory, self._begin(memory, seed, start, end)

    def update(self, address: int, piece: bytes | memoryview) -> None:
        """Add the next bytes."""
        if not (count := len(piece)):
            return
        # ctypes gives no address of read-only memory without a copy
        is_writable = isinstance(piece, memoryview) and not piece.readonly
        update = self._update if count < _LARGE_BYTES else self._update_large
        update(
            address,
            ctypes.byref(ctypes.c_char.from_buffer(piece)) if is_writable else bytes(piece),
            count,
        )

    def end(self, address: int) -> tuple[str, str]:
        """Return the digests of the whole, and of Pixel Data; more bytes may follow."""
        both = _BothDigests()
        self._end(address, both, ctypes.byref(both, _DIGEST_BYTES))
        digits = both.raw.hex()
        return digits[: 2 * _DIGEST_BYTES], digits[2 * _DIGEST_BYTES :]

    def transfer(
        self,
        unread: BorrowedBuffer,
        fragment_bytes: int,
        limit: int,
        borrowed: BorrowedFile,
        digests: CompiledDigests,
    ) -> None:
        """Take the fragment in progress, similar PDUs, and the last one, up to `limit` bytes.

        Similar PDUs begin like `unread.beginning`; the limit is in bytes of the data set. An error
        of the socket is in `unread.problem`. Raises OSError of the file; the PDU in progress has
        then been read.
        """
        if unread.first > limit:
            raise ValueError(f"a fragment of {unread.first} bytes, where {limit} may come")
        if unread.beginning and len(unread.beginning) != _BEGINNING_BYTES:
            raise ValueError(
                f"{len(unread.beginning)} bytes are not the beginning of a P-DATA-TF PDU of one"
                " value"
            )
        held = self._held(2 * borrowed.writing.aligned_bytes)
        ctypes.memmove(held, borrowed.end, len(borrowed.end))
        # while it exists, the buffer's size cannot change
        buffer = ctypes.c_char.from_buffer(unread.buffer)
        said = _said(ctypes.addressof(buffer), unread, borrowed, digests)
        said.fragment = fragment_bytes
        said.limit = limit
        said.held = ctypes.addressof(held)
        self._transfer(ctypes.byref(said))
        unread.start = said.start
        unread.end = said.end
        unread.first = said.first
        unread.is_last = bool(said.is_last)
        borrowed.size_bytes = said.size
        borrowed.written_out = said.written_out
        borrowed.end = (
            ctypes.string_at(said.held + said.half * said.aligned, said.held_bytes)
            if said.held_bytes
            else b""
        )
        digests.size_bytes += said.taken
        unread.problem = _error(said.socket_problem)
        if (problem := _error(said.file_problem)) is not None:
            raise problem

    def _held(self, count: int) -> ctypes.Array[ctypes.c_char]:
        """Return the memory of this thread; the rest of an object is copied out after the call."""
        held = getattr(self._own, "held", None)
        if held is None or len(held) < count:
            held = self._own.held = ctypes.create_string_buffer(count)
        return held


class CompiledDigests:
    """The compiled counterpart of `digests.Digests`."""

    def __init__(
        self, library: TransferLibrary, pixels_start: int | None, pixels_end: int | None, seed: int
    ) -> None:
        self.library = library
        self._seed = seed
        self._memory, self.address = library.begin(pixels_start, pixels_end, seed)
        self.size_bytes = 0

    def update(self, piece: bytes | memoryview) -> None:
        """Add the next bytes."""
        self.library.update(self.address, piece)
        self.size_bytes += len(piece)

    def hexdigests(self) -> tuple[str, str]:
        """Return the digests of the data set, and of its Pixel Data."""
        whole, pixels = self.library.end(self.address)
        return written(whole, self._seed), written(pixels, self._seed)


def _said(
    buffer: int, unread: BorrowedBuffer, borrowed: BorrowedFile, digests: CompiledDigests
) -> _Transfer:
    """Return the input of C.

    It is the connection, whose buffer is at that address, the file and the digests.
    """
    return _Transfer(
        buffer=buffer,
        capacity=len(unread.buffer),
        start=unread.start,
        end=unread.end,
        first=unread.first,
        beginning=unread.beginning or None,
        held_bytes=len(borrowed.end),
        size=borrowed.size_bytes,
        written_out=borrowed.written_out,
        write_out=borrowed.writing.write_out_bytes,
        aligned=borrowed.writing.aligned_bytes,
        digests=digests.address,
        socket=unread.descriptor,
        file=borrowed.descriptor,
        is_last=unread.is_last,
    )


def _error(number: int) -> OSError | None:
    if number == _PEER_HAS_CLOSED:
        return ConnectionResetError()
    return OSError(number, os.strerror(number)) if number else None

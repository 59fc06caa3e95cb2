"""The choice between compiled code (transfer.c) and Python for receiving large data sets.

It concerns the bytes after the header. Python holds the interpreter for each PDU, and sixteen
associations wait for it: that takes up to two fifths more CPU (`make bench-ingest`). Where the
library is missing, or its results on known bytes differ from Python's, nothing else changes.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from functools import cache
from typing import Final

from hilum.dicom import pdu
from hilum.observability import telemetry
from hilum.receive.headers.header import Header
from hilum.receive.indexing.digests import Digests
from hilum.receive.storage import transfer_library
from hilum.receive.storage.transfer_library import CompiledDigests, TransferLibrary
from hilum.receive.upper_layer.provider import BorrowedBuffer
from hilum.store.archive.borrowed_file import BorrowedFile, WritePolicy
from hilum_preprocessing.resize.compiled_library import checked

_log = telemetry.logger("receive")

_FRAGMENT_BYTES = 1000
_LAST_BYTES = 700
_ALIGNED_BYTES = 4096
_BEGINNING: Final = pdu.beginning(_FRAGMENT_BYTES + 2, 1, 0)
_SEED: Final = 0x9E3779B97F4A7C15
_BUFFER_BYTES = 66 << 10  # so small that it is filled three times


def digests_of(header: Header, seed: int) -> Digests | CompiledDigests:
    """Return the digests of a data set with this header."""
    library, _ = loaded()
    make = Digests if library is None else library.digests
    return make(header.pixels_start, header.pixels_end, seed)


def warn_without() -> None:
    """Log a warning if large data sets are received in Python."""
    library, how = loaded()
    if library is None:
        _log.warning(
            "receive_not_compiled",
            problem=how,
            advice="install the packages of deploy/debian-packages.sh, then Hilum again",
        )


@cache
def loaded() -> tuple[TransferLibrary | None, str]:
    """Return the library, and a text on how large data sets are received."""
    library, how = checked(transfer_library.PATH, TransferLibrary, _problem)
    if library is None:
        return None, f"in Python: {how}"
    return library, f"by compiled code ({how})"


def _problem(library: TransferLibrary) -> str:
    """Return the fault of the library on known bytes, compared with Python."""
    size = 149 * _FRAGMENT_BYTES + _LAST_BYTES
    content = (bytes(number * 7919 % 251 for number in range(251)) * (size // 251 + 1))[:size]
    expected = Digests(1234, 90_000, _SEED)
    found = library.digests(1234, 90_000, _SEED)
    expected.update(content)
    found.update(content[:_FRAGMENT_BYTES])
    written, is_last = _transferred(library, found, content)
    if written != content:
        return "loses bytes"
    if not is_last:
        return "does not see the end"
    return "" if found.hexdigests() == expected.hexdigests() else "computes wrong digests"


def _transferred(
    library: TransferLibrary, digests: CompiledDigests, content: bytes
) -> tuple[bytes, bool]:
    """Return the bytes that are written, and whether the end was seen.

    All but the first fragment comes as PDUs over a socket.
    """
    ours, peer = socket.socketpair()
    with open(os.memfd_create("hilum"), "w+b", buffering=0) as file, ours:  # noqa: PTH123 - a descriptor
        file.write(content[:_FRAGMENT_BYTES])
        starts = range(_FRAGMENT_BYTES, len(content) - _LAST_BYTES, _FRAGMENT_BYTES)
        equal = b"".join(_BEGINNING + content[start : start + _FRAGMENT_BYTES] for start in starts)
        sent = (
            equal[len(_BEGINNING) :]
            + pdu.beginning(_LAST_BYTES + 2, 1, pdu.IS_LAST)
            + content[-_LAST_BYTES:]
            + pdu.RELEASE
        )
        # In a thread: a socket may hold less than all (net.core.wmem_default), and sending would
        # then block before the reading begins.
        threading.Thread(target=_send, args=(peer, sent), daemon=True).start()
        unread = BorrowedBuffer(
            ours.fileno(),
            bytearray(_BUFFER_BYTES),
            0,
            0,
            _FRAGMENT_BYTES,
            is_last=False,
            beginning=_BEGINNING,
        )
        borrowed = BorrowedFile(
            file.fileno(), _FRAGMENT_BYTES, b"", 0, WritePolicy(0, _ALIGNED_BYTES)
        )
        library.transfer(unread, _FRAGMENT_BYTES, len(content), borrowed, digests)
        if unread.problem is not None:
            raise unread.problem
        return os.pread(file.fileno(), borrowed.size_bytes + 1, 0) + borrowed.end, unread.is_last


def _send(peer: socket.socket, content: bytes) -> None:
    with peer, contextlib.suppress(OSError):  # a library that reads less has been detected
        peer.sendall(content)

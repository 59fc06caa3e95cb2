"""Whether data sets are received behind their headers by compiled code (transfer.c), or in Python as everything else is.

Python holds the interpreter for each PDU, and sixteen associations wait for it: that takes up to two fifths more CPU (`make bench-ingest`).
Where the library is missing, or does not do with known bytes what Python does, nothing else changes.
"""

from __future__ import annotations

import os
import socket
from functools import cache
from typing import Final

from hilum import telemetry
from hilum.receive import transfer_library
from hilum.receive.digests import Digests
from hilum.receive.header import Header
from hilum.receive.streaming.provider import Unread
from hilum.receive.transfer_library import CompiledDigests, Library
from hilum.store.outlet import Outlet, Writing

_log = telemetry.logger("receive")

_BEGINNING: Final = b"known bytes "
_FRAGMENT_BYTES, _ALIGNED_BYTES = 1000, 4096
_BUFFER_BYTES = 66 << 10  # so small that it is filled twice


def digests_of(header: Header) -> Digests | CompiledDigests:
    """Of a data set with this header."""
    library, _ = loaded()
    return Digests(header.pixels_start, header.pixels_end) if library is None else library.digests(header.pixels_start, header.pixels_end)


def warn_without() -> None:
    """Say in the log that large data sets are received in Python, if they are."""
    library, how = loaded()
    if library is None:
        _log.warning("receive_not_compiled", problem=how, advice="install the packages of deploy/debian-packages.sh, then Hilum again")


@cache
def loaded() -> tuple[Library | None, str]:
    """The library, and how large data sets are received in words."""
    name = transfer_library.PATH.name
    try:
        library = Library(transfer_library.PATH)
        problem = _problem(library, direct_io=False) or _problem(library, direct_io=True)
    except (OSError, AttributeError) as error:
        problem = f"cannot be loaded ({error})"
    except ValueError as error:
        problem = f"is of {error}"
    return (None, f"in Python: {name} {problem}") if problem else (library, f"by compiled code ({name})")


def _problem(library: Library, *, direct_io: bool) -> str:
    """Known bytes beside what Python makes of them."""
    content = bytes(number * 7919 % 251 for number in range(100 * _FRAGMENT_BYTES))
    first, last = content[:_FRAGMENT_BYTES], content[-_FRAGMENT_BYTES:]
    expected, found = Digests(1234, 90_000), library.digests(1234, 90_000)
    expected.update(content)
    found.update(first)
    written = _transferred(library, found, first, content[_FRAGMENT_BYTES:-_FRAGMENT_BYTES], direct_io=direct_io)
    found.update(last)
    if written != content[:-_FRAGMENT_BYTES]:
        return "loses bytes"
    return "" if found.hexdigests() == expected.hexdigests() else "computes wrong digests"


def _transferred(library: Library, digests: CompiledDigests, first: bytes, rest: bytes, *, direct_io: bool) -> bytes:
    """What is written of the rest behind the first, when it comes as PDUs over a socket."""
    ours, peer = socket.socketpair()
    with open(os.memfd_create("hilum"), "w+b", buffering=0) as file, ours, peer:  # noqa: PTH123 - a descriptor
        file.write(first)
        starts = range(0, len(rest), _FRAGMENT_BYTES)
        equal = b"".join(_BEGINNING + rest[start : start + _FRAGMENT_BYTES] for start in starts)
        peer.sendall(equal[len(_BEGINNING) :] + b"something else")
        unread = Unread(ours.fileno(), bytearray(_BUFFER_BYTES), 0, 0, _FRAGMENT_BYTES, is_last=False, beginning=_BEGINNING)
        outlet = Outlet(file.fileno(), len(first), b"", 0, Writing(0, _ALIGNED_BYTES, direct_io))
        library.transfer(unread, _FRAGMENT_BYTES, len(rest), outlet, digests)
        if unread.problem is not None:
            raise unread.problem
        return os.pread(file.fileno(), outlet.size_bytes + 1, 0) + outlet.end

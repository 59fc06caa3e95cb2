"""The PDUs of an established association (PS3.8 9.3.5 to 9.3.8)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

ASSOCIATE_RQ, ASSOCIATE_AC, ASSOCIATE_RJ, P_DATA_TF, RELEASE_RQ, RELEASE_RP, ABORT = range(1, 8)

HEADER = struct.Struct(">BxL")  # type, length of the rest
# of a Presentation Data Value: length from here on, context, message control header (annex E.2)
ITEM = struct.Struct(">LBB")
ITEM_LENGTH_BYTES = 4
IS_COMMAND = 1
IS_LAST = 2

RELEASE = struct.pack(">BxLxxxx", RELEASE_RQ, 4)
RELEASED = struct.pack(">BxLxxxx", RELEASE_RP, 4)

# PS3.8 9.3.8
_USER = 0
_PROVIDER = 2


def beginning(length: int, context_id: int, control: int) -> bytes:
    """Return a P-DATA-TF PDU of one Presentation Data Value, up to its fragment.

    `length`: the length in the value's header.
    """
    return HEADER.pack(P_DATA_TF, ITEM_LENGTH_BYTES + length) + ITEM.pack(
        length, context_id, control
    )


def user_abort() -> bytes:
    """Return an A-ABORT by the service user."""
    return struct.pack(">BxLxxBB", ABORT, 4, _USER, 0)


def provider_abort(reason: int) -> bytes:
    """Return an A-ABORT by the service provider after a protocol error (PS3.8 Table 9-26)."""
    return struct.pack(">BxLxxBB", ABORT, 4, _PROVIDER, reason)


def rejection(result: int, source: int, diagnostic: int) -> bytes:
    """Return an A-ASSOCIATE-RJ (PS3.8 9.3.4, Table 9-21)."""
    return struct.pack(">BxLxBBB", ASSOCIATE_RJ, 4, result, source, diagnostic)


def p_data(context_id: int, content: Iterable[bytes], *, is_command: bool) -> Iterator[bytes]:
    """Return P-DATA-TF PDUs of one Presentation Data Value each, header and fragment in turn.

    The last fragment is marked (annex E.2).
    """
    fragments = iter(content)
    fragment = next(fragments, b"")
    while True:
        following = next(fragments, None)
        control = (IS_COMMAND if is_command else 0) | (IS_LAST if following is None else 0)
        yield beginning(len(fragment) + 2, context_id, control)
        yield fragment
        if following is None:
            return
        fragment = following


def message(context_id: int, encoded: bytes, maximum_bytes: int, *, is_command: bool) -> bytes:
    """Return a command or a data set as P-DATA-TF PDUs (PS3.8 annex D.1).

    Each is of at most `maximum_bytes` (0: any).
    """
    size = max(1, maximum_bytes - ITEM.size if maximum_bytes else len(encoded))
    return b"".join(p_data(context_id, fragments(encoded, size), is_command=is_command))


def fragments(encoded: bytes, size: int) -> Iterator[bytes]:
    """Return the bytes in fragments of at most this size."""
    return (encoded[begin : begin + size] for begin in range(0, len(encoded), size))

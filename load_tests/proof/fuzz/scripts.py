"""Associations for the fuzz part.

Valid ones from a seed, and what `fuzz_mutations` makes of them.
"""

from __future__ import annotations

import functools
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from load_tests.proof.fuzz.mutations import spoil, spoil_stream
from load_tests.proof.fuzz.objects import EXPLICIT, IMPLICIT, JPEG, data_set
from testing.network import negotiation, wire

_CR = "1.2.840.10008.5.1.4.1.1.1"
_DX = "1.2.840.10008.5.1.4.1.1.1.1"
_SC = "1.2.840.10008.5.1.4.1.1.7"
_VERIFICATION = "1.2.840.10008.1.1"
KINDS = (
    (_DX, EXPLICIT),
    (_DX, IMPLICIT),
    (_CR, EXPLICIT),
    (_SC, EXPLICIT),
    (_DX, JPEG),
    (_VERIFICATION, IMPLICIT),
)
_STORED = (1, 1, 3, 5, 7, 9)  # contexts of `negotiation.request`, in the order of KINDS
_ECHO_CONTEXT = 11
_CANCEL_RQ = 0x0FFF
_FIND_RQ = 0x0020

RELEASE = struct.pack(">BxLxxxx", wire.RELEASE_RQ, 4)
ABORT = struct.pack(">BxLxxBB", wire.ABORT, 4, 0, 0)
_ENDINGS = (RELEASE, RELEASE, ABORT, b"")
_FRAGMENTS = (12, 100, 4_090, 16_378, 131_066, 1_048_570)
_WHOLE = 1 << 30
_SHARE_VALID = 0.1
_SHARE_SPOILT_CONTENT = 0.5
_SHARE_SPOILT_REQUEST = 0.1
_SHARE_DRIBBLED = 0.1
_SHARE_RESET = 0.15


@dataclass(frozen=True, slots=True)
class Script:
    """What a peer sends: the A-ASSOCIATE-RQ, then turns.

    `is_valid`: after each turn comes one response, before the next turn.

    `sends_bytes`: at most so many a call. `is_reset`: ends with RST in place of FIN.
    """

    request: bytes
    turns: tuple[bytes, ...]
    is_valid: bool
    sends_bytes: int = _WHOLE
    is_reset: bool = False

    @property
    def stream(self) -> bytes:
        """All that follows the A-ASSOCIATE-RQ, which is as long as its own Length field says.

        A spoilt one may have something behind it.
        """
        return self.request[6 + int.from_bytes(self.request[2:6], "big") :] + b"".join(self.turns)


def script(seed: int, number: int) -> Script:
    """One association in ten is valid, the others are spoilt in their contents, their PDUs, their request, or all of these."""
    chance = random.Random(f"{seed} {number}")
    if chance.random() < _SHARE_VALID:
        return valid(seed, number)
    is_spoilt = chance.random() < _SHARE_SPOILT_CONTENT
    pdus = [
        pdu for _ in range(chance.randint(1, 3)) for pdu in _message(chance, is_spoilt=is_spoilt)
    ] + [chance.choice(_ENDINGS)]
    stream = b"".join(pdus) if is_spoilt and chance.random() < 0.5 else spoil_stream(chance, pdus)
    request = spoil(chance, asked()) if chance.random() < _SHARE_SPOILT_REQUEST else asked()
    is_dribbled = chance.random() < _SHARE_DRIBBLED
    sends_bytes = chance.randint(1, 40) if is_dribbled else _WHOLE
    return Script(
        request,
        (stream,),
        is_valid=False,
        sends_bytes=sends_bytes,
        is_reset=chance.random() < _SHARE_RESET,
    )


def valid(seed: int, number: int) -> Script:
    """Requests that PS3.7 and PS3.8 allow, each answered before the next one.

    Sometimes the same object twice.
    """
    chance = random.Random(f"{seed} {number} valid")
    turns = [b"".join(_message(chance, is_spoilt=False)) for _ in range(chance.randint(1, 4))]
    turns += [chance.choice(turns)] if chance.random() < 0.3 else []
    return Script(asked(), (*turns, chance.choice(_ENDINGS)), is_valid=True)


@functools.cache
def asked() -> bytes:
    """The A-ASSOCIATE-RQ of every script before it is spoilt."""
    return negotiation.request("FUZZ", "HILUM", KINDS)[0]


def _message(chance: random.Random, *, is_spoilt: bool) -> list[bytes]:
    """PDUs of a C-ECHO or a C-STORE, sometimes behind a C-CANCEL."""
    cancelled = _request(chance, _CANCEL_RQ) if chance.random() < 0.1 else []
    roll = chance.random()
    if roll < 0.15:
        return cancelled + _request(chance, wire.C_ECHO_RQ)
    if is_spoilt and roll < 0.2:
        return cancelled + _request(chance, _FIND_RQ)
    return cancelled + _store(chance, is_spoilt=is_spoilt)


def _request(chance: random.Random, field: int) -> list[bytes]:
    command = wire.command_set(
        {
            wire.AFFECTED_SOP_CLASS_UID: _VERIFICATION,
            wire.COMMAND_FIELD: field,
            wire.MESSAGE_ID: chance.randrange(1, 65_536),
            wire.DATA_SET_TYPE: wire.NO_DATA_SET,
        }
    )
    return _pdus(chance, _ECHO_CONTEXT, command, is_command=True)


def _store(chance: random.Random, *, is_spoilt: bool) -> list[bytes]:
    context_id = chance.choice(_STORED)
    sop_class, syntax = KINDS[context_id // 2]
    uid = f"1.2.3.{chance.getrandbits(100)}"  # so long that a flipped digit names no other object
    command = wire.command_set(
        {
            wire.AFFECTED_SOP_CLASS_UID: sop_class,
            wire.COMMAND_FIELD: wire.C_STORE_RQ,
            wire.MESSAGE_ID: chance.randrange(1, 65_536),
            wire.PRIORITY: chance.randrange(3),
            wire.DATA_SET_TYPE: 0,
            wire.AFFECTED_SOP_INSTANCE_UID: uid,
        }
    )
    content = data_set(chance, sop_class, uid, syntax)
    if is_spoilt:
        command = spoil(chance, command) if chance.random() < 0.4 else command
        content = spoil(chance, content) if chance.random() < 0.8 else content
    return _pdus(chance, context_id, command, is_command=True) + _pdus(
        chance, context_id, content, is_command=False
    )


def _pdus(
    chance: random.Random, context_id: int, content: bytes, *, is_command: bool
) -> list[bytes]:
    """P-DATA-TF PDUs of one to three PDVs; now and then the last PDV is empty."""
    size = chance.choice(_FRAGMENTS)
    size = max(size, len(content) // 50)
    parts = [content[begin : begin + size] for begin in range(0, len(content), size)] or [b""]
    parts += [b""] if chance.random() < 0.1 else []
    items = [
        _pdv(context_id, part, is_command=is_command, is_last=number == len(parts))
        for number, part in enumerate(parts, 1)
    ]
    return [_p_data(group) for group in _groups(chance, items)]


def _groups(chance: random.Random, items: Sequence[bytes]) -> list[Sequence[bytes]]:
    count = chance.randint(1, 3)
    return [items[begin : begin + count] for begin in range(0, len(items), count)]


def _pdv(context_id: int, content: bytes, *, is_command: bool, is_last: bool) -> bytes:
    return struct.pack(">LBB", len(content) + 2, context_id, is_command | is_last << 1) + content


def _p_data(items: Sequence[bytes]) -> bytes:
    content = b"".join(items)
    return struct.pack(">BxL", wire.P_DATA_TF, len(content)) + content

"""How a valid association is spoilt.

Bytes of a command, a data set or a request, and the PDUs of a stream.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Mapping, Sequence

_EDGES = (
    0,
    1,
    2,
    5,
    6,
    0x7F,
    0x80,
    0xFF,
    0x100,
    0x7FFF,
    0xFFFE,
    0xFFFF,
    0x10000,
    0x7FFFFFFF,
    0xFFFFFFFE,
    0xFFFFFFFF,
)
_HEADER_BYTES = 12  # of a PDU and of its first PDV: where what counts stands
_LONGEST_INSERTION = 64


def spoil(chance: random.Random, content: bytes) -> bytes:
    """One to three changes, most of them near the beginning."""
    for _ in range(chance.choice((1, 1, 2, 3))):
        content = chance.choice(list(BYTES.values()))(chance, content)
    return content


def spoil_stream(chance: random.Random, pdus: Sequence[bytes]) -> bytes:
    """One to three changes to the order and the headers of PDUs; perhaps cut off anywhere."""
    changed = list(pdus)
    for _ in range(chance.choice((1, 1, 2, 3))):
        change = chance.choice(list(PDUS.values()))
        change(chance, changed)
    return b"".join(changed)


def _place(chance: random.Random, content: bytes) -> int:
    near = min(len(content), 400)
    return chance.randrange((near if chance.random() < 0.8 else len(content)) + 1)


def _flip(chance: random.Random, content: bytes) -> bytes:
    if not content:
        return b"\0"
    at = min(_place(chance, content), len(content) - 1)
    return content[:at] + bytes((content[at] ^ 1 << chance.randrange(8),)) + content[at + 1 :]


def _cut(chance: random.Random, content: bytes) -> bytes:
    return content[: chance.randrange(len(content) + 1)]


def _remove(chance: random.Random, content: bytes) -> bytes:
    at = _place(chance, content)
    return content[:at] + content[at + chance.randint(1, 20) :]


def _insert(chance: random.Random, content: bytes) -> bytes:
    at = _place(chance, content)
    return content[:at] + chance.randbytes(chance.randint(1, _LONGEST_INSERTION)) + content[at:]


def _repeat(chance: random.Random, content: bytes) -> bytes:
    at = _place(chance, content)
    return content[:at] + content[at : at + chance.randint(1, 200)] + content[at:]


def _edge(chance: random.Random, content: bytes) -> bytes:
    """A number that some code may not expect, of 2 or 4 bytes, in either order."""
    at = _place(chance, content) // 2 * 2
    value = chance.choice(_EDGES)
    number = (
        struct.pack(chance.choice("<>") + chance.choice("LH"), value)
        if value < 1 << 16
        else struct.pack(chance.choice(("<L", ">L")), value)
    )
    return content[:at] + number + content[at + len(number) :]


def _replace(chance: random.Random, content: bytes) -> bytes:
    return chance.choice(
        (
            b"",
            chance.randbytes(len(content)),
            b"GET / HTTP/1.1\r\n\r\n",
            bytes(3_000),
            b"\xff" * 3_000,
        )
    )


BYTES: Mapping[str, Callable[[random.Random, bytes], bytes]] = {
    "flip a bit": _flip,
    "cut off": _cut,
    "remove": _remove,
    "insert": _insert,
    "repeat": _repeat,
    "edge of a number": _edge,
    "replace": _replace,
}


def _any(chance: random.Random, pdus: Sequence[bytes]) -> int:
    return chance.randrange(len(pdus)) if pdus else 0


def _change(
    chance: random.Random, pdus: list[bytes], at_byte: int, layout: str, value: int
) -> None:
    """Overwrite a field of some PDU that has it."""
    at = _any(chance, pdus)
    if pdus and len(pdus[at]) >= at_byte + struct.calcsize(layout):
        field = struct.pack(layout, value)
        pdus[at] = pdus[at][:at_byte] + field + pdus[at][at_byte + len(field) :]


def _near(chance: random.Random, pdus: Sequence[bytes]) -> int:
    """A length that is a little wrong, or very."""
    true = len(pdus[_any(chance, pdus)]) if pdus else 0
    return max(0, true + chance.randint(-14, 6)) if chance.random() < 0.6 else chance.choice(_EDGES)


def _lose(chance: random.Random, pdus: list[bytes]) -> None:
    if pdus:
        del pdus[_any(chance, pdus)]


def _double(chance: random.Random, pdus: list[bytes]) -> None:
    if pdus:
        pdus.insert(_any(chance, pdus), chance.choice(pdus))


def _swap(chance: random.Random, pdus: list[bytes]) -> None:
    if pdus:
        one = _any(chance, pdus)
        other = _any(chance, pdus)
        pdus[one], pdus[other] = pdus[other], pdus[one]


def _intrude(chance: random.Random, pdus: list[bytes]) -> None:
    """A PDU of another state, of no type, or the end, between any two."""
    length = chance.choice((0, 4, 4, 4, 68, 200))
    pdus.insert(
        _any(chance, pdus),
        struct.pack(">BxL", chance.choice((1, 2, 3, 5, 5, 6, 7, 7, 8, 255)), length)
        + chance.randbytes(length),
    )


def _end_early(chance: random.Random, pdus: list[bytes]) -> None:
    """Cut at any byte."""
    whole = b"".join(pdus)
    pdus[:] = [whole[: chance.randrange(len(whole) + 1)]]


def _damage(chance: random.Random, pdus: list[bytes]) -> None:
    if pdus:
        at = _any(chance, pdus)
        pdus[at] = _flip(chance, pdus[at][:_HEADER_BYTES]) + pdus[at][_HEADER_BYTES:]


PDUS: Mapping[str, Callable[[random.Random, list[bytes]], None]] = {
    "lose a PDU": _lose,
    "double a PDU": _double,
    "swap two PDUs": _swap,
    "intrude": _intrude,
    "cut anywhere": _end_early,
    "damage a header": _damage,
    "PDU type": lambda chance, pdus: _change(chance, pdus, 0, ">B", chance.randrange(10)),
    "PDU length": lambda chance, pdus: _change(chance, pdus, 2, ">L", _near(chance, pdus)),
    "PDV length": lambda chance, pdus: _change(chance, pdus, 6, ">L", _near(chance, pdus)),
    "context": lambda chance, pdus: _change(
        chance, pdus, 10, ">B", chance.choice((0, 1, 2, 3, 5, 11, 13, 255))
    ),
    "control": lambda chance, pdus: _change(
        chance, pdus, 11, ">B", chance.choice((0, 1, 2, 3, 4, 255))
    ),
}

"""Two pictures with one xxh3-128, made by hand.

What an attacker can do where the digest has no secret seed.

A lane of XXH3 adds the product of both halves of (data XOR secret) to its sum, and the data itself
to its neighbour's.
Where the low half of the data is that of the secret, the product is 0 whatever the high half is. So
the high halves of two stripes of a block may be moved against each other, and every sum stays.
"""

from __future__ import annotations

from tests.support.ledger.storing import data_set, element, uid_element

_BLOCK, _STRIPE, _LANE = 1024, 64, 8
# The first bytes of XXH3's public secret, as far as two stripes read it.
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e5788"
    "25ad07dccff7221b8084674f743248ee03590e6813a264c3c2852bb91c300cb"
)


def colliding_pixels(blocks: int = 4) -> tuple[bytes, bytes]:
    """Two that begin at a block of whatever is digested."""
    one, other = (
        bytearray(bytes(range(256)) * (4 * blocks + 1)),
        bytearray(bytes(range(256)) * (4 * blocks + 1)),
    )
    for block in range(0, blocks * _BLOCK, _BLOCK):
        for lane in range(0, _STRIPE, _LANE):
            for stripe, moved in ((0, 1), (1, -1)):
                at = block + stripe * _STRIPE + lane
                for pixels, high in (
                    (one, 0x5000_5000),
                    (other, 0x5000_5000 + moved * 0x0FFF_0FFF),
                ):
                    low = _SECRET[stripe * 8 + lane : stripe * 8 + lane + 4]
                    pixels[at : at + _LANE] = low + high.to_bytes(4, "little")
    return bytes(one), bytes(other)


def colliding_data_sets(uid: str, patient_id: bytes = b"P1") -> tuple[bytes, bytes]:
    """Of one image, whose Pixel Data begins at a block of the data set, too."""
    one, other = colliding_pixels()
    padding = -len(_padded(uid, patient_id, b"", b"")) % _BLOCK
    return _padded(uid, patient_id, bytes(padding), one), _padded(
        uid, patient_id, bytes(padding), other
    )


def _padded(uid: str, patient_id: bytes, padding: bytes, pixels: bytes) -> bytes:
    """With padding in a private element before Pixel Data."""
    made = data_set(uid, patient_id=patient_id, pixels=pixels)
    at = made.index(b"\xe0\x7f\x10\x00")
    private = element(0x00110010, b"LO", b"PADDING ") + element(0x00111001, b"UN", padding)
    return (
        made[: at - len(_series(uid)) - len(_study(uid))]
        + private
        + made[at - len(_series(uid)) - len(_study(uid)) :]
    )


def _study(uid: str) -> bytes:
    return uid_element(0x0020000D, "1.2.3")


def _series(uid: str) -> bytes:
    return uid_element(0x0020000E, "1.2.3.1")

"""The main header and the tile-parts of JPEG 2000 codestreams, read before a decoder.

ISO/IEC 15444-1 annex A. Torch-free.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple

from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header.encapsulation import END_MARKER, Codestream, end_of
from hilum_preprocessing.header.pixel_header import PixelHeader

_START: Final = b"\xff\x4f\xff\x51"  # SOC, and SIZ which must follow it (A.5.1)
_JP2: Final = b"\x00\x00\x00\x0cjP  "
_BOX_SEARCH_BYTES: Final = 1 << 20
_SIZ: Final = struct.Struct(">HHIIIIIIIIH")
_SOT: Final = struct.Struct(">HHIBB")
_SIZ_MARKER: Final = 0x51
_COD_MARKER: Final = 0x52
_SOT_MARKER: Final = 0x90
_MOST_SEGMENTS: Final = 4096  # of a main header
_MOST_TILE_PARTS: Final = 100_000  # an empty one takes 14 bytes of a file, and hundreds in memory
_MOST_PADDING: Final = 4
_NO_END: Final = "tile-parts do not end at a JPEG 2000 end marker"
_SEARCH_BYTES: Final = 128  # behind an end marker, for the start of another codestream
_PSOT: Final = 6  # place of the length in a tile-part header
# Read as a packet header, these bytes announce content that cannot exist. A decoder that still
# waits for a packet refuses the codestream.
_BEHIND: Final = b"\xff\x7f" * 8


@dataclass(frozen=True, slots=True)
class J2kHeader:
    """SIZ (A.5.1) and COD (A.6.1).

    `levels` of decomposition; `has_mct`: components were turned into luminance and chrominance.
    `is_even`: the picture begins at the grid's origin, so that every band's first sample is on the
    first pixel.
    """

    rows: int
    columns: int
    components: int
    precision: int
    is_signed: bool
    tiles: int
    is_even: bool
    levels: int
    has_mct: bool
    is_reversible: bool


def read_header(codestream: Codestream) -> J2kHeader:
    """Raises NotAnalysable: no JPEG 2000 codestream, or components that differ (undecodable)."""
    size: tuple[bytes, bytes] | None = None
    for marker, content in _main_header(codestream):
        if marker == _SIZ_MARKER and len(content) >= _SIZ.size + 1:
            size = content[: _SIZ.size], content[_SIZ.size :]
        elif marker == _COD_MARKER and size is not None and len(content) >= 12:
            return _header(*size, content)
    raise NotAnalysable(Reason.UNDECODABLE, "no JPEG 2000 main header")


def raw(codestream: Codestream) -> Codestream:
    """Without the JP2 boxes that some writers leave around it, against PS3.5 A.4.4."""
    if bytes(codestream[:8]) != _JP2:
        return codestream
    start = bytes(codestream[:_BOX_SEARCH_BYTES]).find(_START)
    if start < 0:
        raise NotAnalysable(Reason.UNDECODABLE, "JP2 boxes without a codestream")
    return memoryview(codestream)[start:]


def compare(found: J2kHeader, header: PixelHeader) -> None:
    """Raises NotAnalysable (codestream_mismatch) where header and codestream differ.

    Asked before the decoder allocates memory for the codestream's own sizes.
    """
    seen = (found.rows, found.columns, found.components)
    if (
        seen != (header.rows, header.columns, header.samples)
        or found.precision > header.bits_allocated
    ):
        detail = (
            f"codestream {found.rows} x {found.columns}, {found.precision} bits, {found.components}"
            " components; "
        )
        raise NotAnalysable(
            Reason.CODESTREAM_MISMATCH,
            detail + f"header {header.rows} x {header.columns}, {header.bits_stored} bits",
        )


class TilePart(NamedTuple):
    """The tile of a tile-part, and its place in the codestream.

    `is_open`: its length is 0, so that it reaches to the end marker. `promised`: the number of
    tile-parts of its tile (TNsot); 0 where it does not say.
    """

    tile: int
    start: int
    stop: int
    is_open: bool
    promised: int


def tile_parts(codestream: Codestream, found: J2kHeader) -> list[TilePart]:
    """Raises NotAnalysable (truncated_pixel_data) where tile-parts are missing.

    They must follow each other by their lengths (A.4.2) up to the end marker. Each tile must have
    one, and as many as it says (TNsot): a decoder makes one grey of a tile that is missing, and
    reports success. Raises excess_pixel_data for another codestream behind the first one.
    """
    parts = list(_tile_parts(codestream, found.tiles))
    there = Counter(part.tile for part in parts)
    if len(there) < found.tiles:
        raise NotAnalysable(Reason.TRUNCATED_PIXEL_DATA, f"{len(there)} of {found.tiles} tiles")
    if any(there[part.tile] < part.promised for part in parts):
        raise NotAnalysable(Reason.TRUNCATED_PIXEL_DATA, "a tile that lacks tile-parts")
    return parts


def _tile_parts(codestream: Codestream, tiles: int) -> Iterator[TilePart]:
    position = _first_tile_part(codestream)
    for number in count():
        if _ends_at(codestream, position):
            return
        part = _tile_part(codestream, position, tiles)
        if number == _MOST_TILE_PARTS:
            raise NotAnalysable(Reason.UNDECODABLE, f"more than {_MOST_TILE_PARTS} tile-parts")
        if part.stop <= position:
            raise NotAnalysable(Reason.TRUNCATED_PIXEL_DATA, _NO_END)
        yield part
        position = part.stop


def _ends_at(codestream: Codestream, position: int) -> bool:
    """Whether the end marker stands there, or behind a few bytes of padding.

    Some writers make its place even.
    """
    behind = bytes(codestream[position : position + _MOST_PADDING + _SEARCH_BYTES])
    marker = behind if behind.startswith(END_MARKER) else behind.lstrip(b"\x00")
    if not marker.startswith(END_MARKER) or len(behind) - len(marker) > _MOST_PADDING:
        return False
    if _START in marker:
        raise NotAnalysable(
            Reason.EXCESS_PIXEL_DATA, "another JPEG 2000 codestream behind the first one"
        )
    return True


def without_padding(codestream: Codestream, parts: Sequence[TilePart]) -> Codestream:
    """The same with its end marker right behind the last tile-part, and nothing after it."""
    stop = parts[-1].stop
    if bytes(codestream[stop : stop + len(END_MARKER)]) == END_MARKER:
        return codestream[: stop + len(END_MARKER)]
    return bytes(codestream[:stop]) + END_MARKER


def extended(codestream: Codestream, parts: Sequence[TilePart]) -> bytes:
    """The same with bytes behind each tile's last packet.

    A decoder passes them by, unless it still waits for a packet.

    A codestream that was cut between two packets is otherwise taken for a whole one, the details
    that they hold being none.
    """
    data = memoryview(codestream)
    last = {part.tile: part for part in parts}
    pieces: list[Codestream] = [data[: parts[0].start]]
    for part in parts:
        pieces += (
            _with_bytes_behind(data[part.start : part.stop], part)
            if last[part.tile] is part
            else [data[part.start : part.stop]]
        )
    return b"".join((*pieces, END_MARKER))


def _with_bytes_behind(part: memoryview, place: TilePart) -> list[Codestream]:
    if place.is_open:
        return [part, _BEHIND]
    return [part[:_PSOT], (len(part) + len(_BEHIND)).to_bytes(4, "big"), part[_PSOT + 4 :], _BEHIND]


def _tile_part(codestream: Codestream, position: int, tiles: int) -> TilePart:
    """The tile-part whose header stands there (SOT, A.4.2).

    Raises NotAnalysable for none of this picture: OpenJPH 0.26 crashes on it.
    """
    if position + 2 + _SOT.size > len(codestream) or codestream[position + 1] != _SOT_MARKER:
        raise NotAnalysable(Reason.TRUNCATED_PIXEL_DATA, _NO_END)
    segment, tile, length, _, promised = _SOT.unpack_from(codestream, position + 2)
    if segment != _SOT.size or tile >= tiles or 0 < length < 2 + _SOT.size:
        raise NotAnalysable(Reason.UNDECODABLE, "a tile-part header that contradicts itself")
    stop = position + length if length else end_of(codestream) - len(END_MARKER)
    return TilePart(tile, position, stop, is_open=not length, promised=promised)


class _Siz(NamedTuple):
    """The SIZ segment up to its components (A.5.1): the grid, the picture and the tiles on it."""

    length: int
    capabilities: int
    x1: int
    y1: int
    x0: int
    y0: int
    tile_width: int
    tile_height: int
    tile_x0: int
    tile_y0: int
    components: int

    @property
    def is_covered(self) -> bool:
        """B.3: the first tile holds the picture's first pixel.

        OpenJPH 0.26 divides by a tile size of 0 and loops where this does not hold.
        """
        return self.tile_x0 <= self.x0 < min(
            self.x1, self.tile_x0 + self.tile_width
        ) and self.tile_y0 <= self.y0 < min(self.y1, self.tile_y0 + self.tile_height)

    @property
    def tiles(self) -> int:
        """Their number; the last ones may reach beyond the picture."""
        across = -(-(self.x1 - self.tile_x0) // self.tile_width)
        down = -(-(self.y1 - self.tile_y0) // self.tile_height)
        return across * down


def _header(size: bytes, components: bytes, cod: bytes) -> J2kHeader:
    """From SIZ, its components (Ssiz, XRsiz, YRsiz of each), and COD with its length."""
    siz = _Siz._make(_SIZ.unpack(size))
    if siz.components < 1 or components != (components[:1] + b"\x01\x01") * siz.components:
        raise NotAnalysable(Reason.UNDECODABLE, "JPEG 2000 components that differ in depth or size")
    if not siz.is_covered:
        raise NotAnalysable(Reason.UNDECODABLE, "JPEG 2000 tiles that do not cover the picture")
    return J2kHeader(
        rows=siz.y1 - siz.y0,
        columns=siz.x1 - siz.x0,
        components=siz.components,
        precision=(components[0] & 0x7F) + 1,
        is_signed=components[0] >= 0x80,
        tiles=siz.tiles,
        is_even=not (siz.x0 or siz.y0 or siz.tile_x0 or siz.tile_y0),
        levels=cod[7],
        has_mct=cod[6] == 1,
        is_reversible=cod[11] == 1,
    )


def _main_header(codestream: Codestream) -> Iterator[tuple[int, bytes]]:
    """(marker, segment with its length) up to the first tile-part."""
    for position, marker in _markers(codestream):
        yield marker, bytes(codestream[position + 2 : position + 2 + _length(codestream, position)])


def _first_tile_part(codestream: Codestream) -> int:
    return max(
        (position + 2 + _length(codestream, position) for position, _ in _markers(codestream)),
        default=2,
    )


def _markers(codestream: Codestream) -> Iterator[tuple[int, int]]:
    if bytes(codestream[:4]) != _START:
        raise NotAnalysable(Reason.UNDECODABLE, "no JPEG 2000 start marker")
    position = 2
    for _ in range(_MOST_SEGMENTS):
        if (
            position + 4 > len(codestream)
            or codestream[position] != 0xFF
            or codestream[position + 1] == _SOT_MARKER
        ):
            return
        yield position, codestream[position + 1]
        position += 2 + _length(codestream, position)


def _length(codestream: Codestream, position: int) -> int:
    return max(2, int.from_bytes(codestream[position + 2 : position + 4], "big"))

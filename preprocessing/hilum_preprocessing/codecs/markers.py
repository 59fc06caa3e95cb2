"""The marker segments of JPEG and JPEG-LS codestreams, read before a decoder. Torch-free.

ISO/IEC 10918-1 annex B.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hilum_preprocessing.codecs.huffman import Table, tables_of
from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header.encapsulation import END_MARKER, Codestream, end_of
from hilum_preprocessing.header.pixel_header import PixelHeader

BASELINE: Final = 0xC0
EXTENDED: Final = 0xC1
PROGRESSIVE: Final = 0xC2
LOSSLESS: Final = 0xC3
JPEG_LS: Final = 0xF7

_START_OF_IMAGE: Final = b"\xff\xd8"
_EOI: Final = 0xD9
_START_OF_SCAN: Final = 0xDA
_RESTART_INTERVAL: Final = 0xDD
_HUFFMAN_TABLES: Final = 0xC4
_JFIF: Final = 0xE0
_ADOBE: Final = 0xEE
# Table B.1: C0 to CF are frame headers, except DHT (C4), JPG (C8) and DAC (CC). F7 is JPEG-LS
# (ISO/IEC 14495-1 C.1).
_FRAMES: Final = (frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}) | {JPEG_LS}
_FRAME: Final = -1
_COEFFICIENTS: Final = 64
_ALL_BITS: Final = 16  # of a coefficient that no scan has sent yet
_LEAST_SCAN_BYTES: Final = 10  # the marker, and a header of one component
_MOST_MARKERS: Final = 100_000  # with bytes of tables that look like markers
_FILL_BYTES: Final = 64
_MOST_ZEROS: Final = 4
_MOST_SEGMENTS: Final = 256  # real headers hold a dozen; each may state tables of 64 KiB


@dataclass(frozen=True, slots=True)
class JpegHeader:
    """Frame header (B.2.2), and the place of the entropy-coded data of the first scan.

    `scan`, up to the end marker. `rows_at`: position of the two bytes that hold the number of rows.
    `scan_parameter`: of lossless JPEG the predictor, and `point_transform` the bits that its
    samples were shifted down by (H.1.2.1). `tables`: Huffman tables by class and destination;
    `scan_tables`: which of them the scan's first component uses.
    """

    marker: int
    precision: int
    rows: int
    columns: int
    components: int
    rows_at: int
    restart_interval: int
    scan: slice
    scan_components: int
    scan_parameter: int
    point_transform: int
    scan_tables: int
    tables: Mapping[int, Table]
    has_colour_marker: bool


def read_header(codestream: Codestream) -> JpegHeader:
    """Raises NotAnalysable: no JPEG (undecodable), or no end marker (truncated_pixel_data)."""
    if bytes(codestream[:2]) != _START_OF_IMAGE:
        raise NotAnalysable(Reason.UNDECODABLE, "no JPEG start marker")
    end = _end(codestream)
    seen: dict[int, int] = {}
    tables: dict[int, Table] = {}
    for marker, start, stop in islice(segments(codestream), _MOST_SEGMENTS):
        seen[_FRAME if marker in _FRAMES else marker] = start
        if marker == _HUFFMAN_TABLES:
            tables |= tables_of(bytes(codestream[start + 2 : stop]))
        if marker == _START_OF_SCAN and _FRAME in seen and start + 8 <= stop <= end:
            return _header(codestream, seen, slice(stop, end), tables)
    raise NotAnalysable(Reason.UNDECODABLE, "no JPEG frame header")


def _header(
    codestream: Codestream, seen: Mapping[int, int], scan: slice, tables: Mapping[int, Table]
) -> JpegHeader:
    """From where the lengths of the segments stand."""
    frame = seen[_FRAME]
    first_scan = seen[_START_OF_SCAN]
    restart = seen.get(_RESTART_INTERVAL)
    return JpegHeader(
        marker=codestream[frame - 1],
        precision=codestream[frame + 2],
        rows=_number(codestream, frame + 3),
        columns=_number(codestream, frame + 5),
        components=codestream[frame + 7],
        rows_at=frame + 3,
        restart_interval=0 if restart is None else _number(codestream, restart + 2),
        scan=scan,
        scan_components=codestream[first_scan + 2],
        scan_parameter=codestream[scan.start - 3],
        point_transform=codestream[scan.start - 1] & 0x0F,
        scan_tables=codestream[first_scan + 4],
        tables=tables,
        has_colour_marker=_JFIF in seen or _ADOBE in seen,
    )


def _number(codestream: Codestream, at: int) -> int:
    """B.1.1.1: numbers of two bytes, the most significant one first."""
    return int.from_bytes(codestream[at : at + 2], "big")


def _end(codestream: Codestream) -> int:
    """Where the data before the end marker end."""
    end = end_of(codestream)
    if not end:
        raise NotAnalysable(Reason.TRUNCATED_PIXEL_DATA, "no JPEG end marker")
    # B.1.1.2: any marker may be preceded by fill bytes FF.
    return len(bytes(codestream[: end - len(END_MARKER)][-_FILL_BYTES:]).rstrip(b"\xff")) + max(
        0, end - len(END_MARKER) - _FILL_BYTES
    )


def without_zeros(codestream: Codestream, scan: slice) -> Iterator[slice]:
    """The scan without one, two … zero bytes before the end marker.

    Some writers put them there, so that the scan ends at an even place.
    """
    for stop in range(scan.stop - 1, max(scan.start, scan.stop - _MOST_ZEROS) - 1, -1):
        if (
            codestream[stop] != 0 or codestream[stop - 1] == 0xFF
        ):  # B.1.1.5: a stuffed zero belongs to the data
            return
        yield slice(scan.start, stop)


def segments(codestream: Codestream) -> Iterator[tuple[int, int, int]]:
    """(marker, start of its length, stop) of each segment up to the first scan header."""
    position = 2
    while position + 4 <= len(codestream) and codestream[position] == 0xFF:
        marker = codestream[position + 1]
        if marker == 0xFF:  # B.1.1.2: any marker may be preceded by fill bytes FF
            position += 1
            continue
        stop = position + 2 + _number(codestream, position + 2)
        if stop > len(codestream) or (marker in _FRAMES and stop - position < 10):
            return
        yield marker, position + 2, stop
        if marker == _START_OF_SCAN:
            return
        position = stop


def compare(found: JpegHeader, header: PixelHeader, precisions: range) -> None:
    """Raises NotAnalysable (codestream_mismatch) where header and codestream differ.

    PS3.5 8.2.1: the codestream decides and the attributes shall agree. Which of them is wrong
    cannot be known, so neither is believed.
    """
    seen = (found.rows, found.columns, found.components)
    if seen != (header.rows, header.columns, header.samples) or found.precision not in precisions:
        detail = (
            f"codestream {found.rows} x {found.columns}, {found.precision} bits, {found.components}"
            " components; "
        )
        raise NotAnalysable(
            Reason.CODESTREAM_MISMATCH,
            detail + f"header {header.rows} x {header.columns}, {header.bits_stored} bits",
        )


def require_one_image(codestream: Codestream, scan: slice) -> None:
    """Raises NotAnalysable (excess_pixel_data) for another codestream behind the first one.

    A decoder ignores it.
    """
    data = bytes(codestream[scan])
    if (end := data.find(END_MARKER)) >= 0 and _START_OF_IMAGE + b"\xff" in data[end:]:
        raise NotAnalysable(
            Reason.EXCESS_PIXEL_DATA, "another JPEG codestream behind the first one"
        )


def check_entropy_coded_data(codestream: Codestream, found: JpegHeader) -> None:
    """Raises NotAnalysable (undecodable, excess_pixel_data) for a marker inside a scan.

    It is damage, or another picture. libjpeg takes any of them for the end of the scan, fills the
    rest with grey, and reports success.
    """
    markers = _markers_within(codestream, found.scan)
    is_one_scan = found.scan_components == found.components and found.marker != PROGRESSIVE
    is_restart = _is_restart(markers)
    others = markers[~is_restart]
    has_end = np.any(others == _EOI)
    if has_end:
        require_one_image(codestream, found.scan)
    if has_end or (is_one_scan and len(others)):
        raise NotAnalysable(Reason.UNDECODABLE, "a marker inside the entropy-coded data")
    if is_one_scan:
        _check_restarts(markers[is_restart], found)


def _check_restarts(restarts: NDArray[np.uint8], found: JpegHeader) -> None:
    """Restart markers count modulo 8 (Table B.1)."""
    if np.any(restarts != 0xD0 + np.arange(len(restarts)) % 8):
        raise NotAnalysable(Reason.UNDECODABLE, "restart markers are missing or out of order")
    expected = _expected_restarts(found)
    if found.components == 1 and len(restarts) != expected:
        raise NotAnalysable(
            Reason.UNDECODABLE, f"{len(restarts)} restart markers, {expected} expected"
        )


def check_scans(codestream: Codestream, found: JpegHeader) -> None:
    """Raises NotAnalysable (truncated_pixel_data) for an incomplete set of scans.

    They must hold each coefficient of each component to its last bit (G.1.1.1). libjpeg takes
    missing ones for zeros: a progressive picture without half of its scans is blurred, and no error
    is reported.
    """
    left: dict[int, list[int]] = {}
    for number, scan in enumerate(_scans(codestream, found)):
        if number == _MOST_SEGMENTS:
            raise NotAnalysable(Reason.UNDECODABLE, f"more than {_MOST_SEGMENTS} scans")
        coefficients, bits = _scan_content(scan, found)
        for component in scan[3 : 3 + 2 * scan[2] : 2]:
            of_component = left.setdefault(component, [_ALL_BITS] * _COEFFICIENTS)
            of_component[coefficients] = [bits] * len(of_component[coefficients])
    if len(left) != found.components or any(map(any, left.values())):
        raise NotAnalysable(Reason.TRUNCATED_PIXEL_DATA, "scans of the JPEG codestream are missing")


def _scan_content(scan: bytes, found: JpegHeader) -> tuple[slice, int]:
    """The coefficients of a scan (Ss to Se), and how many low bits it leaves out (Al; B.2.3).

    A scan that is not progressive has all of them, to the last bit.
    """
    if found.marker != PROGRESSIVE:
        return slice(None), 0
    first, last, approximation = scan[-3:]
    return slice(first, last + 1), approximation & 0x0F


def _scans(codestream: Codestream, found: JpegHeader) -> Iterator[bytes]:
    """The headers of all scans (B.2.3), from their length on."""
    if found.scan_components > found.components:
        raise NotAnalysable(Reason.UNDECODABLE, "a JPEG scan of more components than its frame")
    first = found.scan.start
    yield bytes(codestream[first - 6 - 2 * found.scan_components : first])
    passed = first
    for at in _segment_places(codestream, found.scan):
        if at < passed:
            continue
        passed = at + 2 + _number(codestream, at + 2)
        if codestream[at + 1] == _START_OF_SCAN and passed - at >= _LEAST_SCAN_BYTES:
            yield bytes(codestream[at + 2 : passed])


def _segment_places(codestream: Codestream, scan: slice) -> list[int]:
    """Where a segment begins, or bytes within a segment look as if one did."""
    data = np.frombuffer(codestream, np.uint8)[scan]
    places = np.flatnonzero((data[:-1] == 0xFF) & _begins_segment(data[1:]))
    if len(places) > _MOST_MARKERS:
        raise NotAnalysable(Reason.UNDECODABLE, f"more than {_MOST_MARKERS} markers")
    found: list[int] = (places + scan.start).tolist()
    return found


def _begins_segment(second: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Neither a stuffed zero nor a fill byte nor a restart marker."""
    return np.asarray((second != 0x00) & (second != 0xFF) & ~_is_restart(second))


def _is_restart(second: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """RST0 to RST7, by the second byte of a marker."""
    return np.asarray((second >= 0xD0) & (second <= 0xD7))


def _markers_within(codestream: Codestream, scan: slice) -> NDArray[np.uint8]:
    """The second bytes of all markers, stuffed zeros (B.1.1.5) and fill bytes left out."""
    data = np.frombuffer(codestream, np.uint8)[scan]
    following: NDArray[np.uint8] = data[np.flatnonzero(data[:-1] == 0xFF) + 1]
    return np.asarray(following[(following != 0x00) & (following != 0xFF)])


def _expected_restarts(found: JpegHeader) -> int:
    """A scan of one component is counted in its own blocks of 8 x 8, or samples (A.2.2)."""
    if not found.restart_interval:
        return 0
    side = 1 if found.marker == LOSSLESS else 8
    units = -(-found.rows // side) * -(-found.columns // side)
    return -(-units // found.restart_interval) - 1

"""The reader of multipart bodies: the same parts however a body is cut into pieces, none that is cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hilum.retrieve.dicomweb.multipart import (
    HEADER_BYTES,
    PREAMBLE_BYTES,
    MultipartError,
    MultipartReader,
    content_type,
)

BOUNDARY = "B-1"
# Bytes of which a delimiter is made, so that data often look like the beginning of one.
AWKWARD = st.lists(
    st.sampled_from(
        [b"\r\n", b"\r", b"\n", b"-", b"--", b"B", b"B-", b"-1", b"\r\n--B", b"x", b" "]
    )
).map(b"".join)
DATA = st.one_of(st.binary(max_size=50), AWKWARD).filter(
    lambda data: b"\r\n--B-1" not in b"\r\n" + data
)
PADDING = st.sampled_from([b"", b" ", b"\t \t"])


class Parts:
    """A sink that remembers parts: those that ended, and the one that has not."""

    def __init__(self) -> None:
        self.whole: list[bytes] = []
        self.headers: list[Mapping[str, str]] = []
        self.current: bytearray | None = None

    def begin(self, headers: Mapping[str, str]) -> None:
        assert self.current is None
        self.headers.append(headers)
        self.current = bytearray()

    def write(self, piece: bytes) -> None:
        assert self.current is not None
        self.current += piece

    def end(self) -> None:
        assert self.current is not None
        self.whole.append(bytes(self.current))
        self.current = None


def read(pieces: Iterable[bytes]) -> tuple[Parts, MultipartReader]:
    parts = Parts()
    reader = MultipartReader(BOUNDARY, parts)
    for piece in pieces:
        reader.feed(piece)
    return parts, reader


@st.composite
def bodies(draw: st.DrawFn) -> tuple[list[bytes], bytes]:
    """Parts, and a valid body that holds them."""
    contents = draw(st.lists(DATA, max_size=4))
    preamble = draw(st.sampled_from([b"", b"\r\n", b"for people\r\n"]))
    header = draw(st.sampled_from([b"", b"Content-Type: application/dicom\r\n"]))
    epilogue = draw(st.sampled_from([b"", b"\r\n", b"\r\n--B-1\r\n\r\nno part\r\n--B-1--"]))
    delimiter = b"--B-1"
    body = preamble
    for content in contents:
        body += delimiter + draw(PADDING) + b"\r\n" + header + b"\r\n" + content + b"\r\n"
    return contents, body + b"--B-1--" + epilogue


@st.composite
def cut(draw: st.DrawFn, body: bytes) -> list[bytes]:
    """A body in pieces."""
    places = sorted(draw(st.sets(st.integers(0, len(body)), max_size=12)))
    edges = [0, *places, len(body)]
    return [body[start:end] for start, end in pairwise(edges)]


@given(st.data(), bodies())
def test_any_cutting_of_a_body_into_pieces_gives_the_same_parts(
    data: st.DataObject, made: tuple[list[bytes], bytes]
) -> None:
    contents, body = made

    parts, reader = read(data.draw(cut(body)))

    assert parts.whole == contents
    assert reader.is_closed


@given(bodies())
def test_single_bytes_give_the_same_parts(made: tuple[list[bytes], bytes]) -> None:
    contents, body = made

    parts, reader = read(body[at : at + 1] for at in range(len(body)))

    assert parts.whole == contents
    assert reader.is_closed


@given(st.data(), bodies())
def test_a_truncated_body_never_yields_a_part_that_is_not_whole(
    data: st.DataObject, made: tuple[list[bytes], bytes]
) -> None:
    contents, body = made
    size = data.draw(st.integers(0, len(body)))

    parts, reader = read(data.draw(cut(body[:size])))

    assert parts.whole == contents[: len(parts.whole)]
    assert reader.is_closed or len(parts.whole) <= len(contents)
    if not reader.is_closed:
        # Some delimiter is missing: at least the closing one.
        closing = body.index(b"--B-1--") + len(b"--B-1--")
        assert size < closing


def test_the_last_part_needs_the_closing_boundary() -> None:
    body = b"--B-1\r\n\r\nfirst\r\n--B-1\r\n\r\nsecond\r\n--B-1"

    parts, reader = read([body])

    assert parts.whole == [b"first"]
    assert reader.is_within_part
    assert not reader.is_closed


def test_a_delimiter_ends_the_part_before_it_though_no_other_follows() -> None:
    parts, reader = read([b"--B-1\r\n\r\nfirst\r\n--B-1\r\n"])

    assert parts.whole == [b"first"]
    assert not reader.is_within_part
    assert not reader.is_closed


def test_a_longer_boundary_is_data() -> None:
    parts, _ = read([b"--B-1\r\n\r\nA\r\n--B-12\r\nB\r\n--B-1--"])

    assert parts.whole == [b"A\r\n--B-12\r\nB"]


def test_names_of_headers_are_in_lower_case_and_folded_lines_are_one() -> None:
    parts, _ = read(
        [b"--B-1\r\nContent-TYPE: application/dicom;\r\n  a=b\r\nX: \r\n\r\n\r\n--B-1--"]
    )

    assert parts.headers == [{"content-type": "application/dicom; a=b", "x": ""}]
    assert parts.whole == [b""]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"x" * (PREAMBLE_BYTES + 100), "no part begins"),
        (b"--B-1\r\n" + b"A: b\r\n" * HEADER_BYTES, "longer than"),
        (b"--B-1\r\nno colon\r\n\r\n", "not well formed"),
        (b"--B-1\r\nA B: c\r\n\r\n", "not well formed"),
    ],
)
def test_a_body_out_of_bounds_is_refused(body: bytes, problem: str) -> None:
    with pytest.raises(MultipartError, match=problem):
        read([body])


@pytest.mark.parametrize("boundary", ["", "a\r\nb", "ä", "x" * 300, "ends with a blank "])
def test_a_boundary_that_cannot_be_one_is_refused(boundary: str) -> None:
    with pytest.raises(MultipartError, match="boundary"):
        MultipartReader(boundary, Parts())


def test_a_part_larger_than_the_bound_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hilum.retrieve.dicomweb.multipart.PART_BYTES", 10)

    with pytest.raises(MultipartError, match="longer than 10 bytes"):
        read([b"--B-1\r\n\r\n" + b"x" * 100])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (
            'multipart/related; type="application/dicom"; boundary="a b"',
            ("multipart/related", "a b"),
        ),
        ("Multipart/Related; boundary=abc", ("multipart/related", "abc")),
        ("application/dicom", ("application/dicom", "")),
        ("", ("", "")),
    ],
)
def test_media_type_and_boundary_of_a_content_type(value: str, expected: tuple[str, str]) -> None:
    assert content_type(value) == expected

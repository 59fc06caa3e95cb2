"""HL7 v2 in its own encoding, ER7 (HL7 2.5.1 chapter 2): from values to bytes.

Each value is escaped where it is written. So no value can end its field, its segment or the frame
of the message.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NewType

Er7 = NewType("Er7", str)
"""Encoded text. Only the functions of this module make it."""

DELIMITERS: Final = "^~\\&"
"""MSH-2: component, repetition, escape and subcomponent. The field separator is MSH-1."""
EMPTY: Final = Er7("")
CODECS: Final[Mapping[str, str]] = {"UNICODE UTF-8": "utf-8", "8859/1": "iso-8859-1"}
"""Codecs by their names in MSH-18 (table 0211)."""
_UTF_8: Final = "UNICODE UTF-8"
_ESCAPES: Final = str.maketrans(
    {"\\": "\\E\\", "|": "\\F\\", "^": "\\S\\", "&": "\\T\\", "~": "\\R\\"}
)
# Also the line ends of Unicode: parsers that split by them would see a segment.
_LINE_END: Final = re.compile("\r\n|[\n\v\f\r\x85\u2028\u2029]")
# Those of ASCII and ISO 8859, and halves of pairs, which no character set has. 0x1C ends a frame.
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_DELETE: Final = '""'  # as a whole value: the receiver deletes what it has


def text(value: str) -> Er7:
    """Return one line: a line end becomes a space, other controls are dropped."""
    return _escaped(value, " ")


def paragraph(value: str) -> Er7:
    r"""Return text of TX or FT, in which a line end is `\.br\`."""
    return _escaped(value, "\\.br\\")


def _escaped(value: str, line_end: str) -> Er7:
    lines = [_CONTROL.sub("", line).translate(_ESCAPES) for line in _LINE_END.split(value)]
    joined = line_end.join(lines)
    return EMPTY if joined == _DELETE else Er7(joined)


def components(*values: Er7) -> Er7:
    """Return a value of several components, without empty ones at its end."""
    return Er7("^".join(values).rstrip("^"))


def subcomponents(*values: Er7) -> Er7:
    """Return a component of several parts, without empty ones at its end."""
    return Er7("&".join(values).rstrip("&"))


def repetitions(values: Iterable[Er7]) -> Er7:
    """Return a field of several values."""
    return Er7("~".join(values))


def segment(name: str, fields: Mapping[int, Er7]) -> Er7:
    """Return a segment. `fields`: by their numbers in the standard; others are empty."""
    last = max(number for number, value in fields.items() if value)
    return Er7("|".join([name, *(fields.get(number, EMPTY) for number in range(1, last + 1))]))


def header(fields: Mapping[int, Er7]) -> Er7:
    """Return MSH. `fields` from MSH-3 on; MSH-1 is the separator itself."""
    rest = segment("", {number - 2: value for number, value in fields.items()})
    return Er7(f"MSH|{DELIMITERS}{rest}")


def fitting_character_set(segments: Iterable[Er7], wanted: str) -> str:
    """Return the wanted name of MSH-18, or UTF-8 for letters that it does not have.

    A question mark in their place would be another name.
    """
    try:
        for item in segments:
            item.encode(CODECS[wanted])
    except UnicodeEncodeError:
        return _UTF_8
    return wanted


def encoded(segments: Iterable[Er7], character_set: str) -> bytes:
    """Return the message; each segment ends with a carriage return."""
    return "".join(f"{item}\r" for item in segments).encode(CODECS[character_set])

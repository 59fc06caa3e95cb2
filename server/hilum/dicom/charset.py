"""Texts in a Specific Character Set (0008,0005): plain ASCII as it is, others decoded.

`hilum_preprocessing.header.charset` lists the characters that every character set writes alike.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from pydicom.charset import convert_encodings, decode_bytes, python_encoding

from hilum_preprocessing.header.charset import SAME

_KNOWN_TERMS: Final = frozenset(term.encode() for term in python_encoding)
"""The defined terms of Specific Character Set (PS3.3 C.12.1.1.2), and the empty one."""
_SAME_OR_PADDING: Final = re.compile(b"[" + SAME + rb"\0]*")
_ESCAPE_OF_GB2312: Final = "\x1b$)A"  # ISO 2022 IR 58 (PS3.3 Table C.12-4)


def are_known(names: bytes) -> bool:
    """Return whether each term of a Specific Character Set is a defined one."""
    return _KNOWN_TERMS.issuperset(names.rstrip(b"\0 ").split(b"\\"))


def texts_of(values: Collection[bytes], names: bytes) -> list[str]:
    """Return the texts of LO, SH or UI elements; spaces around them do not count (PS3.5 6.2).

    `names`: the value of Specific Character Set.
    """
    if are_known(names) and all(map(_SAME_OR_PADDING.fullmatch, values)):
        return [value.decode("ascii").strip(" \0") for value in values]
    encodings = _encodings_of(names)
    return [
        without_escapes(decode_bytes(value, encodings, set()), encodings).strip(" \0")
        for value in values
    ]


def _encodings_of(names: bytes) -> list[str]:
    text = names.decode("ascii", "replace").replace("\0", " ")  # Python looks up no name with a NUL
    found: list[str] = convert_encodings([part.strip() for part in text.rstrip().split("\\")])
    return found


def without_escapes(text: str, encodings: Collection[str]) -> str:
    """Return a decoded text without the escape sequences of ISO 2022 IR 58 (PS3.5 6.1.2.5).

    pydicom removes those of other character sets; here it relies on Python's codec, which leaves
    them in.
    """
    return text.replace(_ESCAPE_OF_GB2312, "") if "iso_ir_58" in encodings else text

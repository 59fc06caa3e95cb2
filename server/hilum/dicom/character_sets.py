"""Escape sequences that pydicom leaves in decoded texts (PS3.5 6.1.2.5)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

_ESCAPE_OF_GB2312: Final = "\x1b$)A"  # ISO 2022 IR 58 (PS3.3 Table C.12-4)


def without_escapes(text: str, encodings: Collection[str]) -> str:
    """A decoded text without the escape sequences of ISO 2022 IR 58.

    It removes those of other character sets; here it relies on Python's codec, which leaves them
    in.
    """
    return text.replace(_ESCAPE_OF_GB2312, "") if "iso_ir_58" in encodings else text

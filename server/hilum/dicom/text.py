"""Texts that end in DICOM attributes, as the value representations there take them (PS3.5 6.2).

Refused where a person writes them, not when a report is made.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CONTROL_IN_PARAGRAPH: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]")


def _worded(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    return text


def _line(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError("must not hold control characters or line ends")
    return text


def _paragraph(text: str) -> str:
    if _CONTROL_IN_PARAGRAPH.search(text):
        raise ValueError("must not hold control characters, but for tabs and line ends")
    return text


def _one_value(text: str) -> str:
    if "\\" in text:
        raise ValueError("must not hold a backslash: DICOM separates values by it")
    return text


LongString = Annotated[str, Field(max_length=64), AfterValidator(_line), AfterValidator(_one_value)]
"""LO; may be empty."""
Named = Annotated[LongString, AfterValidator(_worded)]
"""LO."""
Line = Annotated[str, Field(max_length=64), AfterValidator(_line), AfterValidator(_worded)]
"""One line of UT."""
Paragraph = Annotated[
    str, Field(max_length=1024), AfterValidator(_paragraph), AfterValidator(_worded)
]
"""UT."""

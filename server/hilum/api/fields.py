"""Types of single values on the wire, and how each is checked."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date, datetime
from typing import Annotated, Final

from fastapi import Path, Query
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
)

from hilum.timestamps import iso

API_PREFIX = "/api/v1"
"""Each router has the prefix itself: some FastAPI versions hide a prefix added by inclusion."""
UID_PATTERN = r"^[0-9]+(\.[0-9]+)*$"
"""PS3.5 9.1, with leading zeros: devices make such UIDs, and stored objects must be found again."""
AE_PATTERN = r"^[ -\[\]-~]{1,16}$"
"""PS3.5 6.2, VR AE: the default repertoire without backslash and control characters."""
RELEASE_PATTERN = r"^[A-Za-z0-9._-]+@[A-Za-z0-9._-]+$"
# PS3.5 6.2, VR LO: at most 64 characters, no backslash, no control character, and spaces around it
# do not count.
_CHARACTER: Final = "!-\\[\\]-~\u00a1-\uffff"
_IDENTIFIER: Final = f"^[{_CHARACTER}]([ {_CHARACTER}]*[{_CHARACTER}])?$"


def _identifier(value: str) -> str:
    """Raise ValueError for a text that no header can hold."""
    if not re.fullmatch(_IDENTIFIER, value):
        raise ValueError("no backslash, no control character, and no space around it (PS3.5 6.2)")
    return value


def _day(value: object) -> object:
    """Of text, as a browser or DICOM writes a day. Raises ValueError."""
    if not isinstance(value, str):
        return value
    for form in ("%Y-%m-%d", "%Y%m%d"):
        with suppress(ValueError):
            return datetime.strptime(value, form).date()  # noqa: DTZ007 - a day has no zone
    raise ValueError("no date: write it like 2026-11-20")


def _is_written_out(value: object) -> object:
    """A bare number would be read as an epoch in seconds or milliseconds, whichever fits.

    Too clever for a date.
    """
    if isinstance(value, str) and "-" not in value[1:]:
        raise ValueError("give a date and time with zone, for example 2026-11-20T08:31:02Z")
    return value


Moment = Annotated[
    float,
    PlainSerializer(iso, return_type=str),
    WithJsonSchema(
        {"type": "string", "format": "date-time", "examples": ["2026-11-20T08:31:02.120Z"]},
        mode="serialization",
    ),
]
Day = Annotated[date, BeforeValidator(_day)]
QueryMoment = Annotated[AwareDatetime, BeforeValidator(_is_written_out)]
Identifier = Annotated[
    str,
    StringConstraints(min_length=1, max_length=64),
    AfterValidator(_identifier),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": 64, "pattern": _IDENTIFIER}),
]
"""Patient ID, its issuer, or Accession Number, as a person enters it."""
StudyUid = Annotated[
    str,
    Path(
        title="Study Instance UID",
        description="Study Instance UID (0020,000D).",
        pattern=UID_PATTERN,
        max_length=64,
        examples=["1.2.826.0.1.3680043.8.498.1"],
    ),
]
Limit = Annotated[int, Query(ge=1, le=500, description="Items on a page.")]
Cursor = Annotated[
    str | None,
    Query(
        max_length=200,
        description=(
            "`next_cursor` of the page before, with the same filters; leave it out for the first"
            " page."
        ),
    ),
]


class ResponseModel(BaseModel):
    """A response. Fields of ledger rows that it does not name are not sent."""

"""JSON of the ledger's columns as text.

orjson writes it where its text equals the standard library's, for a tenth of its time.
docs/decisions/json-of-the-ledger.md
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import orjson


class Finite(dict[str, Any]):
    """An object all of whose numbers are finite, as its maker has checked.

    A null in it means None.
    """


def encoded(value: object) -> str:
    """Encode a value; numbers are exact, a dataclass becomes the object of its fields.

    Raises TypeError for values that JSON has no form for.
    """
    try:
        text = orjson.dumps(value, default=_plain)
    except TypeError:
        # Keys that are no text, integers above 64 bits, half of a surrogate pair.
        return json.dumps(value, default=_plain)
    # A null may be NaN, which the standard library writes as NaN: SQLite keeps that, PostgreSQL
    # refuses it.
    return (
        text.decode()
        if type(value) is Finite or b"null" not in text
        else json.dumps(value, default=_plain)
    )


def decoded(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Decode text of `encoded`, or of an earlier version with the standard library.

    Integers above 64 bits come as floats.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def _plain(item: object) -> dict[str, Any]:
    if isinstance(item, Mapping):
        return dict(item)
    if is_dataclass(item):
        return {field.name: getattr(item, field.name) for field in fields(item)}
    raise TypeError(f"{type(item).__name__} is no JSON")

"""The fields of a form that a page has posted."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs

from fastapi.exceptions import RequestValidationError

_FIELDS = 5


def form_of(body: bytes) -> Callable[[str], str]:
    """Return a getter of field values, "" for a missing one. Raises RequestValidationError."""
    try:
        fields = parse_qs(body.decode("ascii", "replace"), max_num_fields=_FIELDS)
    except ValueError as error:
        raise RequestValidationError(
            [{"type": "too_long", "loc": ("body",), "msg": "more fields than the page has"}]
        ) from error
    return lambda name: fields.get(name, [""])[0]

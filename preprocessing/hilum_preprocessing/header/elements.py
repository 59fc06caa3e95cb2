"""The one reader of attributes: a malformed one is an answer and not a crash. Torch-free.

pydicom converts a value when it is first touched, and raises the error of that conversion.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, Final

from pydicom.dataelem import RawDataElement
from pydicom.dataset import Dataset
from pydicom.errors import BytesLengthException
from pydicom.tag import BaseTag, Tag

from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header.plain_values import plain_value
from hilum_preprocessing.header.structure import TooComplex, require_bounded_value

# What pydicom 3 was seen to raise for malformed elements: ValueError (numbers, UIDs, character
# sets), TypeError (wrong kind of value), AttributeError (an item that is no data set), LookupError
# and NotImplementedError (unknown VR), struct.error and EOFError (lengths), ArithmeticError
# (numbers), RecursionError (nested sequences), BytesLengthException (US of three bytes), OSError
# without an errno (a sequence that ends within a tag).
MALFORMED = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    NotImplementedError,
    struct.error,
    EOFError,
    ArithmeticError,
    RecursionError,
    BytesLengthException,
    OSError,
)

# In the order in which values are met: a question about Sequence, which is abstract, takes longer
# than the others together.
_SINGLE: Final = (str, float, int, bytes)
_SIZED: Final = (str, list, bytes, Sequence)

interned: Final = lru_cache(maxsize=4096)(BaseTag)
"""Mostly one object for each number.

A data set finds it without a comparison, which pydicom's tags make in Python.
"""


def element(dataset: Dataset, keyword: str) -> Any:  # noqa: ANN401 - the value's type is the VR's
    """The value of an attribute, None when it is absent or empty.

    Raises NotAnalysable (corrupt_header) when it is malformed.
    """
    tag = tag_of(keyword)
    held = dataset._dict.get(tag)  # noqa: SLF001 - what get_item gives, in a quarter of its time; fifty values of an object are read
    if held is None:
        return None
    try:
        if isinstance(held, RawDataElement):
            _require_bounded(held)
            if (plain := plain_value(held, keyword)) is not None:
                return None if plain == "" else plain
        value = dataset[tag].value  # pydicom converts what is not plain, and keeps it
    except TooComplex as error:
        raise NotAnalysable(Reason.CORRUPT_HEADER, f"{keyword} has {error}") from None
    except MALFORMED as error:
        # "from None": pydicom's messages repeat the value, which may be a patient's.
        raise NotAnalysable(
            Reason.CORRUPT_HEADER, f"{keyword} is unreadable ({type(error).__name__})"
        ) from None
    return None if value is None or (isinstance(value, _SIZED) and len(value) == 0) else value


def _require_bounded(raw: RawDataElement) -> None:
    order = "<" if raw.is_little_endian else ">"
    require_bounded_value(
        raw.value or b"", raw.tag, raw.VR, is_implicit=raw.is_implicit_VR, order=order
    )


@cache
def tag_of(keyword: str) -> BaseTag:
    """Looked up once: each time, as pydicom does it, costs as much as the value.

    Only the library's own keywords come here.
    """
    return interned(int(Tag(keyword)))


def required(dataset: Dataset, keyword: str) -> Any:  # noqa: ANN401 - the value's type is the VR's
    """The value of an attribute that must be there."""
    value = element(dataset, keyword)
    if value is None:
        raise NotAnalysable(Reason.CORRUPT_HEADER, f"{keyword} is missing")
    return value


def integer(dataset: Dataset, keyword: str, default: int | None = None) -> int:
    """A single whole number; without a default it must be there."""
    value = element(dataset, keyword) if default is not None else required(dataset, keyword)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int):
        raise NotAnalysable(Reason.CORRUPT_HEADER, f"{keyword} is not one whole number")
    return int(value)


def words(dataset: Dataset, keyword: str) -> tuple[str, ...]:
    """The values of a textual attribute, stripped and in capitals; none when it is absent."""
    return tuple([_word(part) for part in _parts(element(dataset, keyword))])


def word(dataset: Dataset, keyword: str) -> str:
    """The first value of a textual attribute, stripped and in capitals; "" when it is absent."""
    value = element(dataset, keyword)
    if value is None or isinstance(value, str):
        return value.strip().upper() if value else ""
    for part in _parts(value):
        return _word(part)
    return ""


def texts(dataset: Dataset, keyword: str) -> tuple[str, ...]:
    """The values of a textual attribute as they are written; bytes of an unknown VR become Latin-1.

    None when it is absent.
    """
    parts = _parts(element(dataset, keyword))
    return tuple(
        [part.decode("latin_1") if isinstance(part, bytes) else str(part) for part in parts]
    )


def says(dataset: Dataset, keyword: str, wanted: str) -> bool:
    """Whether the first value of a textual attribute is this word.

    One that is unreadable is not.
    """
    try:
        return word(dataset, keyword) == wanted
    except NotAnalysable:
        return False


def _word(value: Any) -> str:  # noqa: ANN401 - any value that an attribute can have
    return str(value).strip().upper()


def numbers(dataset: Dataset, keyword: str) -> tuple[float, ...]:
    """The values of a decimal attribute, none when it is absent.

    Raises NotAnalysable when one is no finite number.
    """
    if (value := element(dataset, keyword)) is None:
        return ()
    try:
        found = tuple([float(part) for part in _parts(value)])
    except (ValueError, TypeError, OverflowError):  # the last for a whole number of 400 digits
        raise NotAnalysable(Reason.CORRUPT_HEADER, f"{keyword} is not a number") from None
    if not all(map(math.isfinite, found)):
        raise NotAnalysable(Reason.CORRUPT_HEADER, f"{keyword} is not finite")
    return found


def _parts(value: Any) -> Sequence[Any]:  # noqa: ANN401 - any value that an attribute can have
    """A value as its values: Value Multiplicity is 0, 1 or more."""
    if value is None:
        return ()
    return value if not isinstance(value, _SINGLE) and isinstance(value, Sequence) else (value,)


def first_item(dataset: Dataset, keyword: str) -> Dataset | None:
    """The first item of a sequence, None when the sequence is absent or empty."""
    sequence = element(dataset, keyword)
    if sequence is None:
        return None
    if not isinstance(sequence, Sequence) or not isinstance(sequence[0], Dataset):
        raise NotAnalysable(Reason.CORRUPT_HEADER, f"{keyword} is not a sequence of items")
    return sequence[0]

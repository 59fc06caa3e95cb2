"""The one place where attributes of a data set are read, so that a malformed one is an answer and not a crash. Torch-free.

pydicom converts a value when it is first touched, and raises whatever the conversion raises.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.errors import BytesLengthException, InvalidDicomError
from pydicom.filereader import read_file_meta_info
from pydicom.uid import DeflatedExplicitVRLittleEndian

from hilum_preprocessing.errors import NotAnalysable, Reason

# What pydicom 3 was seen to raise for malformed elements: ValueError (numbers, UIDs, character sets), TypeError (wrong kind of value),
# AttributeError (an item that is no data set), KeyError and NotImplementedError (unknown VR), struct.error and EOFError (lengths),
# OverflowError (numbers), RecursionError (nested sequences), BytesLengthException (US of three bytes),
# OSError without an errno (a sequence that ends within a tag).
MALFORMED = (
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    NotImplementedError,
    struct.error,
    EOFError,
    OverflowError,
    RecursionError,
    BytesLengthException,
    OSError,
)


def read_file(path: Path | str) -> Dataset:
    """The data set of a DICOM file (PS3.10). Raises NotAnalysable when it is none, OSError when it cannot be opened.

    A deflated data set is refused before it is inflated: its length after that is not known, and pydicom sets no limit.
    """
    try:
        if read_file_meta_info(path).get("TransferSyntaxUID") == DeflatedExplicitVRLittleEndian:
            raise NotAnalysable(Reason.TRANSFER_SYNTAX_NOT_SUPPORTED, "deflated data set")
        return dcmread(path)
    except InvalidDicomError:
        raise NotAnalysable(Reason.CORRUPT_HEADER, "not a DICOM file: no DICM prefix") from None
    except MALFORMED as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the file system's own: the file is gone or may not be read, which says nothing about its content
        raise NotAnalysable(Reason.CORRUPT_HEADER, f"unreadable data set ({type(error).__name__})") from None


def element(dataset: Dataset, keyword: str) -> Any:  # noqa: ANN401 - the value's type is the VR's
    """The value of an attribute, None when it is absent or empty. Raises NotAnalysable (corrupt_header) when it is malformed."""
    try:
        value = dataset[keyword].value if keyword in dataset else None
    except MALFORMED as error:
        # "from None": pydicom's messages repeat the value, which may be a patient's.
        raise NotAnalysable(Reason.CORRUPT_HEADER, f"{keyword} is unreadable ({type(error).__name__})") from None
    return None if value is None or (isinstance(value, str | bytes | Sequence) and len(value) == 0) else value


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
    return tuple(str(part).strip().upper() for part in _parts(element(dataset, keyword)))


def word(dataset: Dataset, keyword: str) -> str:
    """The first value of a textual attribute, stripped and in capitals; "" when it is absent."""
    return next(iter(words(dataset, keyword)), "")


def numbers(dataset: Dataset, keyword: str) -> tuple[float, ...]:
    """The values of a decimal attribute, none when it is absent. Raises NotAnalysable when one is no finite number."""
    try:
        found = tuple(float(part) for part in _parts(element(dataset, keyword)))
    except (ValueError, TypeError):
        raise NotAnalysable(Reason.CORRUPT_HEADER, f"{keyword} is not a number") from None
    if not all(map(math.isfinite, found)):
        raise NotAnalysable(Reason.CORRUPT_HEADER, f"{keyword} is not finite")
    return found


def _parts(value: Any) -> Sequence[Any]:  # noqa: ANN401 - any value that an attribute can have
    """A value as its values: Value Multiplicity is 0, 1 or more."""
    if value is None:
        return ()
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes) else (value,)


def first_item(dataset: Dataset, keyword: str) -> Dataset | None:
    """The first item of a sequence, None when the sequence is absent or empty."""
    sequence = element(dataset, keyword)
    if sequence is None:
        return None
    if not isinstance(sequence, Sequence) or not isinstance(sequence[0], Dataset):
        raise NotAnalysable(Reason.CORRUPT_HEADER, f"{keyword} is not a sequence of items")
    return sequence[0]

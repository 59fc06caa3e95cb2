"""The N-ACTION-RQ of the Storage Commitment Push Model (PS3.4 J.3.2, PS3.7 10.1.4).

It is decoded, or refused with a reason.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import TypeVar

from pydicom.dataset import Dataset
from pydicom.uid import UID
from pynetdicom.dsutils import decode

from hilum.dicom import command_set
from hilum.dicom.storage_commitment import (
    REQUEST_STORAGE_COMMITMENT,
    STORAGE_COMMITMENT,
    WELL_KNOWN_INSTANCE,
)
from hilum.dicom.uid import is_like_uid, problem_of_uid
from hilum.domain import SopReference
from hilum.receive.statuses import COMMENT_LENGTH, StatusResponse
from hilum.receive.upper_layer.command import Command
from hilum_preprocessing.header.structure import MAXIMUM_LISTED, TooComplex, require_bounded

MAXIMUM_BYTES = 4 << 20  # some thirty thousand references
T = TypeVar("T")
_decoding = threading.Lock()
"""One request at a time becomes objects, which take many times its bytes."""

# Statuses, PS3.7 10.1.1.1.8 and 10.1.4.1.10.
NO_SUCH_INSTANCE = 0x0112
NO_SUCH_EVENT = 0x0113
INVALID_ARGUMENT = 0x0115
NO_SUCH_CLASS = 0x0118
NO_SUCH_ACTION = 0x0123
UNRECOGNISED_OPERATION = 0x0211
RESOURCE_LIMITATION = 0x0213

# Errors of pydicom's decoder for bytes that are not a data set.
_NOT_A_DATA_SET = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    EOFError,
    OSError,
    OverflowError,
    RuntimeError,
    MemoryError,
    struct.error,
    zlib.error,
)


class CommitmentRefused(Exception):
    """A refused request: its status, and the change that the sender should make."""

    def __init__(self, status: int, comment: str) -> None:
        super().__init__(comment)
        self.answer = StatusResponse(status, comment[:COMMENT_LENGTH])


def require_command(command: Command) -> None:
    """Raise CommitmentRefused for a command that does not request storage commitment."""
    if command.sop_class_uid != STORAGE_COMMITMENT:
        raise CommitmentRefused(
            NO_SUCH_CLASS, "Requested SOP Class UID is not Storage Commitment Push Model"
        )
    if command.sop_instance_uid != WELL_KNOWN_INSTANCE:
        raise CommitmentRefused(
            NO_SUCH_INSTANCE, f"Requested SOP Instance UID must be {WELL_KNOWN_INSTANCE}"
        )
    if command.number(command_set.ACTION_TYPE_ID) != REQUEST_STORAGE_COMMITMENT:
        raise CommitmentRefused(
            NO_SUCH_ACTION, "Action Type ID must be 1, Request Storage Commitment"
        )


def read_information(
    encoded: bytes, transfer_syntax_uid: str
) -> tuple[str, tuple[SopReference, ...]]:
    """Return the Transaction UID and the references, each once, of an Action Information.

    Raises CommitmentRefused.
    """
    transaction_uid, references = decoded(
        encoded, transfer_syntax_uid, "Action Information", _read_request
    )
    if not references:
        raise CommitmentRefused(
            INVALID_ARGUMENT, "Referenced SOP Sequence (0008,1199) is missing or empty"
        )
    require_uids(transaction_uid, references)
    return transaction_uid, tuple(dict.fromkeys(references))


def decoded(encoded: bytes, transfer_syntax_uid: str, name: str, read: Callable[[Dataset], T]) -> T:
    """Return the values that `read` takes from an Action or Event Information, of this name.

    Raises CommitmentRefused.
    """
    if not encoded:
        raise CommitmentRefused(INVALID_ARGUMENT, f"{name} is missing")
    if len(encoded) > MAXIMUM_BYTES:
        raise CommitmentRefused(
            RESOURCE_LIMITATION, f"More than {MAXIMUM_BYTES >> 20} MiB: ask in several requests"
        )
    syntax = UID(transfer_syntax_uid)
    try:
        order = "<" if syntax.is_little_endian else ">"
        require_bounded(
            encoded, is_implicit=syntax.is_implicit_VR, order=order, most=MAXIMUM_LISTED
        )
        with _decoding:
            information = decode(
                BytesIO(encoded), syntax.is_implicit_VR, syntax.is_little_endian, syntax.is_deflated
            )
            values = read(information)
            del information
    except TooComplex:
        raise CommitmentRefused(
            RESOURCE_LIMITATION,
            "Too many references, or deeper than they lie: ask in several requests",
        ) from None
    except _NOT_A_DATA_SET:
        raise CommitmentRefused(INVALID_ARGUMENT, f"{name} cannot be read") from None
    return values


def require_uids(transaction_uid: str, references: Sequence[SopReference]) -> None:
    """Raise CommitmentRefused where one is missing, or is no UID."""
    if problem_of_uid(transaction_uid) is not None:
        raise CommitmentRefused(
            INVALID_ARGUMENT, "Transaction UID (0008,1195) is missing or not a UID"
        )
    if not all(
        is_like_uid(item.sop_class_uid) and is_like_uid(item.sop_instance_uid)
        for item in references
    ):
        raise CommitmentRefused(
            INVALID_ARGUMENT, "Referenced SOP Sequence (0008,1199): an item lacks a UID"
        )


def _read_request(information: Dataset) -> tuple[str, tuple[SopReference, ...]]:
    return transaction_of(information), tuple(references_of(information, "ReferencedSOPSequence"))


def transaction_of(information: Dataset) -> str:
    """Return the Transaction UID (0008,1195); empty: there is none."""
    return str(information.get("TransactionUID") or "")


def references_of(information: Dataset, keyword: str) -> Iterator[SopReference]:
    """Yield the references of a sequence; missing UIDs are empty."""
    for item in information.get(keyword) or ():
        yield reference_of(item)


def reference_of(item: Dataset) -> SopReference:
    """Return the reference of one item."""
    return SopReference(
        str(item.get("ReferencedSOPClassUID") or ""),
        str(item.get("ReferencedSOPInstanceUID") or ""),
    )

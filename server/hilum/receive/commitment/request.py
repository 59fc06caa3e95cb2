"""The N-ACTION-RQ of the Storage Commitment Push Model (PS3.4 J.3.2, PS3.7 10.1.4).

It is decoded, or refused with a reason.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Iterator
from io import BytesIO

from pydicom.dataset import Dataset
from pydicom.uid import UID
from pynetdicom.dsutils import decode

from hilum.dicom import command_set
from hilum.dicom.uid import is_like_uid, problem_of_uid
from hilum.domain import SopReference
from hilum.receive.policy.sender_policy import STORAGE_COMMITMENT
from hilum.receive.statuses import COMMENT_LENGTH, StatusResponse
from hilum.receive.upper_layer.command import Command
from hilum_preprocessing.header.structure import MAXIMUM_LISTED, TooComplex, require_bounded

WELL_KNOWN_INSTANCE = "1.2.840.10008.1.20.1.1"  # PS3.4 J.3.5
REQUEST_STORAGE_COMMITMENT = 1  # the only action type, PS3.4 Table J.3-1
MAXIMUM_BYTES = 4 << 20  # some thirty thousand references
_decoding = threading.Lock()
"""One request at a time becomes objects, which take many times its bytes."""

# Statuses, PS3.7 10.1.4.1.10.
NO_SUCH_INSTANCE = 0x0112
INVALID_ARGUMENT = 0x0115
NO_SUCH_CLASS = 0x0118
NO_SUCH_ACTION = 0x0123
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
    if not encoded:
        raise CommitmentRefused(INVALID_ARGUMENT, "Action Information is missing")
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
            transaction_uid = str(information.get("TransactionUID") or "")
            references = tuple(_references(information))
            del information
    except TooComplex:
        raise CommitmentRefused(
            RESOURCE_LIMITATION,
            "Too many references, or deeper than they lie: ask in several requests",
        ) from None
    except _NOT_A_DATA_SET:
        raise CommitmentRefused(INVALID_ARGUMENT, "Action Information cannot be read") from None
    if problem_of_uid(transaction_uid) is not None:
        raise CommitmentRefused(
            INVALID_ARGUMENT, "Transaction UID (0008,1195) is missing or not a UID"
        )
    if not references:
        raise CommitmentRefused(
            INVALID_ARGUMENT, "Referenced SOP Sequence (0008,1199) is missing or empty"
        )
    if not all(
        is_like_uid(item.sop_class_uid) and is_like_uid(item.sop_instance_uid)
        for item in references
    ):
        raise CommitmentRefused(
            INVALID_ARGUMENT, "Referenced SOP Sequence (0008,1199): an item lacks a UID"
        )
    return transaction_uid, tuple(dict.fromkeys(references))


def _references(information: Dataset) -> Iterator[SopReference]:
    for item in information.get("ReferencedSOPSequence") or ():
        yield SopReference(
            str(item.get("ReferencedSOPClassUID") or ""),
            str(item.get("ReferencedSOPInstanceUID") or ""),
        )

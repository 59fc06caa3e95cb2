"""A child that stores objects through intake and indexer, and dies at a chosen boundary.

Death comes from a function of the operating system (the outermost seam): just before or just after
the call for the second object.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian

from hilum.receive.headers.file_meta import FileMeta
from hilum.settings import Settings, restore
from tests.support.machine.forks import FORKS
from tests.support.server.taking import StoreRequest, store

# Where the child dies while it handles the second of two objects, and how many objects a scan then
# finds.
BOUNDARIES = {
    "after the part is written": 1,
    "after its bytes are out": 1,
    # complete but not acknowledged: kept, and the sender's repetition is a duplicate
    "after the rename": 2,
    "after its name is synced": 2,
    "after it has its place": 2,
    "after the row is committed": 2,
    "after it is settled": 2,
}
IN_ORDER, IN_NO_ORDER = "in order", "in no order"
_UIDS = ("1.2.3.1", "1.2.3.2")


def element(tag: int, vr: bytes, value: bytes) -> bytes:
    """One explicit VR little endian data element."""
    head = (tag >> 16).to_bytes(2, "little") + (tag & 0xFFFF).to_bytes(2, "little") + vr
    if vr in (b"OW", b"OB", b"UN", b"SQ"):
        return head + b"\0\0" + len(value).to_bytes(4, "little") + value
    return head + len(value).to_bytes(2, "little") + value


def uid_element(tag: int, uid: str) -> bytes:
    """A UI element, padded as it must be."""
    value = uid.encode()
    return element(tag, b"UI", value + b"\0" * (len(value) % 2))


def data_set(
    uid: str,
    *,
    study: str = "1.2.3",
    pixels: bytes = bytes(range(256)) * 64,
    patient_id: bytes = b"P1",
    order: bytes = b"",
    private: bytes = b"",
) -> bytes:
    """A small DX data set in explicit little endian, as bytes of our own making."""
    return b"".join(
        (
            uid_element(0x00080016, DigitalXRayImageStorageForPresentation),
            uid_element(0x00080018, uid),
            element(0x00080050, b"SH", order) if order else b"",
            element(0x00080060, b"CS", b"DX"),
            element(0x00091001, b"OB", private) if private else b"",
            element(0x00100020, b"LO", patient_id),
            uid_element(0x0020000D, study),
            uid_element(0x0020000E, f"{study}.1"),
            element(0x7FE00010, b"OW", pixels),
        )
    )


def meta(uid: str, transfer_syntax_uid: str = ExplicitVRLittleEndian) -> FileMeta:
    """What the command would say."""
    return FileMeta(
        DigitalXRayImageStorageForPresentation, uid, transfer_syntax_uid, "MODALITY", "HILUM"
    )


def store_until_killed(settings: Settings, boundary: str, order: str) -> list[str]:
    """Run the child until it kills itself; the UIDs that it acknowledged.

    `order`: whether it takes the file system for one that keeps names IN_ORDER.
    """
    receiver, sender = FORKS.Pipe(duplex=False)
    child = FORKS.Process(target=_store, args=(sender, settings.dump(), boundary, order))
    child.start()
    sender.close()
    acknowledged: list[str] = []
    with receiver, contextlib.suppress(EOFError):
        while True:
            acknowledged.append(receiver.recv())
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    return acknowledged


def _store(sender: Connection, settings_text: str, boundary: str, order: str) -> None:
    """The child."""
    from hilum.receive.indexing.indexer import Indexer
    from hilum.receive.storage.image_store import ImageStore
    from hilum.receive.storage.session import open_inbox
    from hilum.store.archive import durable_rename
    from hilum.store.ledger import Ledger

    durable_rename.is_in_order = lambda _mount: order == IN_ORDER
    settings = restore(settings_text)
    archive = open_inbox(settings, "listener-1")
    indexer = Indexer(settings, Ledger(settings.ledger_url), archive)
    intake = ImageStore(settings.receive, archive, indexer)
    for number, uid in enumerate(_UIDS):
        if number == 1:
            _arm(boundary)
        request = StoreRequest(
            meta(uid), DigitalXRayImageStorageForPresentation, memoryview(data_set(uid))
        )
        store(request, intake.begin)
        sender.send(uid)
    indexer.start()
    indexer.stop(30)


def _arm(boundary: str) -> None:
    if boundary in ("after the part is written", "after its bytes are out"):
        _arm_bytes(is_done=boundary == "after its bytes are out")
    elif boundary == "after the rename":
        os.rename = _die_at(os.rename)
    elif boundary == "after its name is synced":
        os.fsync = _die_at(os.fsync)
    elif boundary == "after it has its place":
        os.link = _die_at(os.link)
    else:  # the first object leaves `unindexed`
        os.unlink = _die_at(os.unlink, is_done=boundary == "after it is settled")


def _arm_bytes(*, is_done: bool) -> None:
    """Of the two only one is called, by the file system."""
    from hilum.store.archive import durable_rename

    os.fdatasync = _die_at(os.fdatasync, is_done=is_done)
    durable_rename.await_write_out = _die_at(durable_rename.await_write_out, is_done=is_done)


def _die_at(real: Callable[..., Any], *, is_done: bool = True) -> Callable[..., None]:
    """The real function and then the end, or only the end."""

    def function(*arguments: Any) -> None:
        if is_done:
            real(*arguments)
        os.kill(os.getpid(), signal.SIGKILL)

    return function

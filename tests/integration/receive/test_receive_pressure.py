"""Back-pressure on the wire: a disk that fills up rejects associations first, then refuses objects, and never holds half of one."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from pathlib import Path

import pytest
from pynetdicom import AE, _config
from pynetdicom.association import Association

from hilum.receive.association.counter import CounterSlot, SharedAssociationCounter
from hilum.receive.listener import serve_listener
from hilum.receive.storage.session import open_inbox
from hilum.store.ledger import Ledger
from hilum.store.queries.views import LedgerViews
from testing.phantoms import phantom
from tests.support.machine.disks import dead_disk, fill_to
from tests.support.peers.raw_scu import rejection_of
from tests.support.server.installation import wait_for
from tests.support.server.listening import ListenerProcess, make_settings, unindexed

MIB = 1 << 20
DX = "1.2.840.10008.5.1.4.1.1.1.1"


def associate(listener: ListenerProcess, called: str = "HILUM") -> Association:
    return associate_at(listener.port, called)


def associate_at(port: int, called: str = "HILUM") -> Association:
    ae = AE("MODALITY")
    ae.add_requested_context(DX)
    return ae.associate("127.0.0.1", port, ae_title=called)


def status(association: Association, seed: int) -> int:
    return int(
        association.send_c_store(phantom.make_instance(seed=seed, rows=256, columns=256)).Status
    )


def test_a_disk_that_fills_up(tiny_disk: Path) -> None:
    settings = make_settings(tiny_disk / "state", reserve_bytes=2 * MIB, reject_bytes=6 * MIB)
    with ListenerProcess(settings) as listener:
        early = associate(listener)
        assert status(early, 1) == 0x0000
        fill_to(tiny_disk, 5 * MIB)
        assert rejection_of(associate(listener)) == (2, 3, 2)
        assert status(early, 2) == 0x0000, "who is inside may finish"
        fill_to(tiny_disk, 2 * MIB)
        assert status(early, 3) == 0xA700
        wait_for(lambda: len(listener.rows("SELECT * FROM instance")) == 2, what="the rows")
        wait_for(lambda: not list(unindexed(listener.archive)), what="the files in their places")
        (tiny_disk / "fill").unlink()
        assert status(early, 3) == 0x0000
        early.release()
        again = associate(listener)
        assert again.is_established
        again.release()
        wait_for(
            lambda: len(listener.rows("SELECT * FROM association")) == 3, what="the associations"
        )
        (row,) = listener.rows("SELECT * FROM association WHERE outcome = 'rejected'")
        assert row["reason"] == "disk_nearly_full"
        assert "receive.reject_bytes" in row["advice"]


def test_a_queue_that_is_full_by_settings(tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "state", maximum_due_readings=2)
    with ListenerProcess(settings) as listener:
        first = associate(listener)
        assert [status(first, seed) for seed in (1, 2)] == [0, 0]
        first.release()
        wait_for(
            lambda: len(listener.rows("SELECT * FROM reading WHERE state = 'due'")) == 2,
            what="the readings",
        )
        wait_for(lambda: rejection_of(associate(listener)), what="the rejection")
        wait_for(
            lambda: listener.rows("SELECT * FROM association WHERE reason = 'queue_full'"),
            what="its row",
        )


def test_a_dead_mount_rejects_until_it_is_back(tmp_path: Path) -> None:
    with ListenerProcess(make_settings(tmp_path / "state")) as listener:
        first = associate(listener)
        assert status(first, 1) == 0x0000
        first.release()
        wait_for(lambda: not list(unindexed(listener.archive)), what="the file in its place")
        with dead_disk(listener.archive.root):
            assert rejection_of(associate(listener)) == (2, 3, 2)
            assert rejection_of(associate(listener, "NOT_HILUM")) == (
                1,
                1,
                7,
            ), "what is wrong for good is said all the same"
        again = associate(listener)
        assert status(again, 2) == 0x0000
        again.release()
        (row,) = wait_for(
            lambda: listener.rows(
                "SELECT * FROM association WHERE reason = 'archive_not_available'"
            ),
            what="its row",
        )
        assert "Transport endpoint is not connected" in row["advice"]


def test_a_request_that_cannot_be_judged_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Associations cannot be counted.

    The census cannot be locked through a descriptor that is for reading only.
    """
    for module, name in (
        (threading, "excepthook"),
        (_config, "LOG_HANDLER_LEVEL"),
        (_config, "PASS_CONTEXTVARS"),
    ):
        monkeypatch.setattr(
            module, name, getattr(module, name)
        )  # the listener sets them for its process, which is this one
    settings, stop, census = (
        make_settings(tmp_path / "state"),
        threading.Event(),
        SharedAssociationCounter(1),
    )
    ledger = Ledger(settings.ledger_url)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        arguments = (
            settings,
            listening,
            ledger,
            open_inbox(settings, "listener-1"),
            stop,
            None,
            CounterSlot(census),
        )
        serving = threading.Thread(target=serve_listener, args=arguments)
        read_only = os.open(os.devnull, os.O_RDONLY)
        os.dup2(read_only, census.descriptor)
        os.close(read_only)
        serving.start()
        try:
            assert rejection_of(associate_at(listening.getsockname()[1])) == (2, 3, 2)
            with contextlib.closing(LedgerViews(settings.ledger_url)) as views:
                (row,) = wait_for(lambda: views.associations()[0], what="its row")
            assert row["reason"] == "internal_error"
        finally:
            stop.set()
            serving.join()
    ledger.close()

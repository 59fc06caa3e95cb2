"""Promise 3 on the wire: a disk that fills up rejects associations first, then refuses objects, and never holds half of one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pynetdicom import AE
from pynetdicom.association import Association

from load_tests import phantom
from tests.support.disks import fill_to, small_disk
from tests.support.installation import wait_for
from tests.support.listening import ListenerProcess, make_settings, unindexed
from tests.support.raw_scu import rejection_of

MIB = 1 << 20
DX = "1.2.840.10008.5.1.4.1.1.1.1"


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB."""
    with small_disk(tmp_path / "disk", 16) as folder:
        yield folder


def associate(listener: ListenerProcess) -> Association:
    ae = AE("MODALITY")
    ae.add_requested_context(DX)
    return ae.associate("127.0.0.1", listener.port, ae_title="HILUM")


def status(association: Association, seed: int) -> int:
    return int(association.send_c_store(phantom.make_instance(seed=seed, rows=256, columns=256)).Status)


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
        wait_for(lambda: len(listener.rows("SELECT * FROM association")) == 3, what="the associations")
        (row,) = listener.rows("SELECT * FROM association WHERE outcome = 'rejected'")
        assert row["reason"] == "disk_nearly_full"
        assert "receive.reject_bytes" in row["advice"]


def test_a_queue_that_is_full_by_settings(tmp_path: Path) -> None:
    settings = make_settings(tmp_path / "state", maximum_due_readings=2)
    with ListenerProcess(settings) as listener:
        first = associate(listener)
        assert [status(first, seed) for seed in (1, 2)] == [0, 0]
        first.release()
        wait_for(lambda: len(listener.rows("SELECT * FROM reading WHERE state = 'due'")) == 2, what="the readings")
        wait_for(lambda: rejection_of(associate(listener)), what="the rejection")
        wait_for(lambda: listener.rows("SELECT * FROM association WHERE reason = 'queue_full'"), what="its row")

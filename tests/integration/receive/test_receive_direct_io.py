"""`receive.direct_io`: large objects go to the disk past the page cache, the same bytes with the same promises."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hilum.receive.storage.compiled import loaded
from hilum.store.archive.direct_io import takes_direct_io
from load_tests.proof.small_disk import may_mount
from testing.phantoms.phantom import make_instance, save
from tests.support.ledger.storing import data_set
from tests.support.machine.page_cache import can_be_dropped, is_in_memory
from tests.support.machine.waiting import wait_for
from tests.support.peers.peers import missing, require_program
from tests.support.peers.raw_scu import RawScu
from tests.support.peers.wire import Wire, message, pdu, pdv, store
from tests.support.server.listening import ListenerProcess, data_set_of, make_settings, unindexed

SIDE = 1500  # 4.5 MB an object
PDU_BYTES = 32 << 10


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[ListenerProcess]:
    if loaded()[0] is None:
        missing(f"large objects are received {loaded()[1]}")
    with ListenerProcess(make_settings(tmp_path / "state", direct_io=True)) as running:
        yield running


def count(listener: ListenerProcess) -> int:
    return int(listener.rows("SELECT count(*) FROM instance")[0][0])


def in_places(listener: ListenerProcess) -> list[Path]:
    wait_for(lambda: not list(unindexed(listener.archive)), what="the files in their places")
    return sorted(listener.archive.root.glob("[0-9a-f][0-9a-f]/*/*.dcm"))


@pytest.mark.parametrize("pdu_bytes", [4096, 16 << 10, 128 << 10])
def test_large_objects_arrive_bit_for_bit(
    listener: ListenerProcess, tmp_path: Path, pdu_bytes: int
) -> None:
    program = require_program("storescu", "dcmtk")
    files = [
        save(make_instance(number, rows=SIDE, columns=SIDE), tmp_path / f"{number}.dcm")
        for number in range(4)
    ]

    def send(file: Path) -> int:
        command = [
            program,
            "--max-send-pdu",
            str(pdu_bytes),
            "-aec",
            "HILUM",
            "127.0.0.1",
            str(listener.port),
            str(file),
        ]
        return subprocess.run(
            command, check=False, timeout=90, env={**os.environ, "TCP_NODELAY": "1"}
        ).returncode

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(send, files)) == [0] * len(files)
    wait_for(lambda: count(listener) == len(files))
    assert sorted(listener.data_sets().values()) == sorted(map(data_set_of, files))


def test_most_of_a_large_object_is_in_no_memory(listener: ListenerProcess) -> None:
    """Its beginning is, where the header is read again."""
    with RawScu(listener.port) as scu:
        assert scu.store(data_set("1.2.3", pixels=os.urandom(8 << 20)), "1.2.3") == (0, "")
    (file,) = in_places(listener)
    pages = [is_in_memory(file, at << 20) for at in range(1, 7)]
    if not can_be_dropped(file) or not takes_direct_io(file.parent):
        pytest.skip("this file system does not write past a page cache")
    assert pages == [False] * 6


def test_an_object_that_breaks_off_leaves_nothing(listener: ListenerProcess) -> None:
    content = data_set("1.2.3", pixels=bytes(8 << 20))
    with Wire(listener.port) as wire:
        pdus = [
            pdu(4, pdv(content[at : at + PDU_BYTES], is_last=False))
            for at in range(0, 5 << 20, PDU_BYTES)
        ]
        wire.send(message(store("1.2.3")), *pdus)
        wait_for(lambda: list(listener.archive.root.rglob("*.part")))
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    with RawScu(listener.port) as scu:
        assert scu.store(data_set("1.2.4", pixels=bytes(3 << 20)), "1.2.4") == (0, "")
    assert len(in_places(listener)) == 1
    wait_for(lambda: not list(listener.archive.root.rglob("*.part")))


def test_a_full_disk_is_a_status_and_space_is_the_cure(tmp_path: Path) -> None:
    """An ext4 of 64 MiB: the last block is written in part, and the page cache is asked, and says so, too."""
    program = require_program("mkfs.ext4", "e2fsprogs")
    if not may_mount():
        missing("a small file system can be mounted by root only")
    archive, image = tmp_path / "state/archive", tmp_path / "disk"
    archive.mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run([program, "-q", "-m", "0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, archive], check=True)
    try:
        with (
            ListenerProcess(
                make_settings(tmp_path / "state", direct_io=True, reject_bytes=0)
            ) as listener,
            RawScu(listener.port) as scu,
        ):
            answers = {
                uid: scu.store(data_set(uid, pixels=os.urandom(9 << 20)), uid)
                for uid in (f"1.2.{n}" for n in range(9))
            }
            stored = [uid for uid, (status, _) in answers.items() if status == 0]
            assert {f"{status:04X}" for status, _ in answers.values() if status} == {"A700"}
            assert 4 <= len(stored) < 8
            assert set(listener.data_sets()) == set(stored)
            in_places(listener)[0].unlink()
            assert scu.store(data_set("1.2.99", pixels=bytes(5 << 20)), "1.2.99") == (0, "")
    finally:
        subprocess.run(["umount", "-l", archive], check=True)

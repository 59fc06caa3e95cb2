"""However an association ends, nothing of it is left.

No thread, no descriptor, no half of an object.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.ledger.storing import data_set
from tests.support.machine.waiting import wait_for
from tests.support.peers.wire import ABORT, RELEASE, Wire, message, pdu, pdv, store
from tests.support.server.listening import ListenerProcess, make_settings, unindexed

ASSOCIATIONS, CLIENTS = 300, 6


def open_of(pid: int) -> tuple[int, int]:
    """Descriptors and threads."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return len(list(Path(f"/proc/{pid}/fd").iterdir())), int(status.split("Threads:")[1].split()[0])


def one_association(listener: ListenerProcess, number: int) -> int:
    """An object each; a third are released, a third aborted, a third just closed, some inside a second object."""
    uid = f"1.2.500.{number}"
    with Wire(listener.port, calling="STRESS") as wire:
        wire.send(message(store(uid), data_set(uid)))
        status = wire.status()
        if number % 2:
            wire.send(
                message(store("1.2.3")),
                pdu(4, pdv(data_set("1.2.3", pixels=bytes(40_000)), is_last=False)),
            )
        wire.send((RELEASE, ABORT, b"")[number % 3])
    return status


def test_300_associations_leave_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    with ListenerProcess(make_settings(tmp_path / "state")) as listener:
        assert listener.child is not None
        pid = listener.child.pid
        assert one_association(listener, 0) == 0
        settle(listener, 1)
        before = open_of(pid)
        with ThreadPoolExecutor(CLIENTS) as pool:
            statuses = list(
                pool.map(lambda number: one_association(listener, number), range(1, ASSOCIATIONS))
            )
        assert statuses == [0] * (ASSOCIATIONS - 1)
        settle(listener, ASSOCIATIONS)
        wait_for(lambda: open_of(pid)[0] <= before[0] + 2, what="the last descriptors to go")
        wait_for(lambda: open_of(pid)[1] <= before[1], what="the last threads to go")


def settle(listener: ListenerProcess, count: int) -> None:
    """Every association has its row, every object too and its place, and a moment for the last thread to go."""
    wait_for(
        lambda: (
            [len(listener.rows(f"SELECT 1 FROM {table}")) for table in ("association", "instance")]
            == [count, count]
        ),
        what="rows",
    )
    wait_for(lambda: not list(unindexed(listener.archive)), what="the files in their places")
    time.sleep(0.5)

"""CPU accounting on real processes that use a known amount."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from testing.accounting import (
    Accountant,
    Usage,
    hilum_role,
    proportional_bytes,
    roles,
    snapshot,
    spent,
    thread_seconds,
    total,
)
from testing.repeater import Repeater
from tests.support.machine.waiting import wait_for

BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"
WAIT = "import sys\nprint('done', flush=True)\nsys.stdin.read()\n"
Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a Python script and waits for its first line; ended with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start_one(script: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        return process

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def by_mark(command: list[str], parent_role: str) -> str:
    return "child" if "child" in command else "parent"


def parent_of(child: str, *, waits: bool) -> str:
    """A script that starts a child and says `done` when the child says it, or has ended."""
    ending = "c.wait()\n" if waits else "c.stdout.readline()\n"
    return (
        f"import subprocess, sys\nc = subprocess.Popen([sys.executable, '-c', {child!r}, 'child'],"
        " stdout=subprocess.PIPE, stdin=subprocess.PIPE)\n" + ending + WAIT
    )


def test_a_process_that_burnt_half_a_second_is_charged_with_it(start: Start) -> None:
    process = start(BURN.format(seconds=0.5) + WAIT)
    use = snapshot(process.pid)["supervisor"]
    assert 0.5 <= use.cpu_seconds < 0.9
    assert use.processes == 1
    assert use.rss_bytes > 4 << 20
    assert 0 < proportional_bytes(process.pid) <= use.rss_bytes


def test_threads_are_charged_after_they_have_ended(start: Start) -> None:
    threads = (
        "import threading\nt = threading.Thread(target=lambda:"
        " sum(range(8_000_000)))\nt.start()\nt.join()\n"
    )
    alive = start(threads + WAIT)
    wait_for(
        lambda: len(list(Path(f"/proc/{alive.pid}/task").iterdir())) == 1,
        what="the kernel's thread to end, which Python has joined",
    )
    used = snapshot(alive.pid)["supervisor"].cpu_seconds
    assert used > sum(thread_seconds(alive.pid).values()) + 0.02


def test_a_child_has_a_role_of_its_own(start: Start) -> None:
    process = start(parent_of(BURN.format(seconds=0.3) + WAIT, waits=False))
    use = snapshot(process.pid, by_mark)
    assert 0.3 <= use["child"].cpu_seconds < 0.6
    assert use["parent"].cpu_seconds < 0.3
    assert sorted(roles(process.pid, by_mark).values()) == ["child", "parent"]
    assert total(use).processes == 2


def test_the_cpu_of_a_child_that_ended_is_kept_once(start: Start) -> None:
    child = BURN.format(seconds=0.5) + WAIT
    script = (
        "import subprocess, sys\nP = subprocess.PIPE\n"
        f"c = subprocess.Popen([sys.executable, '-c', {child!r}, 'child'], stdout=P, stdin=P)\n"
        "c.stdout.readline()\nprint('done', flush=True)\nsys.stdin.readline()\n"
        "c.stdin.close()\nc.wait()\nprint('ended', flush=True)\nsys.stdin.read()\n"
    )
    process = start(script)
    assert process.stdin is not None
    assert process.stdout is not None
    with Accountant(process.pid, by_mark) as accountant:
        assert accountant.snapshot()["child"].processes == 1
        process.stdin.write(b"end it\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"ended\n"
        use = accountant.snapshot()
    assert use["child"].cpu_seconds >= 0.5
    assert use["child"].processes == 0
    assert use["child"].rss_bytes == 0
    assert 0.5 <= total(use).cpu_seconds < 1.0, "counted once"


def test_the_cpu_of_a_child_that_nobody_saw_goes_to_its_parent(start: Start) -> None:
    process = start(parent_of(BURN.format(seconds=0.3), waits=True))
    assert 0.28 <= snapshot(process.pid, by_mark)["parent"].cpu_seconds < 0.6


def test_a_child_whose_parent_died_still_belongs_to_the_tree(start: Start) -> None:
    process = start(
        parent_of(
            BURN.format(seconds=0.1)
            + WAIT.replace("sys.stdin.read()", "import time; time.sleep(30)"),
            waits=False,
        )
    )
    with Accountant(process.pid, by_mark) as accountant:
        process.kill()
        process.wait()
        use = accountant.snapshot()
        (orphan,) = accountant.roles()
    assert use["child"].processes == 1
    assert use["parent"].processes == 0
    subprocess.run(["kill", str(orphan)], check=True)


def test_a_role_that_depends_on_the_parent_stays_the_same(start: Start) -> None:
    def by_parent(_command: Sequence[str], parent_role: str) -> str:
        return f"{parent_role}+"

    process = start(parent_of(parent_of(WAIT, waits=False), waits=False))
    accountant = Accountant(process.pid, by_parent)
    for _ in range(3):
        accountant.look()
        assert sorted(accountant.roles().values()) == ["+", "++", "+++"]


def test_spent_is_the_difference_in_cpu_and_the_later_memory() -> None:
    before, after = (
        {"api": Usage(1.0, 10, 1)},
        {"api": Usage(1.5, 20, 1), "decode": Usage(2.0, 30, 2)},
    )
    assert spent(before, after) == {"api": Usage(0.5, 20, 1), "decode": Usage(2.0, 30, 2)}


def test_a_process_that_is_gone_has_no_use() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert snapshot(process.pid) == {}


@pytest.mark.parametrize(
    ("command", "parent_role", "role"),
    [
        (["python", "hilum", "serve", "--config", "hilum.toml"], "", "supervisor"),
        (["python", "-m", "hilum.processes", "listener-0"], "supervisor", "listener"),
        (["python", "-m", "hilum.processes", "analyser-1"], "supervisor", "analyser"),
        (
            [
                "python",
                "-c",
                "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)",
            ],
            "analyser",
            "decode",
        ),
        (
            [
                "python",
                "-c",
                "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)",
            ],
            "dispatcher",
            "report",
        ),
        (
            ["python", "-c", "from multiprocessing.resource_tracker import main;main(5)"],
            "analyser",
            "other",
        ),
        (
            ["/x/tritonserver/bin/tritonserver", "--model-repository", "m"],
            "supervisor",
            "tritonserver",
        ),
        (
            ["/x/tritonserver/backends/python/triton_python_backend_stub", "m"],
            "tritonserver",
            "triton-stub",
        ),
    ],
)
def test_roles_of_hilum(command: list[str], parent_role: str, role: str) -> None:
    assert hilum_role(command, parent_role) == role


class Broken(Repeater):
    """Breaks at its first look."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.has_looked = threading.Event()

    def look(self) -> None:
        self.has_looked.set()
        raise ZeroDivisionError


def test_a_watcher_that_breaks_is_heard_of_at_the_end_of_its_block() -> None:
    with pytest.raises(ZeroDivisionError), Broken() as watcher:
        watcher.has_looked.wait(30)

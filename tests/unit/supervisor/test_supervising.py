"""What becomes of the other processes when one of them cannot be started, or never could."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from hilum.backoff import RESTART
from hilum.services.launch_spec import process_name
from hilum.settings import Settings, Site
from hilum.store.ledger import Ledger
from hilum.supervisor.supervisor import Child, Supervisor
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.street import Clock, Street


def test_a_weekend_of_failures_is_a_pause_like_any() -> None:
    assert [RESTART.after(count) for count in (0, 3, 40, 1024, 10**6)] == [
        1.0,
        8.0,
        30.0,
        30.0,
        30.0,
    ]


def test_who_ends_before_it_has_its_charge_is_paused_for_as_any_other(tmp_path: Path) -> None:
    """In a process of its own, whose children are programs that read nothing."""
    migrated_sqlite(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", _DEAF, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "room=supervisor" not in line] == [
        "1 True",
        "2 True",
        "3 True",
    ], done.stdout


def test_what_a_process_held_that_was_killed_at_a_stop_has_been_tried(
    tmp_path: Path, clock: Clock
) -> None:
    url = migrated_sqlite(tmp_path)
    ledger, child = Ledger(url, clock), Child("dispatcher", 0)
    street = Street(ledger, clock)
    street.receive("1.2.3", 1)
    child.process = subprocess.Popen(["true"])
    child.process.wait()
    (first,) = ledger.claim("analyse", 1, process_name("dispatcher", child.process.pid), 60)
    Supervisor(Settings(site=Site(state_dir=tmp_path)), "dispatcher")._give_back([child])
    (again,) = ledger.claim("analyse", 1, "another", 60)
    assert (first.lease.attempts, again.lease.attempts, again.lease.lapses) == (1, 2, 0)
    ledger.close()


def test_without_room_for_a_process_the_others_go_on(tmp_path: Path) -> None:
    """In a process of its own, which may have no more children for a while.

    Real ones of it go on.
    """
    migrated_sqlite(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", _SCARCE, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if "room=supervisor" not in line]
    assert said == ["waits True True", "started"], done.stdout + done.stderr


_SCARCE = """
import errno, subprocess, sys, time
from pathlib import Path
from hilum.settings import Settings, Site
from hilum.store.ledger import Ledger
from hilum.supervisor import supervisor as running
from hilum.supervisor.supervisor import Child, Supervisor

settings = Settings(site=Site(state_dir=Path(sys.argv[1])))
supervisor = Supervisor(settings, "dispatcher")
child, real, ledger = Child("dispatcher", 0), subprocess.Popen, Ledger(settings.ledger_url)
def no_room(*_, **__):
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
subprocess.Popen = no_room
supervisor._look_at(child, ledger)
print("waits" if child.process is None else "started", child.restart_at > time.monotonic() - 60, child.restarts == 1)
subprocess.Popen = lambda *_, **how: real(["true"], stdin=how["stdin"])
child.restart_at = 0.0
supervisor._look_at(child, ledger)
print("started" if child.process is not None else "waits")
child.process.wait()
"""

_DEAF = """
import subprocess, sys, time
from pathlib import Path
from hilum.settings import Settings, Site
from hilum.store.ledger import Ledger
from hilum.supervisor.supervisor import Child, Supervisor

settings = Settings(site=Site(state_dir=Path(sys.argv[1])))
supervisor, child, ledger, real = Supervisor(settings, "dispatcher"), Child("dispatcher", 0), Ledger(settings.ledger_url), subprocess.Popen
def deaf(*_, **how):
    process = real(["sh", "-c", "exec <&-"], stdin=how["stdin"])
    while process.poll() is None:
        time.sleep(0.01)
    process.returncode = None  # as if nobody had looked
    process.poll = lambda: 0
    return process
subprocess.Popen = deaf
for count in range(3):
    supervisor._look_at(child, ledger)
    supervisor._look_at(child, ledger)
    print(child.restarts, child.process is None)
    child.restart_at = 0.0
"""

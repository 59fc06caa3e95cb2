"""What becomes of the other processes when one of them cannot be started, or never could."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hilum.supervisor import supervising, triton_keeper
from tests.support.ledgers import migrated_sqlite


@pytest.mark.parametrize("pause", [supervising._pause, triton_keeper._pause])
def test_a_weekend_of_failures_is_a_pause_like_any(pause) -> None:
    assert [pause(count) for count in (40, 1024, 10**6)] == [30.0, 30.0, 30.0]


def test_without_room_for_a_process_the_others_go_on(tmp_path: Path) -> None:
    """In a process of its own, which may have no more children for a while: real ones of it go on."""
    migrated_sqlite(tmp_path)
    done = subprocess.run([sys.executable, "-c", _SCARCE, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if "room=supervisor" not in line]
    assert said == ["waits True True", "started"], done.stdout + done.stderr


_SCARCE = """
import errno, subprocess, sys, time
from pathlib import Path
from hilum.settings import Settings, Site
from hilum.store.ledger import Ledger
from hilum.supervisor import supervising
from hilum.supervisor.supervising import Child, Supervisor

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

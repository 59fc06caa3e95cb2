"""Hosts of the fleet: their links, disks and clocks; and that nothing of them stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from load_tests.fleet.isolation import problem
from testing.serving import REPOSITORY
from tests.support.machine.waiting import wait_for

_LINES = [
    "name one",
    "shared shared",
    "cut False",
    "healed True",
    "ahead 300.0",
    "off False",
    "on one",
    "hosts are on",
]
_OUTSIDE = (
    "import sys; from load_tests.fleet.isolation import run_alone;"
    " sys.exit(run_alone('tests.support.machine.small_fleet', sys.argv[1:]))"
)


def test_hosts_are_apart_and_a_killed_testbed_leaves_nothing(tmp_path: Path) -> None:
    if reason := problem():
        pytest.skip(reason)
    with subprocess.Popen(
        [sys.executable, "-c", _OUTSIDE, str(tmp_path)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    ) as outside:
        assert outside.stdout is not None
        try:
            lines = [outside.stdout.readline().strip() for _ in _LINES]
            assert lines == _LINES
            assert _processes_with(str(tmp_path))
        finally:
            outside.kill()
    wait_for(lambda: not _processes_with(str(tmp_path)), what="the end of all processes")


def _processes_with(word: str) -> list[int]:
    """Processes of this machine whose command line has the word."""
    found = []
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdigit() and word.encode() in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found

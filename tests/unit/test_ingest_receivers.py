"""CPU of a receiver that forks, as `make bench-ingest` counts it."""

from __future__ import annotations

import subprocess
import sys

from load_tests.ingest_receivers import _ticks_of_all

# As `storescp --fork`: each child works for a moment, ends, and is waited for.
_FORKING = """
import os, time
for _ in range(40):
    if (child := os.fork()) == 0:
        until = time.process_time() + 0.02
        while time.process_time() < until:
            pass
        os._exit(0)
    os.waitpid(child, 0)
"""


def test_nothing_is_lost_while_children_are_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", _FORKING + "print('done', flush=True)\ninput()"], stdin=-1, stdout=-1) as parent:
        looks = [sum(map(sum, _ticks_of_all(parent.pid))) for _ in range(3000)]
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"done\n"
        looks.append(sum(map(sum, _ticks_of_all(parent.pid))))
        parent.communicate(b"\n")
    assert looks == sorted(looks)
    assert looks[-1] > 0

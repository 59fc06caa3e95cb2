"""Receivers of `make bench-ingest`.

CPU of one that forks, as it is counted, and what Orthanc takes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pynetdicom import AE
from pynetdicom.sop_class import Verification

from load_tests.ingest.cells import LARGE_PDU
from load_tests.ingest.peers import start_orthanc
from load_tests.ingest.receivers import _ticks_of_all
from testing.peers import Orthanc

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
    with subprocess.Popen(
        [sys.executable, "-c", _FORKING + "print('done', flush=True)\ninput()"], stdin=-1, stdout=-1
    ) as parent:
        looks = [sum(map(sum, _ticks_of_all(parent.pid))) for _ in range(3000)]
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"done\n"
        looks.append(sum(map(sum, _ticks_of_all(parent.pid))))
        parent.communicate(b"\n")
    assert looks == sorted(looks)
    assert looks[-1] > 0


def test_orthanc_takes_pdus_of_the_size_that_its_cells_name(tmp_path: Path) -> None:
    if Orthanc.program() is None:
        pytest.skip("Orthanc is not installed")
    receiver = start_orthanc(tmp_path)
    try:
        sender = AE()
        sender.add_requested_context(Verification)
        association = sender.associate("127.0.0.1", receiver.port)
        assert association.is_established
        assert association.acceptor.maximum_length == LARGE_PDU
        association.release()
    finally:
        receiver.close()

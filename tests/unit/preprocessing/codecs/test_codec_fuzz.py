"""Damaged codestreams in a process of their own.

It lives to the end, within its memory, and no cut is decoded to anything else.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
CASES = int(os.environ.get("HILUM_FUZZ_CASES", "1000"))
SECONDS = 60 + CASES // 10


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    trace = tmp_path_factory.mktemp("fuzz") / "case"
    command = [
        sys.executable,
        "-m",
        "tests.support.objects.codec_fuzz",
        "--cases",
        str(CASES),
        "--trace",
        str(trace),
    ]
    done: subprocess.CompletedProcess[Any] = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, (
        f"ended with {done.returncode} at {trace.read_text()}: {done.stderr[-2000:]}"
    )
    return dict(json.loads(done.stdout))


def test_every_case_is_refused_or_decoded(ended):
    assert sum(ended.values()) == CASES


def test_no_cut_is_decoded_to_something_else(ended):
    assert ended["cut refused"] > 0
    assert "cut decoded to something else" not in ended
    assert "cut decoded" not in ended


def test_damage_is_mostly_seen(ended):
    """A flipped bit of a coefficient or difference is not.

    No codestream of these has a checksum.
    """
    refused = sum(count for name, count in ended.items() if name.endswith("refused"))
    assert refused > sum(ended.values()) / 2

"""`make demo` as a newcomer runs it: on real parts, from nothing to a valid report in a PACS."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DEMO_EXIT": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "deploy/demo.py"), *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400, check=False
    )


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_the_demo_ends_with_a_valid_report() -> None:
    done = demo()
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    text = done.stdout
    for heading in (
        "REST: GET",
        "The structured report",
        "Time of each stage",
        "Delivered to",
        "Look around",
    ):
        assert f"== {heading}" in text
    assert '"study_instance_uid": "2.25.' in text
    assert "Imaging Measurement Report" in text
    assert "SR accepted by the destination" in text
    assert "/docs" in text
    assert "/metrics" in text
    assert "valid:" in text
    assert text.rstrip().endswith("a valid SR arrived; stopping")
    addresses = ("http", "/tmp", "settings, log", "densenet121")
    assert [
        line
        for line in text.splitlines()
        if len(line) > 80 and not any(word in line for word in addresses)
    ] == []


def test_a_file_that_is_no_dicom_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no DICOM")
    done = demo(str(path))
    assert done.returncode == 1
    assert "no DICOM file with a Study Instance UID" in done.stderr
    assert "make demo STUDY=path" in done.stderr

"""The page "First PACS", followed word by word: images in from Orthanc, a report back."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from pathlib import Path

import pytest

from testing.serving import BUILT_MODELS, REPOSITORY, free_ports
from testing.tutorial import follow
from tests.support.peers.peers import missing, require_program

PAGE = REPOSITORY / "docs/start/first_pacs.md"
PORTS = ("11112", "4242", "8042", "8640")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_page_ends_with_a_report_in_the_pacs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orthanc = Path(require_program("Orthanc", "orthanc"))
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}{os.pathsep}{orthanc.parent}")
    if shutil.which("curl") is None:
        missing("curl is not installed (Debian package curl)")
    text = PAGE.read_text(encoding="utf-8")
    for there, ours in zip(PORTS, free_ports(len(PORTS)), strict=True):
        text = text.replace(there, str(ours))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("HILUM_")},
        "COLUMNS": "80",
        "PYTHONPATH": str(REPOSITORY),
        "HILUM_MODELS__BUILT": str(BUILT_MODELS),
    }
    try:
        commands = list(follow(text, tmp_path, environment))
    finally:
        end(tmp_path)
    assert commands[-1] == "kill $(cat hilum.pid orthanc.pid)"


def end(folder: Path) -> None:
    """Stop the servers of a page that was left early."""
    for path in folder.glob("*.pid"):
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.kill(int(path.read_text()), signal.SIGTERM)

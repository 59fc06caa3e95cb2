"""deploy/debian-packages.sh with a stand-in for dpkg-query.

It must never surprise somebody who is not root.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "deploy/debian-packages.sh"


def run(folder: Path, *, installed: bool) -> subprocess.CompletedProcess[str]:
    """The script as user 1000, on a machine where all packages are installed, or none."""
    programs = {
        "dpkg-query": f"echo {'installed' if installed else 'not-installed'}",
        "id": "echo 1000",
        "apt-get": "echo CALLED; exit 9",
    }
    for name, body in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{body}\n")
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", SCRIPT], env=environment, capture_output=True, text=True, check=False
    )


def test_nothing_is_said_when_nothing_is_missing(tmp_path: Path) -> None:
    done = run(tmp_path, installed=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_root_the_command_is_printed_and_nothing_is_installed(tmp_path: Path) -> None:
    done = run(tmp_path, installed=False)
    assert done.returncode == 0
    assert f"sudo {SCRIPT}" in done.stdout
    assert "missing: python3.11 " in done.stdout
    assert "orthanc" in done.stdout
    assert "CALLED" not in done.stdout


def test_another_system_is_told_what_it_needs(tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/bash", SCRIPT],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "not a Debian system" in done.stdout
    assert "libpython3.11" in done.stdout

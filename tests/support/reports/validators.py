"""Validators of dicom3tools over any of our documents, and programs that give back their content."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.support.peers.peers import require_program
from tests.support.reports import sr_gate


def complaints(program: str, *files: Path) -> list[str]:
    """The errors and warnings of a validator, without those that `sr_gate` knows to be harmless."""
    require_program(program, "dicom3tools")
    flag = {"dciodvfy": "-new", "dcentvfy": "-v"}[program]
    lines = [
        line
        for line in output_of("dicom3tools", program, flag, *map(str, files)).splitlines()
        if re.search(r"\b(Error|Warning|Abort)\b", line)
    ]
    return [
        line
        for line in lines
        if not sr_gate._DEVICE_UID.search(line) and not sr_gate._ACCESSION.search(line)
    ]


def output_of(package: str, program: str, *arguments: str) -> str:
    """All that a program of this Debian package prints; the test skips where it is missing."""
    require_program(program, package)
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout + done.stderr

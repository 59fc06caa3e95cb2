"""DCMTK's commands are DCMTK's in an activated environment, as the documentation shows them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from deploy.dcmtk_names import names, remove
from tests.support.peers.peers import require_program

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = Path(sysconfig.get_path("scripts"))
_PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Programs of DCMTK that end by themselves, at the beginning of a line or of a quoted command.
_NAMES = "storescu|echoscu|findscu|movescu|getscu|dcmsend|dcmdump|dcm2pnm|dcmconv|dsr2html|dsrdump"
_SHOWN = re.compile(rf"(?:^|`)((?:{_NAMES}) [^`\n|]*)", re.MULTILINE)


def shown() -> list[str]:
    found = (
        match.strip()
        for page in _PAGES
        for match in _SHOWN.findall(page.read_text(encoding="utf-8"))
    )
    return [
        line for line in dict.fromkeys(found) if re.search(r"[./\d]|-\w", line)
    ]  # with an argument: no prose


def test_those_of_pynetdicom_are_removed_and_nothing_else(tmp_path):
    others = {"hilum", "storescu2", "python"}
    for name in (*names(), *others):
        (tmp_path / name).touch()
    assert (
        {path.name for path in remove(tmp_path)}
        == set(names())
        >= {"storescu", "echoscu", "storescp", "findscu"}
    )
    assert {path.name for path in tmp_path.iterdir()} == others
    assert remove(tmp_path) == []


def test_this_environment_has_none_of_them():
    assert not {name for name in names() if (SCRIPTS / name).exists()}, (
        "they shadow DCMTK's: make setup, or python deploy/dcmtk_names.py"
    )


def test_the_set_up_removes_them_after_each_installation():
    script = (ROOT / "deploy/setup.sh").read_text(encoding="utf-8")
    installed, removed, stamped = (
        script.rindex(text) for text in ("--editable .", "deploy/dcmtk_names.py", '>"$stamp"')
    )
    assert installed < removed < stamped


@pytest.mark.parametrize("line", shown())
def test_a_documented_command_has_arguments_that_dcmtk_takes(tmp_path, line):
    """In an activated environment, with files that are not there.

    DCMTK looks at the arguments first.
    """
    command = shlex.split(line)
    require_program(command[0], "dcmtk")
    path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    assert Path(shutil.which(command[0], path=path)).parent != SCRIPTS
    answer = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    said = f"{answer.stdout}{answer.stderr}"
    for wrong in (
        "usage:",
        "Unknown option",
        "nvalid command line",
        "Missing parameter",
        "Missing value",
        "unrecognized arguments",
    ):
        assert wrong not in said, said

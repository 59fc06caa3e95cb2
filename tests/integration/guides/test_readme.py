"""README "First use with a PACS", followed to the letter.

What a newcomer types ends with a report in a real PACS.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pydicom
import pytest
from pydicom.uid import Comprehensive3DSRStorage

from testing.peers import Orthanc
from testing.serving import BUILT_MODELS, REPOSITORY, free_ports
from tests.support.peers.peers import require_program

HEADING = "## First use with a PACS"
PACS = {
    "pacs.example.org": "127.0.0.1",
    "port = 104": "port = {port}",
    'ae_title = "PACS"': 'ae_title = "ORTHANC"',
}
# A line that is done already where tests run, and may not be done twice at once.
SET_UP = "make setup"


def block() -> list[str]:
    """Its commands, one a line."""
    section = (REPOSITORY / "README.md").read_text(encoding="utf-8").partition(HEADING)[2]
    found = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1].splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As a fresh clone lies there once `make setup` is done."""
    for name in (".venv", "deploy", "model_repository", "testing"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    return tmp_path


@pytest.fixture
def pacs(tmp_path: Path) -> Iterator[Orthanc]:
    require_program("Orthanc", "orthanc")
    with Orthanc(tmp_path / "pacs") as peer:
        yield peer


def named(line: str, pacs: Orthanc, port: int) -> str:
    """The line, and after the copy of the settings what its comment asks for.

    The PACS is named in them.
    """
    here = line.replace(":11112", f":{port}")
    if not line.startswith("cp deploy/hilum.toml"):
        return here
    edits = [f"s/{there}/{ours.format(port=pacs.dicom_port)}/" for there, ours in PACS.items()]
    return "\n".join([here, *(f"sed -i '{edit}' hilum.toml" for edit in edits)])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_first_use_ends_with_a_report_in_the_pacs(checkout: Path, pacs: Orthanc) -> None:
    port, api_port = free_ports(2)
    lines = [named(line, pacs, port) for line in block() if not line.startswith(SET_UP)]
    (checkout / "block.sh").write_text(
        "\n".join(["set -euo pipefail", *lines, 'echo "uid: $uid"']) + "\n"
    )
    # Only what the machine of the tests shares with others: ports, and models that are built
    # already.
    environment = {
        **os.environ,
        "HILUM_RECEIVE__PORT": str(port),
        "HILUM_API__PORT": str(api_port),
        "HILUM_MODELS__BUILT": str(BUILT_MODELS),
    }
    words = checkout / "block.log"  # a pipe would stay open as long as the server that it starts
    with words.open("wb") as target:
        process = subprocess.Popen(
            ["bash", "block.sh"],
            cwd=checkout,
            env=environment,
            stdout=target,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        process.wait(timeout=500)
    finally:
        end(process.pid)
    output = words.read_text()
    assert process.returncode == 0, output[-3000:] + said_by_the_server(checkout)[-3000:]
    log = said_by_the_server(checkout)
    assert re.search(r"checks, 0 problems$", output, re.MULTILINE), output
    (uid,) = re.findall(
        r'"sop_instance_uid": "([0-9.]+)",\n\s+"series_instance_uid":'
        r' "[0-9.]+",\n\s+"predecessor_uid"',
        output,
    )[:1]
    report = pacs.fetch(uid)
    assert report is not None, "the report does not lie in the PACS"
    dataset = pydicom.dcmread(report)
    assert (dataset.SOPClassUID, dataset.StudyInstanceUID) == (
        Comprehensive3DSRStorage,
        output.rstrip().rpartition("uid: ")[2],
    )
    assert len([line for line in log.splitlines() if "study_reported" in line]) == 1
    assert "document_withheld" not in log


def said_by_the_server(checkout: Path) -> str:
    """Its log; nothing where the block ended before it started."""
    log = checkout / "hilum.log"
    return log.read_text() if log.exists() else ""


def end(group: int) -> None:
    """Stop the server that the block has started.

    It takes its time, and its ports and files are ours until then.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)
        for _ in range(300):
            os.killpg(group, 0)
            time.sleep(0.1)
        os.killpg(group, signal.SIGKILL)

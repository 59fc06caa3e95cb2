"""Storage commitment by a whole server: every process is killed after its Success, and the report goes out after the next start."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from pydicom.uid import generate_uid

from load_tests.serving import Hilum
from tests.support.committing import CommitmentScu
from tests.support.installation import START_SECONDS, all_processes, hilum_with, kill, save_all, send_to, small_study, wait_for
from tests.support.models import make_tiny

pytestmark = pytest.mark.slow


def is_ready(server: Hilum, role: str) -> bool:
    try:
        return server.get(f"/health/ready?role={role}").status_code == 200
    except httpx.TransportError:
        return False


def start(server: Hilum) -> None:
    server.__enter__()
    for role in ("receive", "deliver"):
        wait_for(lambda role=role: is_ready(server, role), START_SECONDS, f"{role} to be ready")  # type: ignore[misc]


def test_a_report_that_is_owed_survives_kill_9_of_the_whole_server(tmp_path: Path) -> None:
    images, transaction_uid = small_study(71), generate_uid()
    references = [(str(image.SOPClassUID), str(image.SOPInstanceUID)) for image in images]
    with CommitmentScu("ROUTER") as scu:
        address = {"commitment.ROUTER": {"host": "127.0.0.1", "port": scu.port}}
        server = hilum_with(tmp_path / "server", make_tiny(tmp_path / "tiny"), {}, **address)
        try:
            start(server)
            assert send_to(server, save_all(tmp_path / "images", images)).is_ok
            scu.may_answer.clear()
            assert scu.ask(server.dicom_port, transaction_uid, references) == 0
            kill(all_processes(server))
            scu.may_answer.set()
            before = scu.reports.qsize()  # none; or one that the dead server has sent, and that nobody answered
            start(server)
            report = [scu.next_report() for _ in range(before + 1)][-1]
            assert (report.event_type, sorted(report.committed)) == (1, sorted(references))
            (found,) = wait_for(lambda: server.get("/api/v1/commitments?state=reported").json()["commitments"])
            assert (found["transaction_uid"], found["committed"], found["failed"]) == (transaction_uid, 2, 0)
            # A stage counts an item when its row has been written.
            counted = 'hilum_stage_outcomes_total{reason="",stage="commit",state="reported"} 1.0'
            wait_for(lambda: counted in server.get("/metrics").text, what="the count")
            assert 'hilum_commitment_instances_total{outcome="committed"} 2.0' in server.get("/metrics").text
        finally:
            server.stop()
    assert scu.reports.empty(), "one report for one request"

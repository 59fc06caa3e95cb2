"""What an operator does to a running server.

Retention, pause, complete, backup and restore, erasure; and what a role refuses.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from hilum.cli import app
from hilum.store.migrations.migrate import migrate
from testing.serving import Hilum
from tests.support.models.releases import Tiny
from tests.support.server.installation import (
    START_SECONDS,
    Receiver,
    free_ports,
    hilum_with,
    receiver_section,
    save_all,
    send_to,
    small_study,
    wait_for,
)

pytestmark = pytest.mark.slow

KEPT_SECONDS = 2.0
NAME, PATIENT = "Zwingli^Ottilie", "PID-4711-OZ"


@pytest.fixture(scope="module")
def pacs() -> Iterator[Receiver]:
    (port,) = free_ports(1)
    with Receiver(port) as running:
        running.port = port  # type: ignore[attr-defined]
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny, pacs: Receiver) -> Iterator[Hilum]:
    destinations = {"pacs": receiver_section(pacs.port, accept_untrained=True)}  # type: ignore[attr-defined]
    retention = {"days": KEPT_SECONDS / 86400, "check_seconds": 0.3}
    with hilum_with(
        tmp_path_factory.mktemp("operated"), tiny, destinations, retention=retention
    ) as running:
        running.wait_until_ready(START_SECONDS)
        yield running


def hilum(server: Hilum, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """A command beside the running server.

    In this process, which has imported all that it needs.
    """
    command = server.command(*map(str, words))[1:]
    apart: dict[str, str | None] = {name: None for name in os.environ if name.startswith("HILUM_")}
    answer = CliRunner().invoke(app, command, env=apart, catch_exceptions=False)
    return subprocess.CompletedProcess(command, answer.exit_code, answer.stdout, answer.stderr)


def serve(server: Hilum, *words: str) -> subprocess.CompletedProcess[str]:
    """A server that ends by itself."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("HILUM_")
    }
    return subprocess.run(
        server.command("serve", *words),
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        check=False,
    )


def study(server: Hilum, uid: str) -> dict[str, Any]:
    answer = server.get(f"/api/v1/studies/{uid}")
    return answer.json() if answer.is_success else {"images": [], "results": [], "state": "none"}


def deliveries(server: Hilum, uid: str) -> list[str]:
    found = study(server, uid)["results"]
    papers = [paper for result in found for paper in result["documents"] if paper["kind"] == "sr"]
    return [way["state"] for paper in papers for way in paper["deliveries"]]


def pixels(server: Hilum, *, folder: str = "archive") -> list[Path]:
    return sorted((server.folder / "state" / folder).rglob("*.dcm"))


def is_up(server: Hilum) -> bool:
    try:
        return server.get("/health/ready?role=receive").is_success
    except httpx.TransportError:
        return False


def test_pixels_leave_after_delivery_and_a_late_image_still_counts_them(
    server: Hilum, tmp_path: Path
) -> None:
    images = small_study(71)
    uid = images[0].StudyInstanceUID
    paths = save_all(tmp_path, images)
    assert send_to(server, paths[:1]).is_ok
    assert pixels(server), "not delivered, so not removed"
    wait_for(lambda: deliveries(server, uid) == ["delivered"], what="the first report")
    wait_for(lambda: not pixels(server), what="the end of retention")
    (image,) = study(server, uid)["images"]
    assert image["pixels_removed_at"] is not None
    assert image["is_removed"] is False
    assert send_to(server, paths[1:]).is_ok
    wait_for(
        lambda: deliveries(server, uid) == ["delivered", "delivered"], what="the second report"
    )
    newest = study(server, uid)["results"][0]
    assert [item["is_used"] for item in newest["source_images"]] == [True, True]
    assert newest["revision"] == 2
    wait_for(
        lambda: 'hilum_files_removed_total{cause="age"} ' in server.get("/metrics").text,
        what="the metric",
    )


def test_what_is_not_delivered_stays_and_a_study_is_completed_by_hand(
    server: Hilum, pacs: Receiver, tmp_path: Path
) -> None:
    images = small_study(72, views=("PA",))
    uid = images[0].StudyInstanceUID
    wait_for(lambda: not pixels(server), what="the end of earlier images")
    paused = hilum(server, "destinations", "pause", "pacs")
    assert (paused.returncode, paused.stdout) == (0, "pacs: paused\n")
    assert send_to(server, save_all(tmp_path, images)).is_ok
    wait_for(lambda: study(server, uid)["state"] != "none", what="its row")
    completed = hilum(server, "studies", "complete", uid)
    assert completed.returncode == 0, completed.stderr
    wait_for(lambda: deliveries(server, uid) == ["due"], what="the report that waits")
    assert "PAUSED" in hilum(server, "destinations", "list").stdout
    assert "paused" in server.get("/health/ready?role=deliver").text
    due_at = study(server, uid)["results"][0]["created_at"]
    wait_for(
        lambda: server.get("/api/v1/destinations").json()["destinations"][0]["due"] == 1,
        what="the queue",
    )
    wait_for(lambda: _age(due_at) > 2 * KEPT_SECONDS, what="more time than pixels are kept")
    assert len(pixels(server)) == 1, "not delivered, so not removed"
    assert uid not in pacs.arrivals.by_study
    assert hilum(server, "destinations", "resume", "pacs").stdout == "pacs: in use\n"
    wait_for(lambda: deliveries(server, uid) == ["delivered"], what="the delivery")
    wait_for(lambda: not pixels(server), what="the end of retention")


def _age(moment: str) -> float:
    from datetime import UTC, datetime

    return (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()


def test_a_backup_is_a_server_that_sends_nothing_twice(
    server: Hilum, tiny: Tiny, pacs: Receiver, tmp_path: Path
) -> None:
    images = small_study(73, views=("PA",))
    uid = images[0].StudyInstanceUID
    assert (
        hilum(server, "destinations", "pause", "pacs").returncode == 0
    )  # so that its pixels are still there
    assert send_to(server, save_all(tmp_path / "sent", images)).is_ok
    wait_for(lambda: deliveries(server, uid) == ["due"], what="the report")
    copy = tmp_path / "copy" / "state"
    done = hilum(server, "backup", copy)
    assert done.returncode == 0, done.stderr
    assert "the ledger, 1 files: 1 " in done.stdout
    again = hilum(server, "backup", copy)
    assert "1 files: 1 known" in again.stdout
    assert hilum(server, "destinations", "resume", "pacs").returncode == 0
    wait_for(
        lambda: deliveries(server, uid) == ["delivered"], what="the delivery by the first server"
    )
    arrived, repeated = dict(pacs.arrivals.digests), pacs.arrivals.repeated
    before = {
        item["study_instance_uid"]: item for item in server.get("/api/v1/studies").json()["studies"]
    }

    destinations = {"pacs": receiver_section(pacs.port, accept_untrained=True)}  # type: ignore[attr-defined]
    with hilum_with(tmp_path / "copy", tiny, destinations) as restored:
        wait_for(lambda: is_up(restored), START_SECONDS, "the restored server")
        assert "PAUSED" in hilum(restored, "destinations", "list").stdout, (
            "a restored server remembers what a person has paused"
        )
        after = {
            item["study_instance_uid"]: item
            for item in restored.get("/api/v1/studies").json()["studies"]
        }
        assert {key: item["results"] for key, item in after.items()} == {
            key: item["results"] for key, item in before.items()
        }
        assert [file.read_bytes() for file in pixels(restored)] == [
            file.read_bytes() for file in (copy / "archive").rglob("*.dcm")
        ]
        assert hilum(restored, "destinations", "resume", "pacs").returncode == 0
        wait_for(
            lambda: deliveries(restored, uid) == ["delivered"],
            what="the delivery that the backup had not seen",
        )
    assert pacs.arrivals.digests == arrived, "no report that the PACS had not got"
    assert pacs.arrivals.changed == []
    assert pacs.arrivals.repeated - repeated == 1, (
        "the one delivery that was open, with the same bytes"
    )


def test_a_patient_is_erased_from_a_running_server(server: Hilum, tmp_path: Path) -> None:
    images = small_study(74, views=("PA",))
    uid = images[0].StudyInstanceUID
    for image in images:
        image.PatientName, image.PatientID = NAME, PATIENT
    assert send_to(server, save_all(tmp_path, images)).is_ok
    wait_for(lambda: deliveries(server, uid) == ["delivered"], what="the report")
    counted = hilum(server, "erase", "--patient", PATIENT)
    assert (counted.returncode, "1 studies, 1 images" in counted.stdout) == (1, True), (
        counted.stderr
    )
    done = hilum(server, "erase", "--patient", PATIENT, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "documents were delivered to pacs: ask there" in done.stdout
    assert PATIENT not in done.stdout + done.stderr
    marks = [NAME.encode(), PATIENT.encode(), uid.encode()]
    files = [file for file in (server.folder / "state").rglob("*") if file.is_file()]
    assert {file.name for file in files} >= {"ledger.sqlite"}
    assert [file for file in files if any(mark in file.read_bytes() for mark in marks)] == []
    log = server.log.read_text(errors="replace")
    assert PATIENT not in log
    assert "Zwingli" not in log
    erased = [
        item
        for item in server.get("/api/v1/studies").json()["studies"]
        if item["state"] == "erased"
    ]
    assert len(erased) == 1
    assert server.get(f"/api/v1/studies/{uid}").status_code == 404
    assert (
        server.get(f"/api/v1/studies/{erased[0]['study_instance_uid']}").json()["images"][0][
            "readings"
        ][0]["state"]
        == "erased"
    )
    assert server.get("/health/ready").status_code == 200


def test_words_that_mean_everything_must_be_said(server: Hilum) -> None:
    vague = hilum(server, "requeue", "deliver")
    assert (vague.returncode, "or --all" in vague.stderr) == (2, True)
    assert hilum(server, "requeue", "analyse", "--destination", "pacs").returncode == 2
    assert (
        hilum(server, "requeue", "deliver", "--reason", "sop_class_refused").stdout
        == "0 items of deliver due again\n"
    )
    misspelt = hilum(server, "requeue", "deliver", "--reason", "sop_class_refuse")
    assert (misspelt.returncode, "did you mean 'sop_class_refused'" in misspelt.stderr) == (2, True)
    unknown = hilum(server, "requeue", "analyse", "--study", "9.9.9")
    assert (unknown.returncode, "no study 9.9.9" in unknown.stderr) == (1, True)
    assert hilum(server, "requeue", "deliver", "--all").returncode == 0
    assert hilum(server, "erase", "--patient", " ", "--yes").returncode == 2
    assert hilum(server, "destinations", "pause", "pcas").returncode == 2
    assert hilum(server, "requeue", "deliver", "--destination", "pcas").returncode == 2
    assert hilum(server, "studies", "complete", "1.2.3").returncode == 1
    inside = hilum(server, "backup", server.folder / "state" / "backup")
    assert (inside.returncode, "lies in the state folder" in inside.stderr) == (2, True)


@pytest.mark.parametrize(
    "role", ["listener", "analyser", "dispatcher", "api", "listener,dispatcher"]
)
def test_a_role_refuses_a_ledger_that_nobody_migrated(
    role: str, tmp_path: Path, tiny: Tiny
) -> None:
    server = hilum_with(tmp_path, tiny, {})
    done = serve(server, "--role", role)
    assert done.returncode == 2
    assert "ledger: there is none yet. Start `hilum serve`, or run `hilum migrate`" in done.stderr
    assert "hilum migrate" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_older_server_refuses_a_newer_ledger(tmp_path: Path, tiny: Tiny) -> None:
    from sqlalchemy import create_engine, text

    server = hilum_with(tmp_path, tiny, {})
    (tmp_path / "state").mkdir()
    url = f"sqlite:///{tmp_path / 'state' / 'ledger.sqlite'}"
    migrate(url)
    with create_engine(url).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    done = serve(server)
    assert (done.returncode, "revision 9999 is of a newer version" in done.stderr) == (2, True), (
        done.stderr
    )

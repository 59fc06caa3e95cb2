"""kill -9, SIGHUP and SIGTERM of one whole server, in turn.

Kills of its processes under load: test_faults_short.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydicom.uid import generate_uid
from sqlalchemy import create_engine, func, select

from hilum.deliver.send import send
from hilum.store.schema.tables import delivery, instance, reading, result, study
from testing.serving import Hilum
from tests.support.models.releases import Tiny
from tests.support.peers.committing import CommitmentScu
from tests.support.server.installation import (
    START_SECONDS,
    Receiver,
    all_processes,
    free_ports,
    hilum_with,
    kill,
    receiver_section,
    save_all,
    send_to,
    small_study,
    wait_for,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def receiver() -> Iterator[tuple[int, Receiver]]:
    (port,) = free_ports(1)
    with Receiver(port) as running:
        yield port, running


@pytest.fixture(scope="module")
def router() -> Iterator[CommitmentScu]:
    with CommitmentScu("ROUTER") as running:
        yield running


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory,
    tiny: Tiny,
    receiver: tuple[int, Receiver],
    router: CommitmentScu,
) -> Iterator[Hilum]:
    sections = {
        "receive": {"ae_titles": ["HILUM", "AT_ONCE"]},
        "routes.AT_ONCE": {"quiet_seconds": 0.0},
        "commitment.ROUTER": {"host": "127.0.0.1", "port": router.port},
    }
    with hilum_with(
        tmp_path_factory.mktemp("kills"), tiny, {"test": receiver_section(receiver[0])}, **sections
    ) as running:
        running.wait_until_ready(START_SECONDS)
        yield running


def counts(server: Hilum) -> dict[str, dict[str, int]]:
    """Rows by state in each table, read straight from the ledger."""
    engine = create_engine(f"sqlite:///{server.folder / 'state/ledger.sqlite'}")
    with engine.connect() as connection:
        found = {
            table.name: dict(
                connection.execute(
                    select(table.c.state, func.count()).group_by(table.c.state)
                ).all()
            )
            for table in (reading, study, result, delivery)
        }
        found["instance"] = {
            "": connection.execute(select(func.count()).select_from(instance)).scalar_one()
        }
    engine.dispose()
    return found


def test_kill_of_the_supervisor_takes_all_processes_along_and_a_new_one_goes_on(
    server: Hilum, tmp_path: Path, receiver: tuple[int, Receiver]
) -> None:
    images = small_study(4711)
    assert send_to(server, save_all(tmp_path, images)).is_ok
    everyone = all_processes(server)
    kill(everyone[:1])
    wait_for(
        lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in everyone),
        what="all processes to end",
    )
    server.__enter__()
    server.wait_until_ready(START_SECONDS)
    wait_for(lambda: images[0].StudyInstanceUID in receiver[1].arrivals.by_study, what="the report")


def test_a_commitment_report_that_is_owed_survives_kill_9_of_all_processes(
    server: Hilum, tmp_path: Path, router: CommitmentScu
) -> None:
    images, transaction_uid = small_study(71), generate_uid()
    references = [(str(image.SOPClassUID), str(image.SOPInstanceUID)) for image in images]
    assert send_to(server, save_all(tmp_path, images)).is_ok
    router.may_answer.clear()
    assert router.ask(server.dicom_port, transaction_uid, references) == 0
    kill(all_processes(server))
    router.may_answer.set()
    before = router.reports.qsize()  # none; or one that the dead server has sent without an answer
    server.__enter__()
    server.wait_until_ready(START_SECONDS)
    report = [router.next_report() for _ in range(before + 1)][-1]
    assert (report.event_type, sorted(report.committed)) == (1, sorted(references))
    (found,) = wait_for(
        lambda: server.get("/api/v1/commitments?state=reported").json()["commitments"]
    )
    assert (found["transaction_uid"], found["committed"], found["failed"]) == (
        transaction_uid,
        2,
        0,
    )
    # A stage counts an item when its row has been written.
    counted = 'hilum_stage_outcomes_total{reason="",stage="commit",state="reported"} 1.0'
    wait_for(lambda: counted in server.get("/metrics").text, what="the count")
    assert (
        'hilum_commitment_instances_total{outcome="committed"} 2.0' in server.get("/metrics").text
    )


def test_a_second_server_on_the_same_state_folder_is_refused(server: Hilum) -> None:
    done = subprocess.run(
        server.command("serve"), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "another `hilum serve` uses" in done.stderr


@pytest.mark.parametrize("section", ["receive", "api"])
def test_a_port_in_use_is_said_before_anything_runs(
    tmp_path: Path, tiny: Tiny, server: Hilum, section: str
) -> None:
    port = {"receive": server.dicom_port, "api": server.api_port}[section]
    other = hilum_with(tmp_path, tiny, {}, **{section: {"port": port}})
    done = subprocess.run(
        other.command("serve"), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert f"{section}: cannot listen on 127.0.0.1 port {port}" in done.stderr
    assert f"set {section}.port" in done.stderr
    assert "process_started" not in done.stdout + done.stderr


def test_a_stop_drains_and_leaves_nothing(
    server: Hilum, tmp_path: Path, router: CommitmentScu
) -> None:
    """By the end of its terminal, which reaches all processes at once.

    SIGTERM is how every other server here is stopped.
    """
    images, before, said = (
        small_study(815),
        counts(server)["instance"][""],
        len(server.log.read_bytes()),
    )
    assert send(
        save_all(tmp_path, images), "127.0.0.1", server.dicom_port, "AT_ONCE", "MODALITY"
    ).is_ok
    everyone = all_processes(server)
    os.killpg(everyone[0], signal.SIGHUP)
    wait_for(lambda: b"stopping" in server.log.read_bytes()[said:], what="the drain")
    assert server.stop() == 0
    assert b"process_ended" not in server.log.read_bytes()[said:]
    wait_for(
        lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in everyone),
        what="the pools' resource trackers to end",
    )
    assert counts(server)["instance"][""] == before + 2
    assert "leased" not in {state for states in counts(server).values() for state in states}
    assert router.reports.empty(), "one report for one request"

"""kill -9, SIGHUP and SIGTERM of a whole server. Kills of its processes under load: test_faults_short."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, func, select

from hilum.store.schema import delivery, instance, reading, result, study
from load_tests.serving import Hilum
from tests.support.installation import (
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
from tests.support.models import Tiny, make_tiny

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def receiver() -> Iterator[tuple[int, Receiver]]:
    (port,) = free_ports(1)
    with Receiver(port) as running:
        yield port, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny, receiver: tuple[int, Receiver]) -> Iterator[Hilum]:
    with hilum_with(tmp_path_factory.mktemp("kills"), tiny, {"test": receiver_section(receiver[0])}) as running:
        running.wait_until_ready(START_SECONDS)
        yield running


def counts(server: Hilum) -> dict[str, dict[str, int]]:
    """Rows by state in each table, read straight from the ledger."""
    engine = create_engine(f"sqlite:///{server.folder / 'state/ledger.sqlite'}")
    with engine.connect() as connection:
        found = {
            table.name: dict(connection.execute(select(table.c.state, func.count()).group_by(table.c.state)).all())
            for table in (reading, study, result, delivery)
        }
        found["instance"] = {"": connection.execute(select(func.count()).select_from(instance)).scalar_one()}
    engine.dispose()
    return found


def test_kill_of_the_supervisor_takes_all_processes_along_and_a_new_one_goes_on(
    server: Hilum, tmp_path: Path, receiver: tuple[int, Receiver]
) -> None:
    images = small_study(4711)
    assert send_to(server, save_all(tmp_path, images)).is_ok
    everyone = all_processes(server)
    kill(everyone[:1])
    wait_for(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in everyone), what="all processes to end")
    server.__enter__()
    server.wait_until_ready(START_SECONDS)
    wait_for(lambda: images[0].StudyInstanceUID in receiver[1].arrivals.by_study, what="the report")


def test_a_stop_drains_and_leaves_nothing(tmp_path: Path, tiny: Tiny, receiver: tuple[int, Receiver]) -> None:
    """By the end of its terminal, which reaches all processes at once; SIGTERM is how every other server here is stopped."""
    with hilum_with(tmp_path, tiny, {"test": receiver_section(receiver[0])}, quiet_seconds=0.0) as server:
        server.wait_until_ready(START_SECONDS)
        images = small_study(815)
        assert send_to(server, save_all(tmp_path / "study", images)).is_ok
        everyone = all_processes(server)
        os.killpg(everyone[0], signal.SIGHUP)
        wait_for(lambda: "stopping" in server.log_end(), what="the drain")
        assert server.stop() == 0
        assert "process_ended" not in server.log_end(200)
        wait_for(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in everyone), what="the pools' resource trackers to end")
        assert counts(server)["instance"][""] == 2
        assert "leased" not in {state for states in counts(server).values() for state in states}


def test_a_second_server_on_the_same_state_folder_is_refused(server: Hilum) -> None:
    done = subprocess.run(server.command("serve"), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "another `hilum serve` uses" in done.stderr


def test_port_in_use_is_explained(tmp_path: Path, tiny: Tiny, server: Hilum) -> None:
    other = hilum_with(tmp_path, tiny, {}, receive={"port": server.dicom_port})
    done = subprocess.run(other.command("serve"), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"port {server.dicom_port}" in done.stderr
    assert "set receive.port" in done.stderr

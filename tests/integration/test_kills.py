"""kill -9 of every process under load: nothing acknowledged is lost, nothing goes out twice with other bytes, work resumes unaided."""

from __future__ import annotations

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
    SteadyStream,
    all_processes,
    free_ports,
    hilum_with,
    kill,
    processes,
    receiver_section,
    save_all,
    send_to,
    small_study,
    wait_for,
    workers_of,
)
from tests.support.models import Tiny, make_tiny

pytestmark = pytest.mark.slow
STUDIES = 24
OPEN = {"due", "leased"}  # of every table; a study whose images came far apart is due a second time


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


ROLES = ("listener", "analyser", "dispatcher", "tritonserver", "decode process", "report process")


def victims(server: Hilum, role: str) -> list[int]:
    if role == "decode process":
        return workers_of(server, "analyser")
    return workers_of(server, "dispatcher") if role == "report process" else processes(server, role)


@pytest.mark.parametrize("role", ROLES)
def test_kill_under_load(server: Hilum, receiver: tuple[int, Receiver], tmp_path: Path, role: str) -> None:
    arrivals = receiver[1].arrivals
    before = counts(server)["instance"][""]
    stream = SteadyStream(server, tmp_path, STUDIES, first_seed=1000 * (1 + ROLES.index(role)))
    stream.start()
    for moment in (6, 14):
        wait_for(lambda sent=moment: stream.sent >= sent, what="the stream")
        wait_for(lambda: victims(server, role), what=f"a {role} to kill")
        kill(victims(server, role))
    stream.finish()
    wanted = {images[0].StudyInstanceUID for images in stream.studies}
    wait_for(lambda: wanted <= arrivals.by_study.keys(), what="a report on every study")
    wait_for(lambda: not OPEN & {state for states in counts(server).values() for state in states}, what="the end of all work")
    found = counts(server)
    assert found["instance"][""] - before == 2 * STUDIES
    assert set(found["reading"]) == {"analysed"}
    assert set(found["study"]) == {"closed"}
    assert set(found["delivery"]) <= {"delivered", "cancelled"}
    assert arrivals.changed == [], "the same UID with other bytes"
    server.wait_until_ready(START_SECONDS)


def test_every_acknowledged_file_is_in_the_archive(server: Hilum, tmp_path: Path) -> None:
    """Those of this study, and of every stream before it."""
    assert send_to(server, save_all(tmp_path, small_study(4710))).is_ok
    archive = server.folder / "state/archive"
    wait_for(lambda: not list(archive.glob("unindexed/*/*")), what="unindexed/ to be empty")
    engine = create_engine(f"sqlite:///{server.folder / 'state/ledger.sqlite'}")
    with engine.connect() as connection:
        paths = [row.path for row in connection.execute(select(instance.c.path))]
    engine.dispose()
    assert len(paths) >= 2
    assert all((archive / path).is_file() for path in paths)
    assert not list(archive.rglob("*.part"))


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


def test_sigterm_drains_and_leaves_nothing(tmp_path: Path, tiny: Tiny, receiver: tuple[int, Receiver]) -> None:
    with hilum_with(tmp_path, tiny, {"test": receiver_section(receiver[0])}, quiet_seconds=0.0) as server:
        server.wait_until_ready(START_SECONDS)
        images = small_study(815)
        assert send_to(server, save_all(tmp_path / "study", images)).is_ok
        everyone = all_processes(server)
        assert server.stop() == 0
        assert not any(Path(f"/proc/{pid}/exe").exists() for pid in everyone)
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

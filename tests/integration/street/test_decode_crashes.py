"""A decode that crashes or hangs in a whole server.

It costs one process each time, and the image ends with a reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydicom import Dataset

from testing.serving import Hilum
from tests.support.machine.processes import descendants_of
from tests.support.models.releases import Tiny
from tests.support.server.decoding import crash_while_held, decode_processes, held_up, reading_of
from tests.support.server.installation import (
    START_SECONDS,
    hilum_with,
    processes,
    save_all,
    send_to,
    small_study,
    wait_for,
    workers_of,
)

pytestmark = pytest.mark.slow
SETTING = "hilum_log__level"  # its name may stand in any case


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny) -> Iterator[Hilum]:
    folder = tmp_path_factory.mktemp("decode")
    os.environ[SETTING] = "info"
    analyse = {"decode_processes": 1, "decode_seconds": 5.0, "canary_seconds": 2.0}
    with hilum_with(folder, tiny, {}, quiet_seconds=0.2, analyse=analyse) as running:
        del os.environ[SETTING]
        running.wait_until_ready(START_SECONDS)
        yield running


def study_of(server: Hilum, uid: str) -> dict[str, Any]:
    return dict(server.get(f"/api/v1/studies/{uid}").json())


def outcomes(server: Hilum, uid: str) -> list[str]:
    return [
        result["outcome"] for result in study_of(server, uid)["results"] if result["is_current"]
    ]


def limit_of(pid: int, name: str) -> str:
    """The soft limit, as the kernel says it."""
    (line,) = [
        line
        for line in Path(f"/proc/{pid}/limits").read_text().splitlines()
        if line.startswith(name)
    ]
    return line.removeprefix(name).split()[0]


def test_processes_have_limits_and_know_no_settings(server: Hilum) -> None:
    assert server._process is not None
    supervisor = server._process.pid
    ours = [supervisor, *descendants_of(supervisor)]
    assert {limit_of(pid, "Max core file size") for pid in ours} == {"0"}
    workers = [*workers_of(server, "analyser"), *workers_of(server, "dispatcher")]
    assert len(workers) >= 2
    assert all(4 << 30 < int(limit_of(pid, "Max address space")) < 32 << 30 for pid in workers)
    assert f"{SETTING}=info".encode() in Path(f"/proc/{supervisor}/environ").read_bytes(), (
        "else this would say nothing"
    )
    assert not [
        pid for pid in ours[1:] if SETTING.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    ]


def test_three_crashes_end_the_image_and_no_neighbour(server: Hilum, tmp_path: Path) -> None:
    (bad,), (neighbour,), (later,) = (small_study(seed, ("PA",)) for seed in (901, 902, 903))
    (analyser,) = processes(server, "analyser")
    with held_up(server, tmp_path / "bad", [bad]) as held:
        assert send_to(server, save_all(tmp_path / "neighbour", [neighbour])).is_ok
        for _ in range(3):
            crash_while_held(server, held)
        wait_for(lambda: reading_of(server, bad)["state"] == "failed", what="the reason")
    assert reading_of(server, bad)["reason"] == "worker_crashed"
    wait_for(lambda: study_of(server, bad.StudyInstanceUID)["results"], what="the study's result")
    found = study_of(server, bad.StudyInstanceUID)
    assert (found["state"], found["results"][0]["outcome"], found["results"][0]["reason"]) == (
        "closed",
        "not_analysed",
        "worker_crashed",
    )
    assert send_to(server, save_all(tmp_path / "later", [later])).is_ok
    for image in (neighbour, later):
        wait_for(
            lambda image=image: reading_of(server, image).get("state") == "analysed",
            what="a neighbour's reading",
        )
    assert reading_of(server, later)["attempts"] == 1
    assert processes(server, "analyser") == [analyser], "only decode processes died"
    assert server.log.read_text().count("decode_process_died") == 3
    requeue_reads_it_once_the_cause_is_gone(server, bad)


def requeue_reads_it_once_the_cause_is_gone(server: Hilum, bad: Dataset) -> None:
    answer = server.post("/api/v1/requeue", json={"stage": "analyse", "reason": "worker_crashed"})
    assert answer.json()["requeued"] == 1
    wait_for(lambda: reading_of(server, bad)["state"] == "analysed", what="the reading")
    wait_for(lambda: "analysed" in outcomes(server, bad.StudyInstanceUID), what="the new result")


def test_a_hang_costs_one_process_and_the_next_try_reads_the_image(
    server: Hilum, tmp_path: Path
) -> None:
    (slow,) = small_study(904, ("PA",))
    with held_up(server, tmp_path, [slow]) as held:
        (hanging,) = decode_processes(server)
        wait_for(lambda: hanging not in decode_processes(server), what="its end after 5 s")
        held.release()
        wait_for(lambda: reading_of(server, slow)["state"] == "analysed", what="the second try")
    assert reading_of(server, slow)["attempts"] == 2
    assert "took longer than 5 s" in server.log.read_text()

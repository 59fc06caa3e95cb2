"""A server whose studies get their priority from DCMTK's wlmscpfs, by C-STORE and by STOW-RS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydicom import Dataset

from testing.serving import Hilum
from tests.support.machine.waiting import wait_for
from tests.support.models.releases import Tiny
from tests.support.peers.stow import body, encoded, post
from tests.support.server.commands import hilum
from tests.support.server.installation import (
    START_SECONDS,
    detail,
    hilum_with,
    is_up,
    save_all,
    send_to,
    small_study,
)
from tests.support.worklist.worklists import PATIENT, WORKLIST_TITLE, DcmtkWorklist

ORDER = "0042"


@pytest.fixture(scope="module")
def worklist() -> Iterator[DcmtkWorklist]:
    with DcmtkWorklist() as running:
        running.put(ORDER, "STAT")
        running.put("43", "ROUTINE")
        yield running


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, tiny: Tiny, worklist: DcmtkWorklist
) -> Iterator[Hilum]:
    section = {
        "host": "127.0.0.1",
        "port": worklist.port,
        "ae_title": WORKLIST_TITLE,
        "timeout_seconds": 20.0,
    }
    folder = tmp_path_factory.mktemp("worklist")
    with hilum_with(folder, tiny, {}, role="listener,api", worklist=section) as running:
        wait_for(lambda: is_up(running), START_SECONDS, "the web process")
        yield running


def study_of(order: str, seed: int) -> list[Dataset]:
    """One image of an order."""
    images = small_study(seed, views=("PA",))
    for image in images:
        image.AccessionNumber = order
        image.PatientName = PATIENT
    return images


def answered(server: Hilum, images: list[Dataset]) -> dict[str, Any]:
    """The study, once the worklist has answered."""
    uid = str(images[0].StudyInstanceUID)
    wait_for(lambda: detail(server, uid).get("worklist"), what="the answer of the worklist")
    return detail(server, uid)


def test_a_study_by_c_store_becomes_urgent_and_says_why(server: Hilum, tmp_path: Path) -> None:
    images = study_of(ORDER, 71)
    assert send_to(server, save_all(tmp_path, images)).is_ok

    found = answered(server, images)
    page = server.get(f"/studies/{found['study_instance_uid']}").text
    said = hilum("rules", "explain", found["study_instance_uid"], folder=server.folder)

    assert found["priority"] == "urgent"
    assert (found["worklist"]["words"], found["worklist"]["has_raised"]) == (["STAT"], True)
    reason = f"STAT by the worklist {found['worklist']['source']}: its work became urgent"
    assert reason in page
    assert reason in said.stdout
    assert said.returncode == 0
    for text in (said.stdout, server.log.read_text()):
        assert ORDER not in text
        assert PATIENT not in text
    (metric,) = [
        line
        for line in server.get("/metrics").text.splitlines()
        if line.startswith('hilum_worklist_lookups_total{outcome="urgent"}')
    ]
    assert float(metric.split()[-1]) >= 1.0


def test_a_study_by_stow_rs_is_asked_for_too(server: Hilum) -> None:
    images = study_of(ORDER, 72)

    assert post(server, body(*map(encoded, images))).status_code == 200

    assert answered(server, images)["priority"] == "urgent"


def test_a_routine_order_stays_live(server: Hilum, tmp_path: Path) -> None:
    images = study_of("43", 73)
    assert send_to(server, save_all(tmp_path, images)).is_ok

    found = answered(server, images)

    assert (found["priority"], found["worklist"]["is_urgent"]) == ("live", False)

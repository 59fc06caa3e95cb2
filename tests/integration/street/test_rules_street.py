"""A whole street with rules: one study is read for one destination, another is kept out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hilum.deliver.send import send
from testing.serving import Hilum
from tests.support.machine.waiting import wait_for
from tests.support.models.releases import Tiny
from tests.support.server.commands import hilum
from tests.support.server.installation import (
    START_SECONDS,
    detail,
    hilum_with,
    save_all,
    small_study,
)

pytestmark = pytest.mark.slow

RULES = """
[[rules]]
name = "chest of the ward"
when = { calling = "WARD*", StudyDescription = "*chest*", not = { Modality = "CT" } }
then = { priority = "urgent", destinations = ["near"] }

[[rules]]
name = "no consent"
when = { StudyDescription = "*declined*" }
then = { not_analysed = true, reason = "no consent for AI" }

[[rules]]
name = "default"
"""


def send_study(server: Hilum, folder: Path, description: str, seed: int) -> str:
    """One study of this description by C-STORE; its UID."""
    images = small_study(seed, views=("PA",))
    for image in images:
        image.StudyDescription = description
        image.PatientName = "Secret^Person"
    assert send(save_all(folder, images), "127.0.0.1", server.dicom_port, "HILUM", "WARD7").is_ok
    return str(images[0].StudyInstanceUID)


def is_delivered(server: Hilum, study_uid: str) -> bool:
    return bool(detail(server, study_uid).get("report_state") == "delivered")


def test_each_study_goes_where_its_rule_says(tiny: Tiny, tmp_path: Path) -> None:
    places = {
        name: {
            "kind": "folder",
            "path": str(tmp_path / name),
            "documents": ["json"],
            "accept_untrained": True,
            "report_not_analysed": True,
        }
        for name in ("near", "far")
    }
    server = hilum_with(tmp_path / "server", tiny, places)
    with server.settings_file.open("a") as file:
        file.write(RULES)
    with server:
        server.wait_until_ready(START_SECONDS)
        chest = send_study(server, tmp_path / "one", "XR Chest pa, Secret Person", 1)
        declined = send_study(server, tmp_path / "two", "Hand (AI declined)", 2)
        for uid in (chest, declined):
            wait_for(lambda uid=uid: is_delivered(server, uid), what="delivered")  # type: ignore[misc] # bound now
        read, kept = detail(server, chest), detail(server, declined)
        page = server.get(f"/studies/{chest}").text

    assert (read["rule"], read["priority"]) == ("chest of the ward", "urgent")
    assert {item["state"] for image in read["images"] for item in image["readings"]} == {"analysed"}
    assert (kept["rule"], kept["results"][0]["reason"]) == ("no consent", "not_analysed_by_rule")
    assert kept["images"][0]["readings"][0]["detail"] == "no consent for AI"
    said = {
        name: {
            json.loads(file.read_text())["study"]["study_instance_uid"]
            for file in (tmp_path / name).glob("*.json")
        }
        for name in places
    }
    assert said == {"near": {chest, declined}, "far": {declined}}
    assert "chest of the ward" in page

    config = ("--config", server.settings_file)
    explained = hilum("rules", "explain", chest, *config)
    replayed = hilum("rules", "replay", "--json", *config)
    assert "decided at its first image by chest of the ward" in explained.stdout, explained.stderr
    assert '✓ StudyDescription: wanted "*chest*", found "XR Chest pa, *** ***"' in explained.stdout
    assert json.loads(replayed.stdout)["unchanged"] == 2, replayed.stderr

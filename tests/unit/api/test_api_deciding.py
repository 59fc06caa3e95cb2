"""REST and the command line for conflicts and rejected images."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hilum.domain import Rejection, RemovalReason
from hilum.store.archive.archive import Archive
from tests.support.ledger.deciding import Site
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.storing import data_set
from tests.support.server import commands
from tests.support.server.api_client import Rig, open_rig

OTHER = b"\1\2" * 100


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, migrated_sqlite(tmp_path))
    made.receive("1.2.3.1")
    made.receive("1.2.3.1", pixels=OTHER)
    yield made
    made.close()


@pytest.fixture
def rig(site: Site, tmp_path: Path) -> Iterator[Rig]:
    with open_rig(tmp_path, url=site.url) as opened:
        yield opened


def post(rig: Rig, path: str, status: int = 200) -> Any:
    response = rig.client.post(path)
    assert response.status_code == status, response.text
    return response.json()


@pytest.mark.parametrize(
    ("verb", "state"), [("keep", "kept"), ("replace", "replaced"), ("discard", "discarded")]
)
def test_each_decision_by_rest(rig: Rig, site: Site, verb: str, state: str) -> None:
    (held,) = rig.get("/api/v1/conflicts")["conflicts"]
    assert (held["state"], held["resolved_at"]) == ("held", None)
    found = post(rig, f"/api/v1/conflicts/{held['id']}/{verb}")
    assert (found["state"], found["sop_instance_uid"]) == (state, "1.2.3.1")
    assert found["resolved_at"].endswith("Z")
    assert post(rig, f"/api/v1/conflicts/{held['id']}/{verb}") == found
    assert rig.get("/api/v1/conflicts")["conflicts"][-1] == found
    image = rig.get("/api/v1/studies/1.2.3")["images"][0]
    assert image["header_revision"] == (2 if verb == "replace" else 1)


def test_what_cannot_be_decided_says_why(rig: Rig) -> None:
    post(rig, "/api/v1/conflicts/1/discard")
    assert "discarded already" in post(rig, "/api/v1/conflicts/1/replace", 409)["detail"]
    assert "no such conflict" in post(rig, "/api/v1/conflicts/2/keep", 404)["detail"].lower()
    for nonsense in ("0", "x", str(2**31)):
        post(rig, f"/api/v1/conflicts/{nonsense}/keep", 422)
    post(rig, "/api/v1/conflicts/1/burn", 404)


def test_an_image_is_rejected_by_rest(rig: Rig, site: Site) -> None:
    expected = {
        "sop_instance_uid": "1.2.3.1",
        "study_instance_uid": "1.2.3",
        "removal_reason": "rejected_by_hand",
    }
    assert post(rig, "/api/v1/images/1.2.3.1/reject") == expected
    site.walk()
    detail = rig.get("/api/v1/studies/1.2.3")
    assert (detail["images"][0]["is_removed"], detail["images"][0]["removal_reason"]) == (
        True,
        "rejected_by_hand",
    )
    assert detail["results"][0]["reason"] == "rejected"
    post(rig, "/api/v1/images/9.9/reject", 404)
    assert "DOE" not in rig.client.post("/api/v1/images/DOE^JANE/reject").text


def test_a_page_of_another_site_decides_nothing(rig: Rig, site: Site) -> None:
    for headers in ({"Origin": "https://example.org"}, {"Sec-Fetch-Site": "cross-site"}):
        assert rig.client.post("/api/v1/conflicts/1/discard", headers=headers).status_code == 403
        assert rig.client.post("/api/v1/images/1.2.3.1/reject", headers=headers).status_code == 403
    assert rig.get("/api/v1/conflicts")["conflicts"][0]["state"] == "held"


def hilum(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "hilum.toml").write_text(f'[site]\nstate_dir = "{folder}"\n')
    return commands.hilum(*words, "--config", folder / "hilum.toml")


def test_the_commands(site: Site, tmp_path: Path) -> None:
    listed = hilum(tmp_path, "conflicts", "list")
    assert listed.stdout.split()[:5] == ["1", "held", "pixels", "1.2.3.1", "MODALITY"]
    assert listed.stdout.split()[-1] == "1.2.3"
    replaced = hilum(tmp_path, "conflicts", "replace", "1")
    said = json.loads(replaced.stdout)
    assert (replaced.returncode, said["state"], said["study_instance_uid"]) == (
        0,
        "replaced",
        "1.2.3",
    ), replaced.stderr
    assert said["received_at"].endswith("Z")
    with Archive(tmp_path / "archive").open(
        json.loads(replaced.stdout)["path"].removeprefix("quarantine/")
    ) as stream:
        assert stream.read().endswith(data_set("1.2.3.1", pixels=OTHER))
    assert hilum(tmp_path, "conflicts", "list").stdout == ""
    assert len(hilum(tmp_path, "conflicts", "list", "--all").stdout.splitlines()) == 2
    refused = hilum(tmp_path, "conflicts", "keep", "1")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "replaced already" in refused.stderr
    assert hilum(tmp_path, "conflicts", "discard", "7").returncode == 1
    assert hilum(tmp_path, "conflicts", "discard", "2").returncode == 0
    site.ledger.reject([Rejection("1.2.3.1", "1.2.3", RemovalReason.QUALITY, "1.2.9", "ANYBODY")])
    assert hilum(tmp_path, "images", "notes").stdout.split() == [
        "1.2.3.1",
        "1.2.3",
        "rejected_for_quality_reasons",
        "ANYBODY",
    ]
    rejected = hilum(tmp_path, "images", "reject", "1.2.3.1")
    assert json.loads(rejected.stdout)["removal_reason"] == "rejected_by_hand"
    unknown = hilum(tmp_path, "images", "reject", "9.9")
    assert (unknown.returncode, unknown.stderr) == (1, "hilum: no image 9.9 in the ledger\n")

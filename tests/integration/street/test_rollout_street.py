"""A release is replaced while images flow.

Shadow, canary, switch and rollback on a whole server, and an analyser that is killed.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydicom import Dataset

from testing.serving import Hilum
from tests.support.models.releases import TINY_WEIGHTS, Tiny, make_tiny
from tests.support.models.versions import add_version
from tests.support.server.installation import (
    START_SECONDS,
    hilum_with,
    kill,
    processes,
    save_all,
    send_to,
    small_study,
    wait_for,
)

pytestmark = pytest.mark.slow
STUDIES_A_SECOND = 2.0
OTHER_WEIGHTS = np.roll(TINY_WEIGHTS, 1, axis=0)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    made = make_tiny(tmp_path_factory.mktemp("tiny"))
    add_version(made, "5")  # there when the server starts
    return made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny) -> Iterator[Hilum]:
    folder = tmp_path_factory.mktemp("rollout")
    destinations = {
        "out": {"kind": "folder", "path": str(folder / "out"), "documents": ["sr", "json"]}
    }
    with hilum_with(folder, tiny, destinations, quiet_seconds=1.0) as running:
        running.wait_until_ready(START_SECONDS)
        yield running


class Modality:
    """Sends a study twice a second, its second image a little later.

    Late enough to meet another release.
    """

    def __init__(self, server: Hilum, folder: Path) -> None:
        self.studies: list[str] = []
        self._server, self._folder = server, folder
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send_all)

    def __enter__(self) -> Modality:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _send_all(self) -> None:
        late: list[Sequence[Dataset]] = []
        for number in range(1000):
            if self._stop.is_set():
                break
            images = small_study(seed=9000 + number)
            self.studies.append(str(images[0].StudyInstanceUID))
            self._send(images[:1], number)
            late.append(images[1:])
            if len(late) > 4:
                self._send(late.pop(0), number)
            time.sleep(1 / STUDIES_A_SECOND)
        for images in late:
            self._send(images, 1000)

    def _send(self, images: Sequence[Dataset], number: int) -> None:
        assert send_to(self._server, save_all(self._folder / str(number), images)).is_ok


def post(server: Hilum, verb: str, **order: Any) -> dict[str, Any]:
    answer = server.post(f"/api/v1/rollouts/tiny/{verb}", json=order)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def rollout(server: Hilum) -> dict[str, Any]:
    found: dict[str, Any] = server.get("/api/v1/rollouts/tiny").json()
    return found


def study(server: Hilum, uid: str) -> dict[str, Any]:
    answer = server.get(f"/api/v1/studies/{uid}")
    found: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
    return found


def is_settled(server: Hilum, uid: str) -> bool:
    """Both images read, the study closed, its last result reported, and nothing is on its way.

    Documents of a result that was replaced may still be on their way when those of the last one
    have arrived.
    """
    found = study(server, uid)
    current = [item for item in found.get("results", []) if item["is_current"]]
    all_ways = [
        way["state"]
        for item in found.get("results", [])
        for paper in item["documents"]
        for way in paper["deliveries"]
    ]
    ways = [
        way["state"]
        for item in current
        for paper in item["documents"]
        for way in paper["deliveries"]
    ]
    is_read = len(found.get("images", [])) == 2 and found["state"] == "closed"
    return (
        is_read
        and bool(ways)
        and set(ways) == {"delivered"}
        and not {"due", "leased"}.intersection(all_ways)
        and all(item["state"] == "reported" for item in current)
    )


def readers(found: dict[str, Any], *, is_shadow: bool) -> set[str]:
    return {
        item["release"]
        for image in found["images"]
        for item in image["readings"]
        if item["is_shadow"] is is_shadow
    }


def read_by(server: Hilum, uids: Sequence[str], release: str) -> list[str]:
    """The studies that are read by a release: an image is acknowledged before that is decided."""
    found = {uid: study(server, uid) for uid in uids}
    return [
        uid for uid, item in found.items() if item and readers(item, is_shadow=False) == {release}
    ]


def test_releases_change_while_images_flow_and_every_study_is_reported_once(
    server: Hilum, tiny: Tiny, tmp_path: Path
) -> None:
    with Modality(server, tmp_path / "sent") as modality:
        wait_for(lambda: len(modality.studies) >= 2, what="studies")
        candidate = add_version(
            tiny, "2", OTHER_WEIGHTS
        )  # its manifest comes while the server runs
        post(server, "start", release=candidate, mode="shadow")
        wait_for(lambda: rollout(server)["state"] == "running", what="the candidate")
        wait_for(
            lambda: (rollout(server)["comparison"] or {"compared": 0})["compared"] >= 2,
            what="comparisons",
        )
        post(server, "promote", fraction=0.5)
        kill(processes(server, "analyser"))
        sent = len(modality.studies)
        wait_for(lambda: len(modality.studies) >= sent + 6, what="studies of the canary")
        assert post(server, "promote")["serving"] == candidate
        sent = len(modality.studies)
        wait_for(
            lambda: len(read_by(server, modality.studies[sent:], candidate)) >= 4,
            what="studies after the switch",
        )
        assert post(server, "rollback")["serving"] == "tiny@1"
        sent = len(modality.studies)
        wait_for(lambda: len(modality.studies) >= sent + 3, what="studies after the rollback")
    for uid in modality.studies:
        wait_for(lambda uid=uid: is_settled(server, uid), what=uid)
    found = {uid: study(server, uid) for uid in modality.studies}
    reported = {uid: readers(item, is_shadow=False) for uid, item in found.items()}
    assert all(len(names) == 1 for names in reported.values()), (
        "one release speaks for a study, whatever was switched meanwhile"
    )
    for uid, item in found.items():
        (current,) = [result for result in item["results"] if result["is_current"]]
        assert {current["release"]} == reported[uid]
        assert sum(image["is_used"] for image in current["source_images"]) == 2, "no image is lost"
    assert Counter(name for names in reported.values() for name in names)[candidate] >= 4
    assert reported[modality.studies[-1]] == {"tiny@1"}
    sent_json = [json.loads(file.read_text()) for file in (server.folder / "out").glob("*.json")]
    assert sorted(map(_named, sent_json)) == sorted(_delivered(found, "json")), (
        "each result was sent, once, and nothing of a shadow"
    )
    assert len(list((server.folder / "out").glob("*.dcm"))) == len(_delivered(found, "sr"))
    shadows = [item for item in found.values() if readers(item, is_shadow=True)]
    assert shadows
    assert all(
        result["documents"] == []
        for item in shadows
        for result in item["results"]
        if result["state"] == "shadow"
    )


def test_the_old_release_leaves_triton_when_nobody_waits_for_it(
    server: Hilum, tiny: Tiny, tmp_path: Path
) -> None:
    candidate = add_version(tiny, "3", OTHER_WEIGHTS)
    post(server, "start", release=candidate)
    wait_for(lambda: rollout(server)["state"] == "switched", what="the switch")
    post(server, "stop")
    wait_for(
        lambda: "release_unloaded" in server.log.read_text() and "tiny@1" in _unloaded(server),
        what="tiny@1 to be unloaded",
    )
    (image, _) = small_study(seed=31)
    send_to(server, save_all(tmp_path / "sent", [image]))
    wait_for(
        lambda: study(server, str(image.StudyInstanceUID)).get("state") == "closed", what="a study"
    )
    assert readers(study(server, str(image.StudyInstanceUID)), is_shadow=False) == {candidate}


def test_a_candidate_that_was_edited_meanwhile_is_the_same_for_all_processes(
    server: Hilum, tiny: Tiny, tmp_path: Path
) -> None:
    path = tiny.manifests_dir / "tiny@5" / "manifest.toml"
    text = path.read_text()
    path.write_text(text.replace("operating_point = 0.6", "operating_point = 0.9"))
    post(server, "start", release="tiny@5")
    wait_for(lambda: rollout(server)["state"] == "switched", what="the switch")
    assert _points(server, tmp_path / "first", 41) == {0.9}, (
        "what the command found, not what the server had read at its start"
    )
    path.write_text(text)
    kill(processes(server, "analyser"))
    kill(processes(server, "dispatcher"))
    assert _points(server, tmp_path / "second", 42) == {0.9}, (
        "what was proved, also for processes that are started anew"
    )
    refused = server.post("/api/v1/rollouts/tiny/start", json={"release": "tiny@5"})
    assert (refused.status_code, "tiny@5 was edited after" in refused.json()["detail"]) == (
        409,
        True,
    )


def _points(server: Hilum, folder: Path, seed: int) -> set[float]:
    """Operating points of what is said about a new study."""
    (image, _) = small_study(seed=seed)
    uid = str(image.StudyInstanceUID)
    assert send_to(server, save_all(folder, [image])).is_ok
    wait_for(lambda: study(server, uid).get("state") == "closed", what="a study")
    (current,) = [item for item in study(server, uid)["results"] if item["is_current"]]
    assert current["release"] == "tiny@5"
    return {item["operating_point"] for item in current["findings"]}


def _delivered(found: Mapping[str, dict[str, Any]], kind: str) -> list[tuple[str, str, int]]:
    """The results of which this document was delivered: all but those replaced before that."""
    delivered = []
    for uid, item in found.items():
        for result in item["results"]:
            papers = [paper for paper in result["documents"] if paper["kind"] == kind]
            ways = {
                (way["state"], way["reason"]) for paper in papers for way in paper["deliveries"]
            }
            if ways == {("delivered", None)}:
                delivered.append((uid, result["release"], result["revision"]))
            else:
                assert not result["is_current"]
                assert result["state"] == "superseded" or ways == {("cancelled", "superseded")}
    return delivered


def _named(document: dict[str, Any]) -> tuple[str, str, int]:
    release = f"{document['release']['name']}@{document['release']['version']}"
    return document["study"]["study_instance_uid"], release, document["revision"]


def _unloaded(server: Hilum) -> str:
    return "\n".join(
        line for line in server.log.read_text().splitlines() if "release_unloaded" in line
    )

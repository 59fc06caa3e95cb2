"""Two hosts without a shared folder: one receives, the other reads. A store is between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from testing.network.scripted_s3 import ACCESS_KEY, SECRET_KEY, ScriptedS3, scripted_s3
from testing.serving import Hilum
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.models.releases import make_tiny
from tests.support.server.installation import (
    START_SECONDS,
    detail,
    hilum_with,
    kill,
    processes,
    save_all,
    send_to,
    small_study,
    wait_for,
)

pytestmark = pytest.mark.slow


class TwoHosts(NamedTuple):
    """`receiving` listens, `reading` has the models; their state folders are apart."""

    store: ScriptedS3
    receiving: Hilum
    reading: Hilum


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoHosts]:
    """Any try that counts would fail an image at once (`maximum_attempts`)."""
    folder = tmp_path_factory.mktemp("two-hosts")
    tiny = make_tiny(folder / "tiny")
    (folder / "ledger").mkdir()
    credentials = folder / "credentials"
    credentials.touch(0o600)
    credentials.write_text(
        f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    )
    sections: dict[str, Any] = {
        "ledger": {"url": migrated_sqlite(folder / "ledger")},
        "pipeline": {
            "backoff_seconds": 0.5,
            "maximum_backoff_seconds": 2.0,
            "maximum_attempts": 1,
        },
    }
    with scripted_s3() as store:
        sections["archive"] = {**store.section(), "credentials_file": str(credentials)}
        receiving = hilum_with(folder / "receiving", tiny, {}, **sections)
        receiving.role = "listener"
        reading = hilum_with(folder / "reading", tiny, {}, **sections)
        reading.role = "analyser,dispatcher,api"
        with receiving, reading:
            reading.wait_until_ready(START_SECONDS)
            wait_for(lambda: "listening" in receiving.log.read_text(), what="the listener")
            yield TwoHosts(store, receiving, reading)


def waiting(server: Hilum) -> list[Path]:
    return list((server.folder / "state/archive/unindexed").glob("*/*.dcm"))


def states(server: Hilum, study_uid: str) -> list[str]:
    images = detail(server, study_uid).get("images", [])
    return [reading["state"] for image in images for reading in image["readings"]]


def objects_in(store: ScriptedS3) -> list[str]:
    return [key for key in store.bucket if key.endswith(".dcm")]


def test_a_study_that_one_host_received_is_read_by_the_other(
    hosts: TwoHosts, tmp_path: Path
) -> None:
    images = small_study(seed=271)
    study_uid = images[0].StudyInstanceUID
    assert send_to(hosts.receiving, save_all(tmp_path, images)).is_ok
    wait_for(lambda: states(hosts.reading, study_uid) == ["analysed"] * 2, what="both readings")
    wait_for(lambda: not waiting(hosts.receiving), what="an empty spool")
    assert list((hosts.reading.folder / "state").rglob("*.dcm")) == []
    assert not list((hosts.receiving.folder / "state/archive").glob("[0-9a-f][0-9a-f]"))
    picture = hosts.reading.get(f"/studies/{study_uid}/images/{images[0].SOPInstanceUID}.png")
    assert picture.headers["content-type"] == "image/png", picture.text[:200]


def test_kill_9_of_the_listener_while_it_uploads_loses_nothing_and_doubles_nothing(
    hosts: TwoHosts, tmp_path: Path
) -> None:
    images = small_study(seed=272)
    study_uid = images[0].StudyInstanceUID
    before = len(objects_in(hosts.store))
    hosts.store.fail("PUT", "lost", times=1)  # stored, but the answer is lost
    hosts.store.fail("PUT", "hang")
    assert send_to(hosts.receiving, save_all(tmp_path, images)).is_ok, "it goes on acknowledging"
    wait_for(lambda: len(objects_in(hosts.store)) == before + 1, what="an upload without answer")
    assert len(waiting(hosts.receiving)) == 2
    assert states(hosts.reading, study_uid) == [], (
        "no row names bytes that the other host cannot read"
    )
    kill(processes(hosts.receiving, "listener"))
    hosts.store.mend()
    wait_for(lambda: states(hosts.reading, study_uid) == ["analysed"] * 2, what="both readings")
    wait_for(lambda: not waiting(hosts.receiving), what="an empty spool")
    assert len(objects_in(hosts.store)) == before + 2
    uids = Counter(
        image["sop_instance_uid"] for image in detail(hosts.reading, study_uid)["images"]
    )
    assert uids == Counter(image.SOPInstanceUID for image in images)


def test_a_store_that_is_away_is_no_failed_attempt_of_an_image(
    hosts: TwoHosts, tmp_path: Path
) -> None:
    images = small_study(seed=273, views=("PA",))
    study_uid = images[0].StudyInstanceUID
    hosts.store.fail("GET", "error")
    assert send_to(hosts.receiving, save_all(tmp_path, images)).is_ok
    wait_for(lambda: states(hosts.reading, study_uid), what="its row")
    wait_for(
        lambda: "archive_away" in hosts.reading.log.read_text(), what="the log of the analyser"
    )
    assert states(hosts.reading, study_uid) == ["due"]
    wait_for(
        lambda: "\nhilum_archive_away 1.0" in hosts.reading.get("/metrics").text, what="the metric"
    )
    hosts.store.mend()
    wait_for(lambda: states(hosts.reading, study_uid) == ["analysed"], what="its reading")


def test_an_object_that_the_store_has_lost_ends_its_reading_with_the_usual_reason(
    hosts: TwoHosts, tmp_path: Path
) -> None:
    images = small_study(seed=274, views=("PA",))
    study_uid = images[0].StudyInstanceUID
    before = set(objects_in(hosts.store))
    hosts.store.fail("GET", "error")
    assert send_to(hosts.receiving, save_all(tmp_path, images)).is_ok
    wait_for(lambda: states(hosts.reading, study_uid), what="its row")
    (key,) = set(objects_in(hosts.store)) - before
    del hosts.store.bucket[key]
    hosts.store.mend()
    wait_for(lambda: states(hosts.reading, study_uid) == ["not_analysed"], what="its end")
    (reading,) = detail(hosts.reading, study_uid)["images"][0]["readings"]
    assert reading["reason"] == "instance_missing"


def test_no_log_holds_the_secret(hosts: TwoHosts) -> None:
    logs = hosts.receiving.log.read_text() + hosts.reading.log.read_text()
    assert SECRET_KEY not in logs

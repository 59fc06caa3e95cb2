"""Campaigns over real archives: everything is read once, whatever dies on the way."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from testing.serving import Hilum, free_ports
from tests.support.models.releases import Tiny, make_tiny
from tests.support.peers.archives import (
    ARCHIVE_TITLE,
    MOVE_TITLE,
    ArchivedSeries,
    DcmQrScp,
    archived_report,
    archived_series,
    contents_of,
    orthanc_archive,
)
from tests.support.server.campaigns import await_end, campaign, hilum, rows
from tests.support.server.installation import START_SECONDS, hilum_with, kill, processes

pytestmark = pytest.mark.slow
STUDIES = 12
IMAGES = 2
DAYS = "2019-01-01..2019-01-05"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def archived() -> list[ArchivedSeries]:
    return [archived_series(f"1.2.826.0.1.3680043.10.99.{n}", IMAGES) for n in range(STUDIES)]


def source(kind: str, archive: Any, **more: Any) -> dict[str, Any]:
    """The section of a source."""
    if kind == "dicomweb":
        return {
            "kind": kind,
            "url": f"http://127.0.0.1:{archive.http_port}/dicom-web",
            "quiet_seconds": 2,
            **more,
        }
    moved = {"move_ae_title": MOVE_TITLE} if kind == "c-move" else {}
    return {
        "kind": kind,
        "host": "127.0.0.1",
        "port": archive.dicom_port,
        "ae_title": ARCHIVE_TITLE,
        "quiet_seconds": 2,
        **moved,
        **more,
    }


def reader(folder: Path, tiny: Tiny, section: dict[str, Any]) -> Hilum:
    """A Hilum that has the archive as source `pacs`."""
    return hilum_with(
        folder,
        tiny,
        {},
        0.5,
        **{"sources.pacs": section, "receive": {"ae_titles": ["HILUM", MOVE_TITLE]}},
    )


def fill(archive: Any, archived: Sequence[ArchivedSeries]) -> None:
    """Put all images into an Orthanc."""
    for content in contents_of(archived):
        archive.store(content)


def run(
    server: Hilum, tiny: Tiny, seconds: float = 180, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """Plan and run a campaign over the source, to its end."""
    hilum(server, "campaign", "plan", "old", "--source", "pacs", "--dates", DAYS)
    hilum(server, "campaign", "run", "old", "--release", tiny.release.id)
    await_end(server, "old", seconds, meanwhile)


def read_images(server: Hilum) -> list[tuple[object, ...]]:
    """SOP Instance UIDs with the state of their reading."""
    return rows(
        server,
        "SELECT sop_instance_uid, reading.state FROM instance JOIN reading ON"
        " reading.instance_id = instance.id ORDER BY 1",
    )


def expected(archived: Sequence[ArchivedSeries]) -> list[tuple[str, str]]:
    uids = sorted(uid for item in archived for uid in item.sop_instance_uids)
    return [(uid, "analysed") for uid in uids]


def states(server: Hilum) -> list[tuple[object, ...]]:
    return rows(server, "SELECT state, COUNT(*) FROM campaign_series GROUP BY state")


@pytest.fixture(params=["c-move", "c-get", "dicomweb"])
def orthanc_source(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    tiny: Tiny,
    archived: list[ArchivedSeries],
) -> Iterator[tuple[Hilum, Any]]:
    kind: str = request.param
    (port,) = free_ports(1)
    with orthanc_archive(port, dicomweb=kind == "dicomweb") as archive:
        fill(archive, archived)
        server = reader(tmp_path, tiny, source(kind, archive))
        server.dicom_port = port
        server.write_settings()
        with server:
            server.wait_until_ready(START_SECONDS)
            yield server, archive


def test_each_image_of_an_orthanc_is_read_once(
    orthanc_source: tuple[Hilum, Any], tiny: Tiny, archived: list[ArchivedSeries]
) -> None:
    server, _ = orthanc_source
    run(server, tiny)

    assert read_images(server) == expected(archived)
    assert states(server) == [("read", STUDIES)]
    assert rows(server, "SELECT COUNT(*) FROM delivery") == [(0,)]


def test_a_killed_campaign_ends_in_the_same_set_and_fetches_nothing_twice(
    tmp_path: Path, tiny: Tiny, archived: list[ArchivedSeries]
) -> None:
    chance = random.Random(20)
    (port,) = free_ports(1)
    killed = 0

    def strike() -> None:
        nonlocal killed
        if killed < 20 and (found := processes(server, "retriever")) and chance.random() < 0.6:
            kill(found)
            killed += 1

    with orthanc_archive(port, synchronous=False) as archive:
        fill(archive, archived)
        server = reader(tmp_path, tiny, source("c-move", archive, images_per_second=4))
        server.dicom_port = port
        server.write_settings()
        with server:
            server.wait_until_ready(START_SECONDS)
            run(server, tiny, 400, strike)

            assert killed > 3
            assert read_images(server) == expected(archived)
            assert rows(server, "SELECT COUNT(*) FROM conflict") == [(0,)]


def test_foreign_objects_and_a_pacs_that_ignores_keys_are_no_obstacle(
    tmp_path: Path, tiny: Tiny, archived: list[ArchivedSeries]
) -> None:
    (port,) = free_ports(1)
    with DcmQrScp(port) as archive:
        report = archived_report(
            archived[0].study_instance_uid, f"{archived[0].study_instance_uid}.9", "1.2.3.9.9"
        )
        archive.store(*contents_of(archived), report)
        server = reader(tmp_path, tiny, source("c-move", archive))
        server.dicom_port = port
        server.write_settings()
        with server:
            server.wait_until_ready(START_SECONDS)
            run(server, tiny)

            assert read_images(server) == expected(archived)
            assert states(server) == [("read", STUDIES)]


def test_a_pacs_that_stops_is_waited_for_and_nothing_is_dead(
    tmp_path: Path, tiny: Tiny, archived: list[ArchivedSeries]
) -> None:
    (port,) = free_ports(1)
    with DcmQrScp(port) as archive:
        archive.store(*contents_of(archived))
        server = reader(tmp_path, tiny, source("c-move", archive))
        server.dicom_port = port
        server.write_settings()
        with server:
            server.wait_until_ready(START_SECONDS)
            hilum(server, "campaign", "plan", "old", "--source", "pacs", "--dates", DAYS)
            archive.stop()
            hilum(server, "campaign", "run", "old", "--release", tiny.release.id)
            seen: list[str] = []

            def start_again() -> None:
                detail = campaign(server, "old").detail
                if detail and not seen:
                    seen.append(detail)
                    archive.start()

            await_end(server, "old", 300, start_again)

            assert seen
            assert read_images(server) == expected(archived)
            assert rows(server, "SELECT COUNT(*) FROM campaign_series WHERE attempts > 1") == [(0,)]

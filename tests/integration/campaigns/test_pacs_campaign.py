"""Campaigns over real archives: everything is read once, whatever dies on the way."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pydicom
import pytest

from hilum.domain import CampaignState
from load_tests.campaign.sending_archives import Old, orthanc_sent, sent_again
from testing.serving import Hilum, free_ports
from tests.support.machine.waiting import wait_for
from tests.support.models.releases import Tiny, make_tiny
from tests.support.peers.archives import (
    MOVE_TITLE,
    ArchivedSeries,
    DcmQrScp,
    archived_report,
    archived_series,
    contents_of,
    orthanc_archive,
)
from tests.support.server.archive_reading import (
    ArchiveReading,
    analysed,
    set_destination,
    source,
    uids_of,
)
from tests.support.server.campaigns import campaign
from tests.support.server.installation import START_SECONDS, all_processes, hilum_with, is_up
from tests.support.server.retriever import retriever

pytestmark = pytest.mark.slow
IMAGES: Final = 2
KILLS: Final = 20
_NUMBERS: Final = itertools.count(1)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny(tmp_path_factory.mktemp("tiny"))


def reader(folder: Path, tiny: Tiny, role: str, **sections: Any) -> Hilum:
    """A server that has an AE Title for campaigns."""
    titles = {"ae_titles": ["HILUM", MOVE_TITLE]}
    return hilum_with(folder, tiny, {}, 0.5, role, receive=titles, **sections)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny) -> Iterator[Hilum]:
    folder = tmp_path_factory.mktemp("server")
    with reader(folder, tiny, "analyser,dispatcher,api") as server:
        wait_for(lambda: is_up(server), START_SECONDS, what="the API")  # no listener: never ready
        yield server


@pytest.fixture
def reading(running: Hilum) -> Iterator[ArchiveReading]:
    with ExitStack() as stack:
        yield ArchiveReading(running, f"old-{next(_NUMBERS)}", stack)


def archived(studies: int = 8) -> list[ArchivedSeries]:
    """Series that no other test has."""
    root = f"1.2.826.0.1.3680043.10.99.{next(_NUMBERS)}"
    return [archived_series(f"{root}.{n}", IMAGES) for n in range(studies)]


def fill(archive: Any, series: Sequence[ArchivedSeries]) -> None:
    """Put all images into an Orthanc."""
    for content in contents_of(series):
        archive.store(content)


@pytest.mark.parametrize("kind", ["c-move", "c-get", "dicomweb"])
def test_each_image_of_an_orthanc_is_read_once(
    kind: str, reading: ArchiveReading, tiny: Tiny
) -> None:
    old = archived()
    listener = reading.listen()
    with orthanc_archive(listener.port, dicomweb=kind == "dicomweb") as archive, listener:
        fill(archive, old)
        reading.use(source(kind, archive))
        reading.plan()
        reading.run(tiny.release.id)
        reading.fetch()
        reading.finish()

    assert reading.readings() == analysed(old)
    assert reading.series("state, attempts") == [("read", 1, len(old))]
    assert reading.rows("SELECT COUNT(*) FROM delivery") == [(0,)]


def test_a_retriever_killed_at_20_points_fetches_nothing_again_that_it_has(
    reading: ArchiveReading, tiny: Tiny
) -> None:
    old = archived(3 * KILLS)
    chance = random.Random(20)
    with orthanc_archive(dicomweb=True) as archive:
        fill(archive, old)
        reading.use(source("dicomweb", archive, images_per_second=8))
        reading.plan()
        reading.run(tiny.release.id)
        for _ in range(KILLS):
            ended = reading.series("requested_at")
            with retriever(reading.server):
                wait_for(lambda known=ended: reading.series("requested_at") != known, 60)
                time.sleep(chance.uniform(0, 0.5))
            assert campaign(reading.server, reading.name).state is CampaignState.RUNNING
        reading.use(source("dicomweb", archive))
        reading.fetch()
        reading.finish()
        log = archive.log()

    assert reading.readings() == analysed(old)
    assert reading.series("state, attempts") == [("read", 1, len(old))]
    assert reading.rows("SELECT COUNT(*) FROM conflict") == [(0,)]
    received = {
        str(uid): float(str(at))
        for uid, at in reading.rows("SELECT sop_instance_uid, received_at FROM instance")
    }
    sent = list(orthanc_sent(log, _as_old(old)))
    assert {item.image for item in sent} == set(uids_of(old))
    assert not sent_again(sent, received)


def _as_old(series: Sequence[ArchivedSeries]) -> list[Old]:
    return [
        Old(
            Path(),
            f"P{item.study_instance_uid.rpartition('.')[2]}",
            item.study_instance_uid,
            item.series_instance_uid,
            uid,
        )
        for item in series
        for uid in item.sop_instance_uids
    ]


def test_a_server_killed_in_a_c_move_campaign_goes_on_where_it_was(
    tmp_path: Path, tiny: Tiny
) -> None:
    old = archived(10)
    (port,) = free_ports(1)
    with orthanc_archive(port, synchronous=False) as archive:
        fill(archive, old)
        pacs = source("c-move", archive, images_per_second=4)
        server = reader(tmp_path, tiny, "all", **{"sources.pacs": pacs})
        server.dicom_port = port
        server.write_settings()
        reading = ArchiveReading(server, "old")
        with server:
            server.wait_until_ready(START_SECONDS)
            reading.plan()
            reading.run(tiny.release.id)
            wait_for(
                lambda: dict(reading.series()).get("read", 0) >= 3, 120, what="series that are read"
            )
            _kill_all(server)
            before = reading.rows("SELECT sop_instance_uid, received_at FROM instance ORDER BY 1")
            with server:
                reading.finish()

        assert 0 < len(before) < IMAGES * len(old), "it was killed in the middle"
        assert reading.readings() == analysed(old)
        assert reading.series("state, attempts") == [("read", 1, len(old))]
        assert set(before) <= set(
            reading.rows("SELECT sop_instance_uid, received_at FROM instance")
        )


def _kill_all(server: Hilum) -> None:
    """kill -9 of the supervisor and of everything below it."""
    everything = all_processes(server)
    os.killpg(server.pid, signal.SIGKILL)
    server.stop()
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in everything), 30)


def test_success_before_sending_is_no_success_while_the_destination_is_down(
    reading: ArchiveReading, tiny: Tiny
) -> None:
    old = archived(3)
    (nobody,) = free_ports(1)
    listener = reading.listen()
    with orthanc_archive(nobody, synchronous=False) as archive, listener:
        fill(archive, old)
        reading.use(source("c-move", archive))
        reading.plan()
        reading.run(tiny.release.id)
        reading.fetch()
        lost = [("dead", "not_received", len(old))]
        wait_for(lambda: reading.series("state, reason") == lost, 120, what="the losses")
        assert reading.readings() == []
        set_destination(archive, listener.port)
        reading.order("retry")
        reading.finish()

    assert reading.readings() == analysed(old)
    assert reading.series() == [("read", len(old))]


def test_foreign_objects_and_a_pacs_that_ignores_keys_are_no_obstacle(
    reading: ArchiveReading, tiny: Tiny
) -> None:
    old = archived(4)
    study = old[0].study_instance_uid
    listener = reading.listen()
    with DcmQrScp(listener.port) as archive, listener:
        archive.store(*contents_of(old), archived_report(study, f"{study}.9", f"{study}.9.1"))
        reading.use(source("c-move", archive))
        reading.plan()
        reading.run(tiny.release.id)
        reading.fetch()
        reading.finish()

    assert reading.readings() == analysed(old)
    assert reading.series() == [("read", len(old))]


def test_a_pacs_that_stops_is_waited_for_and_nothing_is_dead(
    reading: ArchiveReading, tiny: Tiny
) -> None:
    old = archived(4)
    listener = reading.listen()
    with DcmQrScp(listener.port) as archive, listener:
        archive.store(*contents_of(old))
        reading.use(source("c-move", archive))
        reading.plan()
        archive.stop()
        reading.run(tiny.release.id)
        reading.fetch()
        wait_for(lambda: campaign(reading.server, reading.name).detail, 60, what="a word on it")
        archive.start()
        reading.finish()

    assert reading.readings() == analysed(old)
    assert reading.series("state, attempts") == [("read", 1, len(old))]


def test_a_study_that_was_deleted_after_the_plan_is_dead_alone_until_it_is_back(
    reading: ArchiveReading, tiny: Tiny
) -> None:
    old = archived(4)
    listener = reading.listen()
    with DcmQrScp(listener.port) as archive, listener:
        archive.store(*contents_of(old))
        reading.use(source("c-move", archive))
        reading.plan()
        _delete(archive, old[0])
        reading.run(tiny.release.id)
        reading.fetch()
        reading.finish()

        assert reading.readings() == analysed(old[1:])
        assert reading.series("state, reason") == [
            ("dead", "refused_by_source", 1),
            ("read", None, 3),
        ]

        archive.store(*contents_of(old[:1]))
        reading.order("retry")
        reading.finish()

    assert reading.readings() == analysed(old)
    assert reading.series() == [("read", len(old))]


def _delete(archive: DcmQrScp, series: ArchivedSeries) -> None:
    """Delete the files of a series; its index lists it still."""
    for file in archive.files():
        if pydicom.dcmread(file).SOPInstanceUID in series.sop_instance_uids:
            file.unlink()


def test_a_paused_campaign_asks_for_nothing_until_it_is_resumed_or_cancelled(
    reading: ArchiveReading, tiny: Tiny
) -> None:
    old = archived(12)
    with orthanc_archive() as archive:
        fill(archive, old)
        reading.use(source("c-get", archive, images_per_second=2))
        reading.plan()
        reading.run(tiny.release.id)
        reading.fetch()
        wait_for(lambda: reading.series()[-1][0] == "read", 60, what="a series that is read")
        reading.order("pause")
        wait_for(lambda: [row[0] for row in reading.series()] == ["found", "read"], 60)
        paused = reading.series()
        with retriever(reading.server):  # a process more asks for nothing either
            wait_for(lambda: reading.series() == paused, 10)
        assert reading.series() == paused

        reading.order("resume")
        wait_for(lambda: reading.series() != paused, 60, what="more series")
        reading.order("cancel")
        wait_for(
            lambda: campaign(reading.server, reading.name).finished_at is not None,
            60,
            what="the end of a cancelled campaign",
        )

    found, read = reading.series()
    assert (found[0], read[0]) == ("found", "read")
    assert len(reading.readings()) == IMAGES * int(str(read[1]))
    assert campaign(reading.server, reading.name).state is CampaignState.CANCELLED

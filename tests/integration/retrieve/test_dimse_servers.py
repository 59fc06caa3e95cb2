"""C-FIND, C-MOVE and C-GET with Orthanc in two forms and with dcmqrscp."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pydicom
import pytest
from pydicom.uid import RLELossless

from hilum.domain import ExpectedImage
from hilum.retrieve.dimse.source import CGetImageSource, CMoveImageSource, DimseImageSource
from hilum.retrieve.source import FetchReport, FetchRequest, Level, Query, SourceError
from hilum.settings import CGetSource, CMoveSource
from tests.support.machine.waiting import WAIT_SECONDS, wait_for
from tests.support.peers.archives import (
    ARCHIVE_TITLE,
    ArchivedSeries,
    DcmQrScp,
    archived_report,
    archived_series,
    contents_of,
    orthanc_archive,
)
from tests.support.peers.peers import Orthanc, free_port
from tests.support.peers.storage_scp import StorageScp
from tests.support.retrieve.kept_objects import MemoryStore

SERIES = archived_series("1.2.826.1", 4)
OTHERS = [archived_series(f"1.2.826.{n}", 1) for n in range(2, 22)]
CT_STUDY = archived_series("1.2.826.99", 1)
REPORT = archived_report("1.2.826.1", "1.2.826.1.9", "1.2.826.1.9.1")
UNKNOWN = archived_series("1.2.826.404", 2)
DAY = {"StudyDate": "20190102", "StudyInstanceUID": ""}


@dataclass
class Archived:
    """An archive with 22 studies, and the destination of its moves."""

    peer: Orthanc | DcmQrScp
    scp: StorageScp

    def source(self, kind: str = "c-move", **changes: Any) -> DimseImageSource:
        """A source on it."""
        common = {
            "host": "127.0.0.1",
            "port": self.peer.dicom_port,
            "ae_title": ARCHIVE_TITLE,
            "timeout_seconds": 20.0,
            **changes,
        }
        if kind == "c-move":
            return CMoveImageSource(CMoveSource(**common))
        return CGetImageSource(CGetSource(**common))


def contents() -> Sequence[bytes]:
    """Everything that the archives hold: 4 images and a report, 20 studies, and a CT."""
    return [
        REPORT,
        *contents_of([SERIES, *OTHERS]),
        *contents_of([CT_STUDY], modality="CT"),
    ]


@pytest.fixture(scope="module")
def synchronous() -> Iterator[Archived]:
    """Orthanc without limits, which answers a move when it has sent all."""
    with StorageScp() as scp, orthanc_archive(scp.port) as peer:
        for content in contents():
            peer.store(content)
        yield Archived(peer, scp)


@pytest.fixture(scope="module")
def hospital() -> Iterator[Archived]:
    """Orthanc with LimitFindResults=5, which answers a move before it sends."""
    with StorageScp() as scp, orthanc_archive(scp.port, limit=5, synchronous=False) as peer:
        for content in contents():
            peer.store(content)
        yield Archived(peer, scp)


@pytest.fixture(scope="module")
def dcmtk() -> Iterator[Archived]:
    """DCMTK's dcmqrscp."""
    with StorageScp() as scp, DcmQrScp(scp.port) as peer:
        peer.store(*contents())
        yield Archived(peer, scp)


@pytest.fixture(params=["synchronous", "dcmtk"])
def archived(request: pytest.FixtureRequest) -> Archived:
    """Each archive that has no limit of results."""
    found: Archived = request.getfixturevalue(request.param)
    found.scp.uids.clear()
    return found


def fetch(
    source: DimseImageSource,
    series: ArchivedSeries,
    uids: Sequence[str] | None = None,
    store: MemoryStore | None = None,
) -> FetchReport:
    """Fetch a whole series, or these of its images."""
    images = [ExpectedImage(uid) for uid in (series.sop_instance_uids if uids is None else uids)]
    wanted = FetchRequest(
        series.study_instance_uid, series.series_instance_uid, images, uids is None, 60.0
    )
    return source.fetch(wanted, store or MemoryStore(), threading.Event())


def test_the_images_of_a_series_are_listed(archived: Archived) -> None:
    with closing(archived.source()) as source:
        found = source.images(SERIES.study_instance_uid, SERIES.series_instance_uid)

    assert {item.sop_instance_uid for item in found} == set(SERIES.sop_instance_uids)


def test_a_series_is_moved(archived: Archived) -> None:
    with closing(archived.source()) as source:
        report = fetch(source, SERIES)

    assert sorted(archived.scp.uids) == sorted(SERIES.sop_instance_uids)
    assert (report.status, report.problem, report.may_follow) == ("0000", "", True)


def test_a_list_with_unknown_images_moves_the_known_ones_and_claims_success(
    archived: Archived,
) -> None:
    known = SERIES.sop_instance_uids[:2]
    unknown = [f"1.2.826.404.{n}" for n in range(50)]

    with closing(archived.source()) as source:
        report = fetch(source, SERIES, [*known, *unknown])

    assert sorted(archived.scp.uids) == sorted(known)
    assert (report.status, report.problem) == ("0000", "")


def test_without_lists_each_image_is_asked_for_by_itself(archived: Archived) -> None:
    with closing(archived.source(image_lists=False)) as source:
        report = fetch(source, SERIES, SERIES.sop_instance_uids[1:3])

    assert archived.scp.uids == list(SERIES.sop_instance_uids[1:3])
    assert report.status == "0000"


def test_a_report_in_the_study_does_not_end_the_move_of_its_images(archived: Archived) -> None:
    with closing(archived.source()) as source:
        fetch(source, SERIES)

    assert sorted(archived.scp.uids) == sorted(SERIES.sop_instance_uids)


def test_a_series_comes_over_the_association_of_a_get(archived: Archived) -> None:
    store = MemoryStore()
    with closing(archived.source("c-get")) as source:
        report = fetch(source, SERIES, store=store)

    assert sorted(store.uids()) == sorted(SERIES.sop_instance_uids)
    assert (report.status, report.problem, report.may_follow) == ("0000", "", False)


def test_a_fetched_object_is_a_part_10_file_of_the_same_pixels(archived: Archived) -> None:
    store = MemoryStore()
    with closing(archived.source("c-get")) as source:
        fetch(source, SERIES, SERIES.sop_instance_uids[:1], store)
    (content,) = store.stored
    found = pydicom.dcmread(io.BytesIO(content))

    assert found.file_meta.MediaStorageSOPInstanceUID == SERIES.sop_instance_uids[0]
    assert found.PixelData == pydicom.dcmread(io.BytesIO(contents()[1])).PixelData


def test_unknown_series_are_no_proof_and_no_outage(archived: Archived) -> None:
    with closing(archived.source()) as source:
        listed = source.images(UNKNOWN.study_instance_uid, UNKNOWN.series_instance_uid)
        report = fetch(source, UNKNOWN)

    assert listed == []
    assert archived.scp.uids == []
    assert not report.is_outage


def test_dcmqrscp_says_success_for_an_unknown_series(dcmtk: Archived) -> None:
    with closing(dcmtk.source()) as source:
        assert fetch(source, UNKNOWN).status == "0000"


def test_orthanc_says_that_it_is_unable_for_an_unknown_series(synchronous: Archived) -> None:
    with closing(synchronous.source()) as source:
        report = fetch(source, UNKNOWN)

    assert report.status == "C000"
    assert "0 sent" in report.problem


@pytest.mark.parametrize("uid", ["", "*", "1.2.826.*"])
def test_an_empty_or_wildcard_study_moves_nothing_of_the_archive(
    archived: Archived, uid: str
) -> None:
    series = ArchivedSeries(uid, uid, ("1.2.826.1.1.1",))
    with closing(archived.source()) as source:
        report = fetch(source, series)
        source.images(SERIES.study_instance_uid, SERIES.series_instance_uid)

    assert "is not one full UID" in report.problem
    assert not report.is_outage
    assert not report.is_final  # it is this series alone
    assert archived.scp.uids == []


def test_orthanc_filters_by_modality(synchronous: Archived) -> None:
    query = Query(Level.STUDY, {**DAY, "ModalitiesInStudy": "CT"}, 100)
    with closing(synchronous.source()) as source:
        found = source.find(query)

    assert [item["StudyInstanceUID"] for item in found.items] == [CT_STUDY.study_instance_uid]


def test_dcmqrscp_ignores_the_modality_and_its_answers_are_returned_unfiltered(
    dcmtk: Archived,
) -> None:
    query = Query(Level.STUDY, {**DAY, "ModalitiesInStudy": "CT"}, 100)
    with closing(dcmtk.source()) as source:
        found = source.find(query)

    assert len(found.items) == 22
    assert found.ignored == ()  # it does not say so


def test_the_modality_of_each_series_comes_with_the_series(archived: Archived) -> None:
    keys = {
        "StudyInstanceUID": CT_STUDY.study_instance_uid,
        "SeriesInstanceUID": "",
        "Modality": "",
    }
    with closing(archived.source()) as source:
        found = source.find(Query(Level.SERIES, keys, 100))

    assert [item["Modality"] for item in found.items] == ["CT"]


def test_more_than_the_limit_is_cut_off(archived: Archived) -> None:
    with closing(archived.source()) as source:
        few = source.find(Query(Level.STUDY, DAY, 10))
        all_of_them = source.find(Query(Level.STUDY, DAY, 22))

    assert (few.is_cut_off, len(few.items)) == (True, 11)
    assert (all_of_them.is_cut_off, len(all_of_them.items)) == (False, 22)


def test_a_limit_of_the_server_is_a_cut_off(hospital: Archived) -> None:
    with closing(hospital.source()) as source:
        found = source.find(Query(Level.STUDY, DAY, 100))

    assert (found.is_cut_off, len(found.items)) == (True, 5)


def test_as_many_answers_as_the_limit_of_the_server_are_whole(hospital: Archived) -> None:
    keys = {**DAY, "StudyInstanceUID": "\\".join(item.study_instance_uid for item in OTHERS[:5])}
    with closing(hospital.source()) as source:
        found = source.find(Query(Level.STUDY, keys, 100))

    assert (found.is_cut_off, len(found.items)) == (False, 5)


def test_success_comes_before_the_images() -> None:
    is_open = threading.Event()

    def wait(_number: int) -> bool:
        is_open.wait(WAIT_SECONDS)
        return False

    with StorageScp(wait) as scp, orthanc_archive(scp.port, synchronous=False) as peer:
        for content in contents_of([SERIES]):
            peer.store(content)
        with closing(Archived(peer, scp).source()) as source:
            report = fetch(source, SERIES)
        stored_at_the_report = len(scp.uids)
        is_open.set()
        wait_for(lambda: len(scp.uids) == 4)

    assert (report.status, report.may_follow, stored_at_the_report) == ("0000", True, 0)


def test_success_is_claimed_although_the_destination_is_down() -> None:
    with StorageScp() as scp, orthanc_archive(free_port(), synchronous=False) as peer:
        for content in contents_of([SERIES]):
            peer.store(content)
        with closing(Archived(peer, scp).source()) as source:
            report = fetch(source, SERIES)

    assert (report.status, report.problem, report.may_follow) == ("0000", "", True)
    assert scp.uids == []


def test_one_refusal_ends_a_move_and_the_rest_can_be_asked_for() -> None:
    with StorageScp(refuses=lambda number: number == 3) as scp, orthanc_archive(scp.port) as peer:
        for content in contents_of([SERIES]):
            peer.store(content)
        with closing(Archived(peer, scp).source()) as source:
            first = fetch(source, SERIES)
            here = list(scp.uids)
            missing = [uid for uid in SERIES.sop_instance_uids if uid not in here]
            second = fetch(source, SERIES, missing)

    assert (first.status, len(here)) == ("C000", 2)
    assert sorted(scp.uids) == sorted(SERIES.sop_instance_uids)
    assert second.status == "0000"


def test_dcmqrscp_goes_on_behind_a_refusal_and_counts_it() -> None:
    with StorageScp(refuses=lambda number: number == 2) as scp, DcmQrScp(scp.port) as peer:
        peer.store(*contents_of([SERIES]))
        with closing(Archived(peer, scp).source()) as source:
            report = fetch(source, SERIES)

    assert len(scp.uids) == 3
    assert report.status == "B000"
    assert "3 sent, 1 failed" in report.problem


def test_dcmqrscp_says_that_it_cannot_reach_the_destination() -> None:
    with StorageScp() as scp, DcmQrScp(free_port()) as peer:
        peer.store(*contents_of([SERIES, *OTHERS[:1]]))
        with closing(Archived(peer, scp).source()) as source:
            first = fetch(source, SERIES)
            second = fetch(source, OTHERS[0])

    assert (first.status, first.is_outage, first.is_final) == ("A702", False, False)
    assert second.is_outage  # two series in a row: it is not the series


def test_dcmqrscp_knows_no_other_destination(dcmtk: Archived) -> None:
    with closing(dcmtk.source(move_ae_title="NOBODY")) as source:
        report = fetch(source, SERIES)

    assert (report.status, report.is_final, report.is_outage) == ("A801", True, False)
    assert "register our Move Destination" in report.problem


def test_orthanc_names_no_cause_for_an_unknown_destination(synchronous: Archived) -> None:
    with closing(synchronous.source(move_ae_title="NOBODY")) as source:
        report = fetch(source, SERIES)

    assert (report.status, report.is_final, report.is_outage) == ("C000", False, False)


def test_a_compressed_object_comes_as_it_is_stored(synchronous: Archived) -> None:
    series = archived_series("1.2.826.70", 1)
    (plain,) = contents_of([series], day="20180101")
    dataset = pydicom.dcmread(io.BytesIO(plain))
    dataset.compress(RLELossless, generate_instance_uid=False)
    stream = io.BytesIO()
    dataset.save_as(stream)
    peer = synchronous.peer
    assert isinstance(peer, Orthanc)
    peer.store(stream.getvalue())
    store = MemoryStore()

    with closing(synchronous.source("c-get")) as source:
        fetch(source, series, store=store)
    (content,) = store.stored
    found = pydicom.dcmread(io.BytesIO(content))

    assert found.file_meta.TransferSyntaxUID == RLELossless
    assert found.PixelData == dataset.PixelData


def test_a_probe_says_what_a_server_ignores() -> None:
    today = f"{datetime.now(UTC):%Y%m%d}"
    with StorageScp() as scp, DcmQrScp(scp.port) as peer:
        peer.store(*contents_of([SERIES, *OTHERS], day=today))
        with closing(Archived(peer, scp).source()) as source:
            found = {line.topic: line for line in source.probe()}

    assert found["C-ECHO"].is_ok
    assert found["C-MOVE (Study Root)"].is_ok
    assert found["query"].text == "at least 6 studies in the last 7 days"
    assert found["StudyDate"].text == "honoured"
    assert found["ModalitiesInStudy"].text.startswith("ignored")
    assert found["NumberOfStudyRelatedInstances"].text.startswith("not returned")
    assert scp.uids == []


def test_a_probe_without_recent_studies_says_that_it_cannot_judge(dcmtk: Archived) -> None:
    with closing(dcmtk.source()) as source:
        found = {line.topic: line for line in source.probe()}

    assert found["query"].is_ok is None
    assert "ModalitiesInStudy" not in found


def test_a_probe_counts_the_storage_contexts_of_a_get(archived: Archived) -> None:
    with closing(archived.source("c-get")) as source:
        found = {line.topic: line for line in source.probe()}

    assert found["storage by C-GET"].text.startswith("4 of 4 classes")


def test_a_probe_of_a_wrong_port_says_so_and_raises_nothing() -> None:
    section = CMoveSource(host="127.0.0.1", port=free_port(), ae_title="ARCHIVE")
    with closing(CMoveImageSource(section)) as source:
        (line,) = source.probe()

    assert (line.topic, line.is_ok) == ("association", False)


def test_a_failure_of_a_query_is_an_error(synchronous: Archived) -> None:
    with closing(synchronous.source()) as source, pytest.raises(SourceError):
        source.find(Query(Level.SERIES, {"StudyInstanceUID": "*"}, 10))

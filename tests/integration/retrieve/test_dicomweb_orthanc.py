"""QIDO-RS and WADO-RS of a real Orthanc, and the same answers as dicomweb-client gets from it."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pydicom
import pytest
from dicomweb_client.api import DICOMwebClient
from pydicom.uid import JPEGLSLossless

from hilum.domain import ExpectedImage
from hilum.retrieve.dicomweb.client import DicomwebClient
from hilum.retrieve.source import FetchReport, FetchRequest, Level, Query, SourceError
from testing.phantoms.pixel_codecs import draw_study
from tests.support.peers.archives import (
    DX,
    archived_image,
    archived_series,
    contents_of,
    orthanc_archive,
    require_dicomweb,
)
from tests.support.peers.peers import Orthanc
from tests.support.retrieve.kept_objects import KeptObjects
from tests.support.retrieve.sources import web_client

STUDIES = 21
LIMIT = 5
LONG_SERIES = archived_series("1.2.826.0.1.99", 8)
FEW = {"StudyInstanceUID": "", "StudyDate": ""}


def day(number: int) -> str:
    return f"201901{number + 1:02d}"


def fill(orthanc: Orthanc) -> None:
    """21 studies of one image on 21 days, and one of eight images."""
    for number in range(STUDIES):
        study = f"1.2.826.0.1.{number + 1}"
        orthanc.store(archived_image(study, f"{study}.1", f"{study}.1.1", day=day(number)))
    for content in contents_of([LONG_SERIES], day="20200101"):
        orthanc.store(content)


def with_plugin(orthanc: Orthanc) -> Orthanc:
    require_dicomweb()
    return orthanc


@dataclass(frozen=True)
class Archive:
    """A running Orthanc, our client of it, and its URL."""

    orthanc: Orthanc
    client: DicomwebClient
    url: str


def entered(orthanc: Orthanc) -> Iterator[Archive]:
    with with_plugin(orthanc):
        fill(orthanc)
        url = f"http://127.0.0.1:{orthanc.http_port}/dicom-web/"
        with web_client(url) as client:
            yield Archive(orthanc, client, url)


@pytest.fixture(scope="module")
def archive() -> Iterator[Archive]:
    """Without a limit."""
    yield from entered(orthanc_archive(dicomweb=True))


@pytest.fixture(scope="module")
def limited() -> Iterator[Archive]:
    """With LimitFindResults and LimitFindInstances."""
    yield from entered(orthanc_archive(dicomweb=True, limit=LIMIT))


def foreign(archive: Archive) -> DICOMwebClient:
    return DICOMwebClient(archive.url)


def uids(items: object, keyword: str) -> set[str]:
    return {item[keyword] for item in items}  # type: ignore[attr-defined]


def fetch(archive: Archive, wanted: FetchRequest) -> tuple[FetchReport, KeptObjects]:
    kept = KeptObjects()
    return archive.client.fetch(wanted, kept, threading.Event()), kept


def test_the_same_studies_are_found_as_by_dicomweb_client(archive: Archive) -> None:
    theirs = foreign(archive).search_for_studies(fields=["StudyInstanceUID"], limit=100)

    ours = archive.client.find(Query(Level.STUDY, {"StudyInstanceUID": ""}, 500))

    assert uids(ours.items, "StudyInstanceUID") == {item["0020000D"]["Value"][0] for item in theirs}
    assert len(ours.items) == STUDIES + 1


def test_a_range_of_days_and_a_list_of_uids_are_matched(archive: Archive) -> None:
    days = archive.client.find(Query(Level.STUDY, {**FEW, "StudyDate": f"{day(2)}-{day(11)}"}, 500))
    listed = archive.client.find(
        Query(Level.STUDY, {**FEW, "StudyInstanceUID": "1.2.826.0.1.1\\1.2.826.0.1.2"}, 500)
    )

    assert uids(days.items, "StudyDate") == {day(number) for number in range(2, 12)}
    assert not days.is_cut_off
    assert uids(listed.items, "StudyInstanceUID") == {"1.2.826.0.1.1", "1.2.826.0.1.2"}


def test_more_answers_than_wanted_are_cut_off(archive: Archive) -> None:
    found = archive.client.find(Query(Level.STUDY, FEW, 7))

    assert len(found.items) == 8
    assert found.is_cut_off


def test_nothing_found_is_no_answer(archive: Archive) -> None:
    found = archive.client.find(Query(Level.STUDY, {"AccessionNumber": "unknown"}, 7))

    assert not found.items
    assert not found.is_cut_off


def test_series_of_a_study_are_found(archive: Archive) -> None:
    keys = {
        "StudyInstanceUID": LONG_SERIES.study_instance_uid,
        "SeriesInstanceUID": "",
        "Modality": "",
        "NumberOfSeriesRelatedInstances": "",
    }

    (found,) = archive.client.find(Query(Level.SERIES, keys, 50)).items

    assert found["SeriesInstanceUID"] == LONG_SERIES.series_instance_uid
    assert found["Modality"] == "DX"
    assert found["NumberOfSeriesRelatedInstances"] == "8"


def test_a_list_that_ends_at_a_hidden_limit_is_cut_off(limited: Archive) -> None:
    """Orthanc gives one more than its limit and then nothing, without a Warning."""
    found = limited.client.find(Query(Level.STUDY, FEW, 500))

    assert len(found.items) == LIMIT + 1
    assert found.is_cut_off


def test_below_the_hidden_limit_nothing_is_cut_off_and_no_study_is_lost(limited: Archive) -> None:
    answers = [
        limited.client.find(
            Query(Level.STUDY, {**FEW, "StudyDate": f"{day(first)}-{day(first + 4)}"}, 500)
        )
        for first in range(0, STUDIES, 5)
    ]

    assert not any(found.is_cut_off for found in answers)
    assert len({uid for found in answers for uid in uids(found.items, "StudyInstanceUID")}) == 21


def test_the_same_images_are_listed_as_by_dicomweb_client(archive: Archive) -> None:
    study = LONG_SERIES.study_instance_uid
    series = LONG_SERIES.series_instance_uid
    theirs = foreign(archive).search_for_instances(study, series)

    ours = archive.client.images(study, series)

    assert {image.sop_instance_uid for image in ours} == {
        item["00080018"]["Value"][0] for item in theirs
    }
    assert {image.sop_class_uid for image in ours} == {DX}


def test_a_list_of_images_that_ends_at_a_hidden_limit_is_refused(limited: Archive) -> None:
    with pytest.raises(SourceError, match="LimitFindInstances"):
        limited.client.images(LONG_SERIES.study_instance_uid, LONG_SERIES.series_instance_uid)


def of_long_series(*images: str, are_all: bool) -> FetchRequest:
    return FetchRequest(
        LONG_SERIES.study_instance_uid,
        LONG_SERIES.series_instance_uid,
        [ExpectedImage(image) for image in images],
        are_all=are_all,
        limit_seconds=100,
    )


def instance_uid(content: bytes) -> str:
    return str(pydicom.dcmread(io.BytesIO(content)).SOPInstanceUID)


def test_a_series_is_fetched_as_it_is_stored_and_as_by_dicomweb_client(archive: Archive) -> None:
    theirs = foreign(archive).retrieve_series(
        LONG_SERIES.study_instance_uid,
        LONG_SERIES.series_instance_uid,
        media_types=(("application/dicom", "*"),),
    )

    report, kept = fetch(archive, of_long_series(*LONG_SERIES.sop_instance_uids, are_all=True))

    assert report == FetchReport("200")
    assert {instance_uid(item) for item in kept.stored} == {str(i.SOPInstanceUID) for i in theirs}
    stored = {archive.orthanc.file(identifier) for identifier in archive.orthanc.instances()}
    assert set(kept.stored) <= stored


def test_some_images_are_fetched_and_an_unknown_one_is_named(archive: Archive) -> None:
    known = LONG_SERIES.sop_instance_uids[:2]

    report, kept = fetch(archive, of_long_series(*known, "1.2.3.4", are_all=False))

    assert [instance_uid(item) for item in kept.stored] == list(known)
    assert report.status == "404"
    assert report.problem.startswith("1 of 3 requests: HTTP 404")


def test_an_unknown_series_is_not_found(archive: Archive) -> None:
    report, kept = fetch(archive, FetchRequest("1.2.3", "1.2.3.4", [ExpectedImage("1")], True, 100))

    assert report.status == "404"
    assert kept.stored == []


def test_a_compressed_image_stays_compressed(archive: Archive) -> None:
    (image,) = draw_study(5, "DX", "JPEGLSLossless", 64, 64, 12, 1)
    content = part10_as_encoded(image)
    archive.orthanc.store(content)
    wanted = FetchRequest(
        image.StudyInstanceUID,
        image.SeriesInstanceUID,
        [ExpectedImage(image.SOPInstanceUID)],
        are_all=True,
        limit_seconds=100,
    )

    _, kept = fetch(archive, wanted)
    archive.orthanc.request(f"/instances/{archive.orthanc.find(image.SOPInstanceUID)[0]}", "DELETE")

    assert kept.stored == [content]
    read = pydicom.dcmread(io.BytesIO(kept.stored[0]))
    assert read.file_meta.TransferSyntaxUID == JPEGLSLossless


def part10_as_encoded(image: pydicom.Dataset) -> bytes:
    stream = io.BytesIO()
    image.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


def test_a_probe_finds_what_orthanc_can(archive: Archive) -> None:
    lines = {line.topic: line for line in archive.client.probe()}

    assert [topic for topic, line in lines.items() if line.is_ok is False] == []
    assert lines["offset"].is_ok
    assert lines["ModalitiesInStudy"].is_ok
    assert lines["WADO-RS"].is_ok


def test_more_than_two_pages_of_studies_are_all_found() -> None:
    with with_plugin(orthanc_archive(dicomweb=True)) as orthanc:
        made = {f"1.2.826.0.2.{number}" for number in range(230)}
        for study in made:
            orthanc.store(archived_image(study, f"{study}.1", f"{study}.1.1", day=day(3), rows=8))
        orthanc.store(archived_image("1.2.3", "1.2.3.1", "1.2.3.1.1", day=day(4), rows=8))
        with web_client(f"http://127.0.0.1:{orthanc.http_port}/dicom-web") as client:
            found = client.find(Query(Level.STUDY, {**FEW, "StudyDate": day(3)}, 500))

    assert uids(found.items, "StudyInstanceUID") == made
    assert not found.is_cut_off


def test_a_password_is_asked_for_and_taken(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("orthanc-1\n", encoding="utf-8")
    orthanc = orthanc_archive(
        dicomweb=True, AuthenticationEnabled=True, RegisteredUsers={"hilum": "orthanc-1"}
    )
    with with_plugin(orthanc):
        url = f"http://127.0.0.1:{orthanc.http_port}/dicom-web"
        with web_client(url) as stranger, pytest.raises(SourceError, match="HTTP 401"):
            stranger.find(Query(Level.STUDY, FEW, 10))
        with web_client(url, user="hilum", password_file=password) as client:
            assert not client.find(Query(Level.STUDY, FEW, 10)).items

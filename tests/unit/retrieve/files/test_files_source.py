"""Files of a plan are copied as they were planned, or their problem is reported."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from hilum.domain import ExpectedImage
from hilum.retrieve.files.address import open_tree
from hilum.retrieve.files.files_source import FilesSource
from hilum.retrieve.files.scan import ScannedFile, scan
from hilum.retrieve.source import FetchReport, FetchRequest, Level, Query, SourceError
from tests.support.objects.small_files import KeptStore, dicom_file, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three images of one series."""
    for number in range(3):
        write(tmp_path / "in" / f"{number}.dcm", dicom_file(f"1.2.3.{number}"))
    return tmp_path / "in"


@pytest.fixture
def source(folder: Path) -> Iterator[FilesSource]:
    made = FilesSource(open_tree(str(folder)))
    yield made
    made.close()


def planned(folder: Path) -> list[ExpectedImage]:
    return [item.image for item in scan(open_tree(str(folder))) if isinstance(item, ScannedFile)]


def fetch(
    source: FilesSource,
    images: list[ExpectedImage],
    store: KeptStore,
    stop: threading.Event | None = None,
    seconds: float = 600.0,
) -> FetchReport:
    wanted = FetchRequest("1.2", "1.2.3", images, are_all=True, limit_seconds=seconds)
    return source.fetch(wanted, store, stop or threading.Event())


def test_every_file_reaches_the_store_byte_for_byte(folder: Path, source: FilesSource) -> None:
    store = KeptStore()

    report = fetch(source, planned(folder), store)

    assert report == FetchReport("stored")
    assert store.objects == {
        str(folder / f"{number}.dcm"): dicom_file(f"1.2.3.{number}") for number in range(3)
    }


def test_a_file_that_holds_another_image_is_not_given_to_the_store(
    folder: Path, source: FilesSource
) -> None:
    images = planned(folder)
    write(folder / "1.dcm", dicom_file("9.9.9"))
    store = KeptStore()

    report = fetch(source, images, store)

    assert str(folder / "1.dcm") not in store.begun
    assert len(store.objects) == 2
    assert (report.status, report.is_final, report.may_repeat) == ("incomplete", False, False)
    assert report.problem.startswith("1 of 3 images: 1.2.3.1: the file holds another image")


@pytest.mark.parametrize(
    ("content", "words"), [(None, "is not there"), (b"words", "not a DICOM file")]
)
def test_a_file_that_is_gone_or_broken_is_reported_and_the_others_come(
    folder: Path, source: FilesSource, content: bytes | None, words: str
) -> None:
    images = planned(folder)
    (folder / "1.dcm").unlink()
    if content is not None:
        write(folder / "1.dcm", content)
    store = KeptStore()

    report = fetch(source, images, store)

    assert len(store.objects) == 2
    assert words in report.problem
    assert str(folder) not in report.problem


def test_a_file_that_is_written_to_meanwhile_is_abandoned(
    folder: Path, source: FilesSource
) -> None:
    class Disturbed(KeptStore):
        def on_write(self, origin: str) -> None:
            with Path(origin).open("ab") as stream:
                stream.write(b"more")

    store = Disturbed()

    report = fetch(source, planned(folder)[:1], store)

    assert (store.objects, store.abandoned) == ({}, [str(folder / "0.dcm")])
    assert "written to while it was read" in report.problem
    assert report.may_repeat


def test_a_refusal_of_the_store_is_in_the_report(folder: Path, source: FilesSource) -> None:
    report = fetch(source, planned(folder)[:1], KeptStore(problem="too large"))

    assert report.problem.endswith("too large")


def test_a_folder_that_is_away_is_an_outage(folder: Path, source: FilesSource) -> None:
    images = planned(folder)
    shutil.rmtree(folder)

    report = fetch(source, images, KeptStore())

    assert (report.is_outage, report.is_final) == (True, False)


def test_a_file_outside_the_folder_is_not_read(tmp_path: Path, source: FilesSource) -> None:
    outside = write(tmp_path / "out.dcm", dicom_file("1.2.3.0"))
    store = KeptStore()

    report = fetch(source, [ExpectedImage("1.2.3.0", origin=str(outside))], store)

    assert store.begun == []
    assert report.is_final


def test_a_stop_ends_a_fetch_and_stores_no_cut_object(folder: Path, source: FilesSource) -> None:
    stop = threading.Event()
    stop.set()
    store = KeptStore()

    report = fetch(source, planned(folder), store, stop)

    assert (report.status, store.objects) == ("stopped", {})


def test_a_stop_in_the_middle_of_a_file_abandons_it(folder: Path, source: FilesSource) -> None:
    stop = threading.Event()
    large = dicom_file("1.2.3.0") + bytes(3 << 20)
    write(folder / "0.dcm", large)

    class Stopping(KeptStore):
        def on_write(self, origin: str) -> None:
            stop.set()

    store = Stopping()

    report = fetch(source, planned(folder)[:1], store, stop)

    assert (report.status, store.objects) == ("stopped", {})
    assert store.abandoned == [str(folder / "0.dcm")]


def test_a_fetch_ends_at_its_limit(folder: Path, source: FilesSource) -> None:
    report = fetch(source, planned(folder), KeptStore(), seconds=0.0)

    assert report.status == "timed out"


def test_files_are_copied_from_a_bucket(folder: Path) -> None:
    fsspec.filesystem("memory").pipe("/copies/1.dcm", dicom_file("1.2.3.1"))
    tree = open_tree("memory://copies")
    source = FilesSource(tree)
    store = KeptStore()
    images = [item.image for item in scan(tree) if isinstance(item, ScannedFile)]

    report = fetch(source, images, store)

    assert report == FetchReport("stored")
    assert store.objects == {"memory://copies/1.dcm": dicom_file("1.2.3.1")}
    source.close()


def test_files_answer_no_query(source: FilesSource) -> None:
    for question in (
        lambda: source.find(Query(Level.STUDY, {}, 1)),
        lambda: source.images("1.2", "1.2.3"),
    ):
        with pytest.raises(SourceError, match="plan the campaign") as error:
            question()

        assert error.value.is_final


def test_a_probe_says_whether_the_folder_is_there(folder: Path, source: FilesSource) -> None:
    assert [line.is_ok for line in source.probe()] == [True]

    shutil.rmtree(folder)

    assert [line.is_ok for line in source.probe()] == [False]

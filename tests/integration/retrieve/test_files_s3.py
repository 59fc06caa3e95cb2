"""DICOM files and pictures in a bucket, by s3fs against a server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import fsspec
import pytest

from hilum.domain import ExpectedImage, SeriesReason
from hilum.retrieve.files.address import open_tree
from hilum.retrieve.files.files_source import FilesSource
from hilum.retrieve.files.picture_list import PictureList
from hilum.retrieve.files.picture_plan import plan_pictures
from hilum.retrieve.files.scan import ScannedFile, SkippedFile, scan
from hilum.retrieve.source import FetchReport, FetchRequest, SourceError
from tests.support.objects.small_files import KeptStore, dicom_file
from tests.support.retrieve.s3_server import s3_server

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A file system with the empty bucket `images`, whose server the environment names."""
    pytest.importorskip("s3fs")
    with s3_server() as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        files = fsspec.filesystem("s3", use_listings_cache=False, endpoint_url=url)
        files.mkdir("images")
        yield files
        fsspec.get_filesystem_class("s3").clear_instance_cache()


def wanted(*images: ExpectedImage) -> FetchRequest:
    return FetchRequest("1.2", "1.2.3", images, are_all=True, limit_seconds=600.0)


def test_a_bucket_is_scanned_from_a_cursor_on(bucket: Any) -> None:
    for name in ("b/1.dcm", "a.dcm", "a/2.dcm", "a/1.dcm"):
        bucket.pipe(f"images/{name}", dicom_file())
    bucket.pipe("images/empty.dcm", b"")
    tree = open_tree("s3://images")

    found = list(scan(tree))

    paths = [item.path for item in found]
    assert paths == ["a.dcm", "empty.dcm", "a/1.dcm", "a/2.dcm", "b/1.dcm"]
    assert [item.reason for item in found if isinstance(item, SkippedFile)] == [
        SeriesReason.NOT_AN_IMAGE
    ]
    assert [item.path for item in scan(tree, "a/1.dcm")] == ["a/2.dcm", "b/1.dcm"]


def test_files_below_a_prefix_are_copied_byte_for_byte(bucket: Any) -> None:
    large = dicom_file("1.2.3.9") + bytes(9 << 20)
    bucket.pipe("images/one/large.dcm", large)
    bucket.pipe("images/other.dcm", dicom_file("9.9"))
    tree = open_tree("s3://images/one/")
    (found,) = scan(tree)
    assert isinstance(found, ScannedFile)
    source = FilesSource(tree)
    store = KeptStore()

    report = source.fetch(wanted(found.image), store, threading.Event())

    source.close()
    assert report == FetchReport("stored")
    assert store.objects == {"s3://images/one/large.dcm": large}


def test_an_object_that_is_replaced_while_it_is_read_is_abandoned(bucket: Any) -> None:
    bucket.pipe("images/1.dcm", dicom_file("1.2.3.9") + bytes(9 << 20))
    tree = open_tree("s3://images")
    (found,) = scan(tree)
    assert isinstance(found, ScannedFile)

    class Disturbed(KeptStore):
        def on_write(self, origin: str) -> None:
            bucket.pipe("images/1.dcm", dicom_file("1.2.3.9") + bytes(range(256)) * (9 << 12))

    store = Disturbed()
    source = FilesSource(tree)

    report = source.fetch(wanted(found.image), store, threading.Event())

    source.close()
    assert (store.objects, len(store.abandoned)) == ({}, 1)
    assert report.status == "incomplete"


def test_a_bucket_that_is_not_there_is_final_and_a_silent_server_is_an_outage(
    bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SourceError) as missing:
        list(scan(open_tree("s3://no-such-bucket")))
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(SourceError) as silent:
        list(scan(open_tree("s3://images")))

    assert (missing.value.is_final, missing.value.is_outage) == (True, False)
    assert (silent.value.is_final, silent.value.is_outage) == (False, True)


def test_a_list_in_a_bucket_names_pictures_beside_it(bucket: Any) -> None:
    bucket.pipe("images/set/list.csv", b"path,study\n1.png,a\n2.png,a\ns3://images/3.png,a\n")
    bucket.pipe("images/set/1.png", PNG)
    bucket.pipe("images/3.png", PNG)

    (batch,) = plan_pictures(PictureList("s3://images/set/list.csv"))

    assert [row.outcome for row in batch.rows] == ["found", "none", "found"]
    ((_, images),) = batch.series
    assert [image.origin for image in images] == ["s3://images/set/1.png", "s3://images/3.png"]

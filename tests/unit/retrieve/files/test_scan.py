"""The scan of folders and buckets: order, cursors, links, and reasons of files that are not taken."""

from __future__ import annotations

import itertools
import os
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydicom.uid import (
    CTImageStorage,
    ExplicitVRBigEndian,
    ImplicitVRLittleEndian,
    MediaStorageDirectoryStorage,
)

from hilum.domain import SeriesReason
from hilum.retrieve.files.address import open_tree
from hilum.retrieve.files.plan import plan_files
from hilum.retrieve.files.scan import ScannedFile, SkippedFile, scan
from hilum.retrieve.source import SourceError
from tests.support.objects.small_files import (
    CR,
    data_set,
    deflated_file,
    dicom_file,
    encoded,
    write,
)


@pytest.fixture
def bucket() -> Iterator[str]:
    """The URL of an empty bucket in memory."""
    files = fsspec.filesystem("memory")
    yield "memory://bucket"
    if files.exists("/bucket"):
        files.rm("/bucket", recursive=True)


def paths(address: Path | str, after: str = "") -> list[str]:
    return [found.path for found in scan(open_tree(str(address)), after)]


def only(address: Path | str) -> ScannedFile | SkippedFile:
    (found,) = scan(open_tree(str(address)))
    return found


def skipped(folder: Path, content: bytes) -> SkippedFile:
    write(folder / "1.dcm", content)
    found = only(folder)
    assert isinstance(found, SkippedFile)
    return found


def test_an_image_has_its_uids_day_modality_and_origin(tmp_path: Path) -> None:
    file = write(tmp_path / "a" / "1.dcm", dicom_file("1.2.3.4", "1.2", "1.2.3"))

    found = only(tmp_path)

    assert isinstance(found, ScannedFile)
    assert found.path == "a/1.dcm"
    assert found.series.study_instance_uid == "1.2"
    assert found.series.series_instance_uid == "1.2.3"
    assert (found.series.day, found.series.modality) == ("20190102", "CR")
    assert found.series.origin == str(tmp_path / "a")
    assert found.image.sop_instance_uid == "1.2.3.4"
    assert found.image.sop_class_uid == CR
    assert found.image.origin == str(file)


def test_a_bucket_is_walked_as_a_folder_is(bucket: str, tmp_path: Path) -> None:
    for name in ("b.dcm", "a/2.dcm", "a/1.dcm", "a-b/1.dcm", "c.txt"):
        write(tmp_path / name, dicom_file())
        fsspec.filesystem("memory").pipe(f"/bucket/{name}", dicom_file())

    assert paths(bucket) == paths(tmp_path)
    first = next(scan(open_tree(bucket)))
    assert isinstance(first, ScannedFile)
    assert first.image.origin == "memory://bucket/b.dcm"


@pytest.mark.parametrize("form", ["{}", "file://{}", "file://localhost{}", "{}/"])
def test_a_folder_may_be_a_path_or_a_file_url(tmp_path: Path, form: str) -> None:
    write(tmp_path / "a b" / "1.dcm", dicom_file())
    address = form.format(tmp_path if form.startswith("{}") else str(tmp_path).replace(" ", "%20"))

    assert paths(address) == ["a b/1.dcm"]


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("https://example.org/files", "mount the storage"),
        ("simplecache::s3://bucket", "mount the storage"),
        ("s3://key:secret@bucket/x", "leave credentials out of the URL"),
        ("file://server/share", "three slashes"),
    ],
)
def test_other_addresses_are_refused_with_the_remedy(address: str, words: str) -> None:
    with pytest.raises(SourceError, match=words) as error:
        open_tree(address)

    assert error.value.is_final
    assert "secret" not in error.value.detail


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)

    with pytest.raises(SourceError, match=r"hilum\[s3\]"):
        open_tree("s3://bucket/x")


def test_a_folder_that_is_away_is_an_outage(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is it mounted") as error:
        paths(tmp_path / "gone")

    assert error.value.is_outage


def test_files_of_a_folder_come_before_its_folders_in_order_of_names(tmp_path: Path) -> None:
    for name in ("b/1", "a/z/1", "a/2", "a/10", "c", "B"):
        write(tmp_path / name, b"")

    assert paths(tmp_path) == ["B", "c", "a/10", "a/2", "a/z/1", "b/1"]


names = st.text("ab.-0", min_size=1, max_size=3).filter(lambda name: name.strip("."))


@given(st.sets(st.lists(names, min_size=1, max_size=4).map("/".join), max_size=12), st.data())
def test_a_scan_continues_after_every_file(found: set[str], data: st.DataObject) -> None:
    files = fsspec.filesystem("memory")
    kept = {path for path in found if not any(other.startswith(f"{path}/") for other in found)}
    for path in kept:
        files.pipe(f"/cursors/{path}", b"no image")
    if not kept:
        return
    try:
        whole = paths("memory://cursors")
        at = data.draw(st.integers(0, len(whole) - 1))
        rest = paths("memory://cursors", whole[at])
    finally:
        files.rm("/cursors", recursive=True)

    assert sorted(whole) == sorted(kept)
    assert rest == whole[at + 1 :]


def test_a_scan_continues_after_a_file_that_was_removed(tmp_path: Path) -> None:
    for name in ("a/1", "a/2", "a/3", "b/1"):
        write(tmp_path / name, b"")
    (tmp_path / "a/2").unlink()

    assert paths(tmp_path, "a/2") == ["a/3", "b/1"]


def test_batches_group_images_by_series_and_end_at_their_cursor(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path / f"{number}.dcm", dicom_file(f"1.2.{number}", series=f"1.{number % 2}"))
    write(tmp_path / "5.txt", b"words")

    batches = list(plan_files(scan(open_tree(str(tmp_path))), batch_files=4))

    assert [batch.cursor for batch in batches] == ["3.dcm", "5.txt"]
    assert [
        [
            (series.series_instance_uid, [i.sop_instance_uid for i in images])
            for series, images in batch.series
        ]
        for batch in batches
    ] == [[("1.0", ["1.2.0", "1.2.2"]), ("1.1", ["1.2.1", "1.2.3"])], [("1.0", ["1.2.4"])]]
    assert [item.path for item in batches[1].skipped] == ["5.txt"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"words", "not a DICOM file"),
        (b"", "not a DICOM file"),
        (b"PK\3\4" + bytes(200), "not a DICOM file"),
    ],
)
def test_a_file_without_dicm_is_no_image(tmp_path: Path, content: bytes, words: str) -> None:
    found = skipped(tmp_path, content)

    assert (found.reason, words in found.detail) == (SeriesReason.NOT_AN_IMAGE, True)


@pytest.mark.parametrize(
    ("sop_class", "words"),
    [(CTImageStorage, "CT Image Storage"), (MediaStorageDirectoryStorage, "a DICOMDIR")],
)
def test_other_sop_classes_are_no_images(tmp_path: Path, sop_class: str, words: str) -> None:
    made = data_set()
    made.SOPClassUID = sop_class

    found = skipped(tmp_path, encoded(made))

    assert (found.reason, words in found.detail) == (SeriesReason.NOT_AN_IMAGE, True)


@pytest.mark.parametrize(
    "keyword", ["SOPClassUID", "SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID"]
)
def test_a_missing_uid_is_named(tmp_path: Path, keyword: str) -> None:
    made = data_set()
    content = encoded(made)
    delattr(made, keyword)
    content = encoded(made, MediaStorageSOPClassUID=CR, MediaStorageSOPInstanceUID="1.2.3.4")

    found = skipped(tmp_path, content)

    assert found.reason is SeriesReason.UNREADABLE_FILE
    assert found.detail.endswith("is missing")


def test_meta_information_of_another_image_is_reported(tmp_path: Path) -> None:
    found = skipped(tmp_path, encoded(data_set(), MediaStorageSOPInstanceUID="9.9"))

    assert found.reason is SeriesReason.UNREADABLE_FILE
    assert "another SOP Instance" in found.detail


def test_a_cut_header_is_unreadable_and_shows_no_patient(tmp_path: Path) -> None:
    content = dicom_file()
    for size in range(140, content.index(b"\x20\x00\x0e\x00"), 3):
        found = skipped(tmp_path, content[:size])

        assert found.reason is SeriesReason.UNREADABLE_FILE
        assert "SECRET" not in found.detail
        assert "Private" not in found.detail


@pytest.mark.parametrize("syntax", [ImplicitVRLittleEndian, ExplicitVRBigEndian])
def test_each_encoding_is_read(tmp_path: Path, syntax: str) -> None:
    write(tmp_path / "1.dcm", encoded(data_set(), syntax))

    assert isinstance(only(tmp_path), ScannedFile)


def test_a_deflated_data_set_is_read(tmp_path: Path) -> None:
    write(tmp_path / "1.dcm", deflated_file(data_set()))

    assert isinstance(only(tmp_path), ScannedFile)


def test_meta_information_without_identifiers_is_completed_by_the_data_set(tmp_path: Path) -> None:
    write(
        tmp_path / "1.dcm",
        encoded(data_set(), MediaStorageSOPClassUID=None, MediaStorageSOPInstanceUID=None),
    )

    assert isinstance(only(tmp_path), ScannedFile)


def test_a_header_longer_than_the_first_read_is_read_on(tmp_path: Path) -> None:
    made = data_set()
    made.add_new(0x00091001, "UN", bytes(300_000))
    write(tmp_path / "1.dcm", encoded(made))

    assert isinstance(only(tmp_path), ScannedFile)


def test_unsorted_elements_are_found_before_the_pixels(tmp_path: Path) -> None:
    content = dicom_file()
    start = content.index(b"\x08\x00\x16\x00UI")
    uid = content.index(b"\x20\x00\x0d\x00UI")
    study = content[uid : uid + 8 + int.from_bytes(content[uid + 6 : uid + 8], "little")]
    moved = content[:start] + content[start:].replace(study, b"")
    rows = moved.index(b"\x28\x00\x10\x00US")
    write(tmp_path / "1.dcm", moved[:rows] + study + moved[rows:])

    found = only(tmp_path)

    assert isinstance(found, ScannedFile)
    assert found.series.study_instance_uid == "1.2"


def test_only_the_beginning_of_a_file_is_read(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = data_set()
    made.PixelData = bytes(1_000_000)
    fsspec.filesystem("memory").pipe("/bucket/1.dcm", encoded(made))
    tree = open_tree(bucket)
    read = tree.read
    ends = list[int]()

    def counted(path: str, start: int, end: int) -> bytes:
        ends.append(end)
        return read(path, start, end)

    monkeypatch.setattr(tree, "read", counted)

    assert isinstance(next(scan(tree)), ScannedFile)
    assert ends == [16 << 10]


def test_links_below_the_folder_are_followed_and_others_are_reported(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    inside = write(folder / "z" / "1.dcm", dicom_file())
    outside = write(tmp_path / "out" / "2.dcm", dicom_file("9.9"))
    (folder / "inside.dcm").symlink_to(inside)
    (folder / "outside.dcm").symlink_to(outside)
    (folder / "out_folder").symlink_to(outside.parent)
    (folder / "z_again").symlink_to(folder / "z")
    (folder / "loop").symlink_to(folder / "loop")

    found = {item.path: item for item in scan(open_tree(str(folder)))}

    reasons = {path: item.detail for path, item in found.items() if isinstance(item, SkippedFile)}
    assert reasons == {
        "loop": "the file cannot be read: Too many levels of symbolic links",
        "out_folder": "a link to a folder; name its target as a folder of its own",
        "outside.dcm": "a link that leads out of the folder; name the folder of its target",
    }
    assert [path for path, item in found.items() if isinstance(item, ScannedFile)] == [
        "inside.dcm",
        "z/1.dcm",
    ]


def test_a_link_that_is_turned_outside_after_the_listing_is_not_opened(tmp_path: Path) -> None:
    outside = write(tmp_path / "out.dcm", dicom_file())
    folder = tmp_path / "in"
    write(folder / "1.dcm", dicom_file())
    tree = open_tree(str(folder))
    (folder / "1.dcm").unlink()
    (folder / "1.dcm").symlink_to(outside)

    with pytest.raises(OSError, match="leads out of the folder"):
        tree.open("1.dcm")


def test_a_pipe_is_no_file_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    found = only(tmp_path)

    assert isinstance(found, SkippedFile)
    assert found.reason is SeriesReason.NOT_AN_IMAGE


def test_a_name_that_is_not_utf_8_is_reported_in_ascii(tmp_path: Path) -> None:
    write(tmp_path / os.fsdecode(b"\xff.dcm"), dicom_file())

    found = only(tmp_path)

    assert isinstance(found, SkippedFile)
    assert found.path == r"\xff.dcm"
    assert "rename it" in found.detail


def test_own_folders_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path / "state" / "1.dcm", dicom_file())
    write(tmp_path / "2.dcm", dicom_file())

    found = list(scan(open_tree(str(tmp_path), {tmp_path / "state": "site.state_dir"})))

    assert [(item.path, isinstance(item, ScannedFile)) for item in found] == [
        ("2.dcm", True),
        ("state", False),
    ]


def test_a_folder_that_cannot_be_read_is_reported_once(tmp_path: Path) -> None:
    write(tmp_path / "a" / "1.dcm", dicom_file())
    write(tmp_path / "b" / "1.dcm", dicom_file())
    tree = open_tree(str(tmp_path))
    entries = tree.entries

    class Closed:
        def __getattr__(self, name: str) -> object:
            return getattr(tree, name)

        def entries(self, folder: str) -> Iterator[object]:
            if folder == "a":
                raise PermissionError(13, "Permission denied", "/patient/name")
            return entries(folder)

    found = list(scan(Closed()))  # type: ignore[arg-type]

    assert [item.path for item in found] == ["a/", "b/1.dcm"]
    assert isinstance(found[0], SkippedFile)
    assert found[0].detail == "the folder cannot be read: Permission denied"
    assert [item.path for item in scan(Closed(), "a/")] == ["b/1.dcm"]  # type: ignore[arg-type]


def test_memory_does_not_grow_with_the_number_of_files(tmp_path: Path) -> None:
    content = b"no image"
    for folder in range(100):
        (tmp_path / f"{folder:03}").mkdir()
        for number in range(100):
            (tmp_path / f"{folder:03}" / f"{number:03}").write_bytes(content)
    found = scan(open_tree(str(tmp_path)))
    first = sum(1 for _ in itertools.islice(found, 1000))
    tracemalloc.start()
    try:
        rest = sum(1 for _ in found)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert first + rest == 10_000
    assert peak < 2 << 20

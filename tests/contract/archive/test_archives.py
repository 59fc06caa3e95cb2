"""One interface, three places: a folder, an S3 server, and a folder by `file://`.

The S3 server is scripted; moto's server, which is not ours, is a fourth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from hilum.settings.archive import ArchiveSection
from hilum.store.archive.archive import Archive, place_of, quarantine_path
from hilum.store.archive.identity import FILE_NAME
from hilum.store.archive.object_archive import ObjectArchive
from hilum.store.archive.object_client import ObjectClient
from hilum.store.archive.store_errors import StoreAway
from testing.network.scripted_s3 import ACCESS_KEY, BUCKET, SECRET_KEY, scripted_s3
from tests.support.retrieve.s3_server import s3_server

SERIAL = "0123456789abcdef"
Opened = Callable[[str], Archive]


def credentials_in(folder: Path) -> Path:
    file = folder / "credentials"
    file.write_text(
        f"[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    )
    return file


@pytest.fixture(scope="session")
def scripted_endpoint() -> Iterator[str]:
    with scripted_s3() as server:
        yield server.endpoint


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    with s3_server() as url:
        httpx.put(f"{url}/{BUCKET}")
        yield url


@pytest.fixture(params=["folder", "file", "scripted", "moto"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Opens the same archive as another host would: a shared folder, or a spool of its own."""
    kind = request.param
    if kind == "folder":
        return lambda _: Archive(tmp_path / "archive", "listener-1")
    if kind == "file":
        section = ArchiveSection(url=f"file://{tmp_path}/store")
    else:
        endpoint = request.getfixturevalue(f"{kind}_endpoint")
        section = ArchiveSection(
            url=f"s3://{BUCKET}/{tmp_path.name}",
            endpoint=endpoint,
            region="us-east-1",
            credentials_file=credentials_in(tmp_path),
        )
    return lambda host: ObjectArchive(
        tmp_path / host,
        f"{host}-listener-1",
        client=ObjectClient(section),
        serial=lambda: SERIAL,
    )


@pytest.fixture
def archive(opened: Opened) -> Archive:
    made = opened("here")
    made.make()
    return made


@pytest.fixture
def elsewhere(opened: Opened, archive: Archive) -> Archive:
    return opened("there")


def received(archive: Archive, content: bytes = b"bytes of an image") -> Path:
    with archive.begin() as incoming:
        incoming.write(content)
        return incoming.commit()


def stored(archive: Archive, content: bytes = b"bytes of an image") -> str:
    file = received(archive, content)
    assert archive.place_all([file]) == {file}
    archive.settle(file, is_placed=True)
    return place_of(file)


def test_a_placed_object_is_read_by_another_host_before_it_is_settled(
    archive: Archive, elsewhere: Archive
) -> None:
    file = received(archive)
    assert archive.place_all([file]) == {file}
    path = place_of(file)
    assert elsewhere.exists(path)
    with elsewhere.open(path) as stream:
        assert stream.read() == b"bytes of an image"


def test_a_settled_object_waits_no_longer(archive: Archive, elsewhere: Archive) -> None:
    path = stored(archive)
    assert list(archive.unindexed()) == []
    with elsewhere.local(path) as file:
        assert file.read_bytes() == b"bytes of an image"
    assert elsewhere.size_of(path) == 17
    fetched = elsewhere.fetch(path)
    assert fetched.path.read_bytes() == b"bytes of an image"
    fetched.close()


def test_an_object_is_read_to_its_end_while_it_is_settled(archive: Archive) -> None:
    file = received(archive)
    archive.place_all([file])
    with archive.local(place_of(file)) as path:
        archive.settle(file, is_placed=True)
        assert path.read_bytes() == b"bytes of an image"


def test_an_empty_object_is_no_trouble_of_its_archive(archive: Archive, elsewhere: Archive) -> None:
    path = stored(archive, b"")
    assert elsewhere.size_of(path) == 0
    with elsewhere.local(path, first_bytes=100) as file:
        assert file.read_bytes() == b""
    assert elsewhere.remove(path) == 0
    assert not elsewhere.exists(path)


def test_another_process_is_given_a_path_or_the_bytes(archive: Archive) -> None:
    source = archive.source(stored(archive))
    content = source if isinstance(source, bytes) else source.read_bytes()
    assert content == b"bytes of an image"


def test_an_object_may_be_placed_again_after_a_crash(archive: Archive) -> None:
    file = received(archive)
    archive.place_all([file])
    archive.place_all([file])
    archive.settle(file)
    assert list(archive.placed()) == [archive.root / place_of(file)]
    assert not file.exists()


def test_many_objects_are_placed_at_once(archive: Archive) -> None:
    files = {received(archive, b"%d" % number) for number in range(20)}
    assert archive.place_all(files) == files
    assert len(list(archive.placed())) == 20


def test_a_missing_object_is_said_to_be_missing(archive: Archive) -> None:
    path = "ab/cd/abcd.dcm"
    assert not archive.exists(path)
    for read in (archive.size_of, archive.source, archive.fetch, archive.open):
        with pytest.raises(FileNotFoundError):
            read(path)
    with pytest.raises(FileNotFoundError), archive.local(path):
        pass
    assert archive.remove(path) == 0


def test_removed_objects_are_gone_for_all_hosts(archive: Archive, elsewhere: Archive) -> None:
    paths = [stored(archive, b"x" * 100), stored(archive, b"y" * 200), "00/00/absent.dcm"]
    with ExitStack() as held:
        assert elsewhere.remove_all(paths, held) == dict(zip(paths, (100, 200, 0), strict=True))
    elsewhere.sync_names(paths)
    assert not any(archive.exists(path) for path in paths)


def test_objects_behind_many_that_are_not_there_are_removed_as_well(archive: Archive) -> None:
    absent = [f"00/{number:02x}/absent.dcm" for number in range(30)]
    there = [stored(archive, b"%d" % number) for number in range(3)]
    assert not any(
        isinstance(found, OSError) for found in archive.remove_all(absent + there).values()
    )
    assert list(archive.placed()) == []


def test_an_object_in_quarantine_is_found_and_listed(archive: Archive, elsewhere: Archive) -> None:
    file = received(archive)
    archive.place_all([file])
    archive.quarantine(file)
    path = quarantine_path(place_of(file))
    assert [str(found.relative_to(elsewhere.root)) for found in elsewhere.quarantined()] == [path]
    assert list(elsewhere.placed()) == []
    assert elsewhere.size_of(path) == 17
    assert not file.exists()


def test_a_decision_brings_an_object_out_of_quarantine_and_back(
    archive: Archive, elsewhere: Archive
) -> None:
    path = stored(archive)
    for target in (quarantine_path(path), quarantine_path(path), path, path):
        elsewhere.bring(target)
        with archive.open(target) as stream:
            assert stream.read() == b"bytes of an image"
    assert len(list(archive.placed())) == 1
    assert list(archive.quarantined()) == []


def test_a_row_that_is_behind_a_decision_still_finds_its_object(archive: Archive) -> None:
    path = stored(archive)
    archive.bring(quarantine_path(path))
    assert archive.exists(path)
    assert archive.remove(path) == 17
    assert not archive.exists(path)


def test_a_duplicate_is_deleted_here_and_there(archive: Archive) -> None:
    file = received(archive)
    archive.place_all([file])
    archive.discard(file)
    assert not file.exists()
    assert not archive.exists(place_of(file))


def test_an_object_without_a_row_is_taken_back(archive: Archive, elsewhere: Archive) -> None:
    path = stored(archive)
    (found,) = elsewhere.placed()
    elsewhere.make_spool()
    elsewhere.take_back(found)
    (file,) = elsewhere.unindexed(elsewhere.process)
    assert file.read_bytes() == b"bytes of an image"
    assert place_of(file) == path


def test_an_archive_is_known_by_its_marker(archive: Archive, elsewhere: Archive) -> None:
    assert archive.is_there
    assert elsewhere.is_there
    stored(archive)
    assert elsewhere.has_objects


def test_an_archive_that_nobody_made_is_not_there(opened: Opened) -> None:
    made = opened("here")
    assert not made.is_there
    assert not made.has_objects


def test_a_prefix_of_another_installation_takes_nothing(opened: Opened, archive: Archive) -> None:
    other = opened("other")
    if not isinstance(other, ObjectArchive):
        pytest.skip("a folder has no marker")
    other._serial = lambda: "another installation"
    other.make_spool()
    file = received(other)
    for refused in (lambda: other.is_there, lambda: other.place_all([file])):
        with pytest.raises(StoreAway) as raised:
            refused()
        assert raised.value.cause == "not_ours"
    assert list(archive.placed()) == []
    assert file.exists()


def test_an_emptied_prefix_is_not_an_archive_whose_objects_are_missing(
    opened: Opened, archive: Archive
) -> None:
    if not isinstance(archive, ObjectArchive):
        pytest.skip("a folder has no marker")
    path = stored(archive)
    archive._client.delete([FILE_NAME, path])
    with pytest.raises(StoreAway) as raised:
        opened("there").exists(path)
    assert raised.value.cause == "empty"


def test_the_rights_are_tried_and_nothing_is_left(archive: Archive) -> None:
    archive.probe()
    assert list(archive.placed()) == []

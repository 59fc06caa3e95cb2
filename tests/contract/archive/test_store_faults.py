"""What an object store does wrong: nothing is lost, and the cause is said."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from hilum.errors import ConfigurationError
from hilum.settings.archive import ArchiveSection
from hilum.store.archive.archive import place_of
from hilum.store.archive.object_archive import ObjectArchive
from hilum.store.archive.object_client import ObjectClient
from hilum.store.archive.store_errors import CAUSES, StoreAway, cause_of
from testing.network.scripted_s3 import (
    ACCESS_KEY,
    SECRET_KEY,
    Fault,
    ScriptedS3,
    scripted_s3,
)

SERIAL = "0123456789abcdef"


@pytest.fixture
def server() -> Iterator[ScriptedS3]:
    with scripted_s3() as started:
        yield started


def credentials_in(folder: Path, key: str = ACCESS_KEY) -> Path:
    file = folder / key
    file.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {SECRET_KEY}\n")
    return file


def archive_on(server: ScriptedS3, folder: Path, **section: object) -> ObjectArchive:
    settings = {"credentials_file": credentials_in(folder), **server.section(), **section}
    archive = ObjectArchive(
        folder / "spool",
        "listener-1",
        client=ObjectClient(ArchiveSection.model_validate(settings)),
        serial=lambda: SERIAL,
    )
    archive.make_spool()
    return archive


@pytest.fixture
def archive(server: ScriptedS3, tmp_path: Path) -> ObjectArchive:
    made = archive_on(server, tmp_path)
    made.make()
    return made


def received(archive: ObjectArchive, content: bytes = b"bytes of an image") -> Path:
    with archive.begin() as incoming:
        incoming.write(content)
        return incoming.commit()


@pytest.mark.parametrize("fault", ["slow_down", "error", "full"])
def test_a_short_trouble_of_the_store_is_waited_for(
    server: ScriptedS3, archive: ObjectArchive, fault: Fault
) -> None:
    file = received(archive)
    server.fail("PUT", fault, times=2)
    assert archive.place_all([file]) == {file}
    assert archive.problem == ""


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("slow_down", "slow_down"),
        ("full", "full"),
        ("error", "server_error"),
        ("denied", "denied"),
        ("hang", "no_answer"),
    ],
)
def test_a_lasting_trouble_leaves_the_file_in_the_spool_with_its_cause(
    server: ScriptedS3, archive: ObjectArchive, fault: Fault, cause: str
) -> None:
    file = received(archive)
    server.fail("PUT", fault)
    with pytest.raises(StoreAway) as raised:
        archive.place_all([file])
    assert raised.value.cause == cause
    assert archive.problem == raised.value.said
    assert file.exists()
    server.mend()
    assert archive.place_all([file]) == {file}
    assert archive.problem == ""


def test_a_store_that_hangs_is_not_waited_for_by_each_object(
    server: ScriptedS3, archive: ObjectArchive
) -> None:
    files = [received(archive) for _ in range(24)]  # eight are put at once
    before = server.requests["PUT"]
    server.fail("PUT", "hang")
    with pytest.raises(StoreAway):
        archive.place_all(files)
    assert server.requests["PUT"] - before < 24
    server.mend()
    assert archive.place_all(files) == set(files)


def test_after_an_error_objects_are_put_one_at_a_time(
    server: ScriptedS3, archive: ObjectArchive
) -> None:
    files = [received(archive) for _ in range(8)]
    server.fail("PUT", "hang")
    with pytest.raises(StoreAway):
        archive.place_all(files)
    server.log.clear()
    with pytest.raises(StoreAway):
        archive.place_all(files)
    assert len({key for method, key in server.log if method == "PUT"}) == 1
    server.mend()
    assert archive.place_all(files) == set(files)


def test_a_file_that_cannot_be_read_is_no_trouble_of_the_store(
    archive: ObjectArchive,
) -> None:
    bad = received(archive)
    good = received(archive)
    bad.unlink()
    bad.symlink_to("/proc/self/mem")  # EIO, as a bad sector
    assert archive.place_all([bad, good]) == {good}
    assert archive.problem == ""


def test_a_put_whose_answer_is_lost_meets_its_own_object(
    server: ScriptedS3, archive: ObjectArchive
) -> None:
    file = received(archive)
    server.fail("PUT", "lost", times=1)
    try:
        archive.place_all([file])
    except StoreAway:
        archive.place_all([file])
    assert server.bucket[f"hilum/{place_of(file)}"] == b"bytes of an image"


def test_other_bytes_under_the_name_are_never_replaced(
    server: ScriptedS3, archive: ObjectArchive
) -> None:
    taken = received(archive)
    other = received(archive, b"another image")
    server.bucket[f"hilum/{place_of(taken)}"] = b"bytes of somebody"
    assert archive.place_all([taken, other]) == {other}
    assert server.bucket[f"hilum/{place_of(taken)}"] == b"bytes of somebody"
    assert taken.exists()


def test_a_download_may_be_slow_but_may_not_stop(
    server: ScriptedS3, archive: ObjectArchive
) -> None:
    file = received(archive)
    archive.place_all([file])
    archive.settle(file, is_placed=True)
    server.fail("GET", "trickle", times=1)  # longer than the limit of a request
    fetched = archive.fetch(place_of(file))
    assert fetched.path.read_bytes() == b"bytes of an image"
    fetched.close()
    server.fail("GET", "stall")
    with pytest.raises(StoreAway):
        archive.fetch(place_of(file))


def test_an_answer_that_is_cut_is_never_taken_for_the_object(
    server: ScriptedS3, archive: ObjectArchive
) -> None:
    content = bytes(200_000)
    file = received(archive, content)
    archive.place_all([file])
    server.fail("GET", "cut")
    with pytest.raises(StoreAway):
        archive.fetch(place_of(file))
    server.mend()
    fetched = archive.fetch(place_of(file))
    assert fetched.path.stat().st_size == len(content)
    fetched.close()


def test_a_store_that_is_stopped_is_away_and_nothing_is_missing(
    server: ScriptedS3, archive: ObjectArchive
) -> None:
    file = received(archive)
    archive.place_all([file])
    archive.settle(file, is_placed=True)
    server.stop()
    for ask in (archive.exists, archive.fetch):
        with pytest.raises(StoreAway) as raised:
            ask(place_of(file))
        assert raised.value.cause == "no_answer"
    assert isinstance(archive.remove_all([place_of(file)])[place_of(file)], StoreAway)
    server.start()
    assert archive.exists(place_of(file))


def test_a_bucket_that_is_gone_is_no_missing_object(
    server: ScriptedS3, archive: ObjectArchive
) -> None:
    file = received(archive)
    archive.place_all([file])
    archive.settle(file, is_placed=True)
    server.objects.clear()
    with pytest.raises(StoreAway) as raised:
        archive.exists(place_of(file))
    assert raised.value.cause == "no_bucket"


def test_wrong_credentials_are_said(server: ScriptedS3, tmp_path: Path) -> None:
    archive = archive_on(server, tmp_path, credentials_file=credentials_in(tmp_path, "another key"))
    with pytest.raises(StoreAway) as raised:
        archive.probe()
    assert raised.value.cause == "denied"


def test_a_wrong_region_is_said(server: ScriptedS3, archive: ObjectArchive) -> None:
    server.region = "eu-central-1"
    with pytest.raises(StoreAway) as raised:
        archive.probe()
    assert raised.value.cause == "region"


def test_a_clock_that_is_wrong_is_said(server: ScriptedS3, archive: ObjectArchive) -> None:
    server.clock_ahead = timedelta(hours=2)
    with pytest.raises(StoreAway) as raised:
        archive.probe()
    assert raised.value.cause == "clock"


def test_rights_to_delete_are_tried(server: ScriptedS3, archive: ObjectArchive) -> None:
    for method in ("POST", "DELETE"):
        server.fail(method, "denied")
    with pytest.raises(StoreAway) as raised:
        archive.probe()
    assert raised.value.cause == "denied"


def test_no_error_quotes_a_secret(server: ScriptedS3, archive: ObjectArchive) -> None:
    server.fail("*", "denied")
    with pytest.raises(StoreAway) as raised:
        archive.probe()
    assert SECRET_KEY not in repr(raised.value) + archive.problem
    assert raised.value.__cause__ is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no section",
        "[other]\naws_access_key_id = a\n",
        f"[default]\naws_access_key_id = {SECRET_KEY}\n",
    ],
)
def test_a_file_without_credentials_is_refused_unquoted(tmp_path: Path, text: str) -> None:
    file = tmp_path / "credentials"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as raised:
        ObjectClient(ArchiveSection(url="s3://images", credentials_file=file))
    assert "archive.credentials_file" in str(raised.value)
    assert SECRET_KEY not in str(raised.value)


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("<Error><Code>NoSuchBucket</Code></Error>", "no_bucket"),
        ("<Error><Code>SignatureDoesNotMatch</Code></Error>", "denied"),
        ("status code: 301 Moved", "region"),
        ("this normally indicates an incorrectly configured region", "region"),
        ("Server returned non-2xx status code: 503 Service Unavailable", "slow_down"),
        ("<Code>XMinioStorageFull</Code>", "full"),
        ("Generic LocalFileSystem error: No space left on device (os error 28)", "full"),
        ("connection refused", "no_answer"),
        ("<Code>SomethingNew</Code> status code: 500 Internal", "server_error"),
    ],
)
def test_causes_are_read_from_answers(message: str, cause: str) -> None:
    assert cause_of(message) == cause
    assert cause in CAUSES

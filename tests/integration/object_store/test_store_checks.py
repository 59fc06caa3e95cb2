"""`hilum check`, the start and the settings with an object store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from hilum.errors import ConfigurationError
from hilum.settings import Settings
from hilum.store.archive.archives import open_archive
from hilum.store.archive.consistency import begin_archive, require_archive, require_ledger
from hilum.store.archive.identity import FILE_NAME
from hilum.store.archive.store_errors import StoreAway
from hilum.store.ledger import RecordOutcome
from hilum.supervisor.checks.archive import archive_checks
from hilum.supervisor.checks.check import Check, unless_refused
from hilum.supervisor.housekeeping import Housekeeper
from testing.network.scripted_s3 import SECRET_KEY, ScriptedS3, scripted_s3
from tests.support.server.store_site import PREFIX, StoreSite, settings_on


@pytest.fixture
def server() -> Iterator[ScriptedS3]:
    with scripted_s3() as started:
        yield started


@pytest.fixture
def site(server: ScriptedS3, tmp_path: Path) -> Iterator[StoreSite]:
    made = StoreSite(server, tmp_path / "state")
    yield made
    made.ledger.close()


def checked(settings: Settings) -> Check:
    (found,) = unless_refused("archive", archive_checks(settings))
    return found


def test_a_store_that_may_be_used_is_said_with_its_address(site: StoreSite) -> None:
    found = checked(site.settings)
    assert (found.ok, found.detail) == (True, f"s3://images/{PREFIX}")
    assert not [key for key in site.server.bucket if "probe" in key], "nothing is left"


def _without_bucket(server: ScriptedS3) -> None:
    server.objects.clear()


def _in_another_region(server: ScriptedS3) -> None:
    server.region = "eu-central-1"


def _with_another_clock(server: ScriptedS3) -> None:
    server.clock_ahead = timedelta(hours=1)


def _without_rights_to_put(server: ScriptedS3) -> None:
    server.fail("PUT", "denied")


def _without_rights_to_delete(server: ScriptedS3) -> None:
    server.fail("POST", "denied")


def _without_rights_to_list(server: ScriptedS3) -> None:
    server.may_list = False


def _full(server: ScriptedS3) -> None:
    server.fail("PUT", "full")


def _of_another_installation(server: ScriptedS3) -> None:
    server.bucket[f"{PREFIX}/{FILE_NAME}"] = b'{"installation": "another", "archive": "theirs"}'


@pytest.mark.parametrize(
    ("change", "detail", "advice"),
    [
        (_without_bucket, "there is no such bucket", "archive.url"),
        (_in_another_region, "another region", "archive.region"),
        (_with_another_clock, "RequestTimeTooSkewed", "NTP"),
        (_without_rights_to_put, "refuses these credentials", "PutObject"),
        (_without_rights_to_delete, "refuses these credentials", "DeleteObject"),
        (_without_rights_to_list, "refuses these credentials", "ListBucket"),
        (_full, "full", "space"),
        (_of_another_installation, "another installation", "archive.url"),
        (ScriptedS3.stop, "does not answer", "the network"),
    ],
)
def test_a_store_that_may_not_be_used_is_said_with_its_cause(
    site: StoreSite, change: Callable[[ScriptedS3], None], detail: str, advice: str
) -> None:
    change(site.server)
    found = checked(site.settings)
    assert not found.ok
    assert detail in found.detail
    assert advice in found.advice
    assert SECRET_KEY not in found.detail + found.advice


def test_a_bucket_that_was_emptied_is_not_taken_for_a_new_one(site: StoreSite) -> None:
    site.index(site.receive("1.2.3.1"))
    site.server.bucket.clear()
    assert "no marker" in checked(site.settings).detail
    with pytest.raises(ConfigurationError, match="no marker"):
        require_archive(site.ledger.url, site.archive)
    with pytest.raises(ConfigurationError, match="no marker"):
        begin_archive(site.ledger.url, site.archive)
    assert site.server.bucket == {}, "and no marker was made"


def test_objects_without_a_ledger_are_no_new_installation(site: StoreSite, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds objects"):
        require_ledger(f"sqlite:///{tmp_path}/none.sqlite", site.archive)


def test_a_new_installation_says_that_its_store_is_away(server: ScriptedS3, tmp_path: Path) -> None:
    archive = open_archive(settings_on(server, tmp_path / "state"))
    server.stop()
    with pytest.raises(ConfigurationError, match="does not answer"):
        require_ledger(f"sqlite:///{tmp_path}/none.sqlite", archive)


def test_a_listener_begins_while_the_store_is_away_and_puts_its_objects_later(
    server: ScriptedS3, tmp_path: Path
) -> None:
    server.stop()
    site = StoreSite(server, tmp_path / "state")
    file = site.receive("1.2.3.1")
    server.start()
    begin_archive(site.ledger.url, site.archive)
    site.index(file)
    assert len(site.stored()) == 1
    site.ledger.close()


def test_a_new_store_that_was_away_at_the_start_is_begun_when_it_answers(
    server: ScriptedS3, tmp_path: Path
) -> None:
    server.stop()
    site = StoreSite(server, tmp_path / "state")
    file = site.receive("1.2.3.1")
    server.start()
    with pytest.raises(StoreAway, match="marker"):
        site.index(file)
    housekeeper = Housekeeper(site.settings)
    housekeeper.turn()
    housekeeper.stop()
    assert site.index(file) == [RecordOutcome.NEW]
    site.ledger.close()


def test_an_emptied_bucket_gets_no_marker_from_the_housekeeper(site: StoreSite) -> None:
    site.index(site.receive("1.2.3.1"))
    site.server.bucket.clear()
    housekeeper = Housekeeper(site.settings)
    housekeeper.turn()
    housekeeper.stop()
    assert site.server.bucket == {}


def test_a_prefix_of_another_installation_stops_the_start(
    site: StoreSite, server: ScriptedS3
) -> None:
    _of_another_installation(server)
    with pytest.raises(ConfigurationError, match="another installation"):
        begin_archive(site.ledger.url, site.archive)


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"url": "ftp://host/folder"}, "must begin with one of"),
        ({"url": "s3://key:secret@images"}, "leave credentials out"),
        ({"url": "s3://images?versionId=1"}, "leave credentials out"),
        ({"url": "s3:///prefix"}, "names no bucket"),
        ({"url": "file://host/folder"}, "three slashes"),
        ({"url": "s3://images", "endpoint": "minio:9000"}, "without credentials"),
    ],
)
def test_settings_of_a_store_are_refused_with_their_remedy(
    section: dict[str, str], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        Settings.model_validate({"archive": section})

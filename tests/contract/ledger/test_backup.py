"""Backup: whole although others write, incremental, and nothing that was acknowledged is missing from it."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import insert, select, text

from hilum.domain import Priority, identifier_names
from hilum.errors import ConfigurationError
from hilum.store.admin.backup import back_up
from hilum.store.archive.archive import Archive, place_of
from hilum.store.database.engines import open_engine
from hilum.store.ledger import Ledger
from hilum.store.migrations.migrate import migrate
from hilum.store.migrations.revision import current_revision, require_revision
from hilum.store.queries.views import LedgerViews, StudyFilter
from hilum.store.retention.policy import RetentionPolicy, Rule
from hilum.store.schema.tables import expired_file, instance, result
from tests.support.ledger.arrivals import arrival_of
from tests.support.ledger.database import change
from tests.support.ledger.deciding import Site
from tests.support.ledger.ledgers import migrated_postgres, migrated_sqlite, older_sqlite
from tests.support.ledger.street import Clock, Street
from tests.support.machine.accounts import folder_of_stranger, open_to_all


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    (tmp_path / "state").mkdir()
    clock = Clock()
    ledger = Ledger(migrated_sqlite(tmp_path / "state"), clock)
    yield Street(ledger, clock)
    ledger.close()


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "state" / "archive", "listener-0")


def store(archive: Archive, name: str, content: bytes = b"pixels") -> Path:
    file = archive.root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def copied(folder: Path) -> dict[str, bytes]:
    root = folder / "archive"
    return {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*.dcm")}


def test_the_copy_holds_what_the_ledger_names_and_what_was_acknowledged(
    street: Street, archive: Archive, tmp_path: Path
) -> None:
    store(archive, "studies/1.2.3.1.dcm", b"one")
    street.walk("1.2.3", 1)
    store(archive, "quarantine/ab/cd/other.dcm", b"conflict")
    with archive.begin() as incoming:
        incoming.write(b"acknowledged, no row yet")
        arriving = incoming.commit()
    put = back_up(street.ledger.url, archive, tmp_path / "copy")
    assert sum(put.values()) == 3
    assert put["missing"] == 0
    assert copied(tmp_path / "copy") == {
        "studies/1.2.3.1.dcm": b"one",
        "quarantine/ab/cd/other.dcm": b"conflict",
        f"unindexed/backup/{arriving.name}": b"acknowledged, no row yet",
    }
    assert list(Archive(tmp_path / "copy" / "archive").unindexed())
    url = f"sqlite:///{tmp_path / 'copy' / 'ledger.sqlite'}"
    require_revision(url)
    views, original = LedgerViews(url), LedgerViews(street.ledger.url)
    assert views.list_studies(StudyFilter()) == original.list_studies(StudyFilter())
    assert views.study("1.2.3") == original.study("1.2.3")
    views.close()
    original.close()


def test_again_into_the_same_folder_costs_only_what_is_new(
    street: Street, archive: Archive, tmp_path: Path
) -> None:
    store(archive, "studies/1.2.3.1.dcm")
    street.walk("1.2.3", 1)
    back_up(street.ledger.url, archive, tmp_path / "copy")
    store(archive, "studies/1.2.4.1.dcm")
    street.walk("1.2.4", 1)
    put = back_up(street.ledger.url, archive, tmp_path / "copy")
    assert (put["known"], put["linked"] + put["copied"]) == (1, 1)


def arrive(archive: Archive, content: bytes) -> Path:
    with archive.begin() as incoming:
        incoming.write(content)
        return incoming.commit()


def give_row(street: Street, archive: Archive, file: Path, digest: str) -> None:
    """To a file that has arrived, as an image of a study."""
    archive.place(file)
    street.ledger.record(
        [
            arrival_of(
                "1.2.3.1",
                "1.2.3",
                ("r@1",),
                path=place_of(file),
                digest=digest,
                pixel_digest="same",
            )
        ]
    )
    archive.settle(file)


def test_what_an_earlier_backup_found_arriving_is_recorded_once(
    street: Street, archive: Archive, tmp_path: Path
) -> None:
    """Else a restored server would take it for the newest header of its image."""
    first = arrive(archive, b"old header")
    back_up(street.ledger.url, archive, tmp_path / "copy")
    give_row(street, archive, first, "old")
    second = arrive(archive, b"new header")
    give_row(street, archive, second, "new")
    third = arrive(archive, b"arrives just now")
    back_up(street.ledger.url, archive, tmp_path / "copy")
    assert [file.name for file in Archive(tmp_path / "copy" / "archive").unindexed()] == [
        third.name
    ]
    assert copied(tmp_path / "copy")[place_of(second)] == b"new header"


def test_a_backup_that_is_cut_off_leaves_the_one_before(
    street: Street, archive: Archive, tmp_path: Path
) -> None:
    first = arrive(archive, b"acknowledged")
    back_up(street.ledger.url, archive, tmp_path / "copy")
    before = (tmp_path / "copy" / "ledger.sqlite").read_bytes()
    give_row(street, archive, first, "one")
    store(archive, "studies/1.2.4.1.dcm")
    street.walk("1.2.4", 1)
    (tmp_path / "copy" / "archive" / "studies").write_bytes(b"in the way")
    with pytest.raises(OSError):  # noqa: PT011 - what it says is the file system's
        back_up(street.ledger.url, archive, tmp_path / "copy")
    assert (tmp_path / "copy" / "ledger.sqlite").read_bytes() == before
    assert [file.name for file in Archive(tmp_path / "copy" / "archive").unindexed()] == [
        first.name
    ]


def test_a_header_that_is_corrected_between_the_dump_and_the_backup(
    postgres_url: str, tmp_path: Path
) -> None:
    archive, clock = Archive(tmp_path / "state" / "archive", "listener-0"), Clock()
    with closing(Ledger(migrated_postgres(postgres_url), clock)) as ledger:
        street = Street(ledger, clock)
        files = arrive(archive, b"in the dump"), arrive(archive, b"corrected")
        for file in files:
            give_row(street, archive, file, file.name)
        change(
            ledger,
            insert(expired_file).values(path="ab/cd/erased.dcm", cause="erased", due_at=0.0),
            insert(expired_file).values(path="ab/cd/gone.dcm", cause="age", due_at=0.0),
        )
        store(archive, "ab/cd/erased.dcm")
        put = back_up(ledger.url, archive, tmp_path / "copy")
    assert copied(tmp_path / "copy") == {
        place_of(files[0]): b"in the dump",
        place_of(files[1]): b"corrected",
    }
    assert put["missing"] == 0


def test_a_copy_that_was_cut_off_is_made_whole(
    street: Street, archive: Archive, tmp_path: Path
) -> None:
    store(archive, "studies/1.2.3.1.dcm", b"whole")
    street.walk("1.2.3", 1)
    half = tmp_path / "copy" / "archive" / "studies"
    half.mkdir(parents=True)
    (half / "1.2.3.1.part").write_bytes(b"wh")
    (half / "1.2.3.1.dcm").write_bytes(b"wh")
    (tmp_path / "copy" / "ledger.part").write_bytes(b"half")
    back_up(street.ledger.url, archive, tmp_path / "copy")
    assert copied(tmp_path / "copy") == {"studies/1.2.3.1.dcm": b"whole"}


def test_a_file_that_is_gone_is_said_and_pixels_that_left_are_not_missed(
    street: Street, archive: Archive, tmp_path: Path
) -> None:
    street.walk("1.2.3", 1)
    assert back_up(street.ledger.url, archive, tmp_path / "copy")["missing"] == 1
    retention = RetentionPolicy(street.ledger.url, archive, street.clock)
    street.clock.now += 1
    retention.release(Rule(frozenset(Priority), street.clock.now, "age"))
    assert back_up(street.ledger.url, archive, tmp_path / "copy")["missing"] == 0
    retention.close()


def test_nobody_is_at_work_on_a_copy(street: Street, archive: Archive, tmp_path: Path) -> None:
    street.receive("1.2.3", 1)
    street.jobs_of("analyse")
    street.ledger.acquire_destination("pacs", "worker-1", 600)
    street.beat("analyser-1", "analyser")
    back_up(street.ledger.url, archive, tmp_path / "copy")
    restored = Ledger(f"sqlite:///{tmp_path / 'copy' / 'ledger.sqlite'}", street.clock)
    (job,) = restored.claim("analyse", 1, "worker-2", 60)
    assert (job.lease.attempts, job.lease.lapses) == (1, 0)
    assert restored.acquire_destination("pacs", "worker-2", 60)
    restored.close()
    views = LedgerViews(f"sqlite:///{tmp_path / 'copy' / 'ledger.sqlite'}")
    assert views.processes() == []
    views.close()
    assert street.claim("analyse") == [], "the original goes on"


@pytest.mark.parametrize("revision", ["0001", "0003"])
def test_what_an_earlier_version_has_left_is_copied_for_that_version(
    revision: str, archive: Archive, tmp_path: Path
) -> None:
    """An upgrade begins with a backup, and who notices late has installed the new version already."""
    (tmp_path / "state").mkdir()
    url, arrival = older_sqlite(tmp_path / "state", revision), arrival_of("1.2.3.1", "1.2.3", ())
    store(archive, arrival.instance.path, b"one")
    engine = open_engine(url)
    with engine.begin() as connection:
        values = dataclasses.asdict(arrival.instance) | {"id": 1}
        connection.execute(
            insert(instance).values({name: values[name] for name in values if name in instance.c})
        )
        columns = (
            "instance_id, study_instance_uid, release, state, lane, due_at, attempts, lease_token"
        )
        connection.execute(
            text(
                f"INSERT INTO reading ({columns}) VALUES (1, '1.2.3', 'r@1', 'leased', 1, 0, 1,"
                " 'token')"
            )
        )
    engine.dispose()
    assert back_up(url, archive, tmp_path / "copy").total() == 1
    assert copied(tmp_path / "copy") == {arrival.instance.path: b"one"}
    again = f"sqlite:///{tmp_path / 'copy' / 'ledger.sqlite'}"
    assert current_revision(again) == revision
    migrate(again)
    engine = open_engine(again)
    with engine.connect() as connection:
        assert connection.execute(
            text("SELECT state, attempts, lease_token FROM reading")
        ).one() == ("due", 0, None)
    engine.dispose()


def test_no_backup_into_itself(street: Street, archive: Archive, tmp_path: Path) -> None:
    for folder in (tmp_path / "state", tmp_path / "state" / "archive" / "backup"):
        with pytest.raises(ConfigurationError, match="lies in the state folder"):
            back_up(street.ledger.url, archive, folder)


def test_no_backup_into_a_folder_that_a_link_makes_the_state_folder(
    street: Street, archive: Archive, tmp_path: Path
) -> None:
    store(archive, "studies/1.2.3.1.dcm")
    (tmp_path / "disk").mkdir()
    archive.root.rename(tmp_path / "disk" / "archive")
    archive.root.symlink_to(tmp_path / "disk" / "archive")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "archive").symlink_to(tmp_path / "disk" / "archive")
    for folder in (
        tmp_path / "state",
        tmp_path / "state" / "copy",
        tmp_path / "disk" / "archive" / "copy",
        tmp_path / "linked",
    ):
        with pytest.raises(ConfigurationError, match="lies in the state folder"):
            back_up(street.ledger.url, archive, folder)


def test_no_backup_over_the_ledger_that_is_in_use(
    street: Street, archive: Archive, tmp_path: Path
) -> None:
    elsewhere = Archive(tmp_path / "other" / "archive")
    with pytest.raises(ConfigurationError, match="ledger that is in use"):
        back_up(street.ledger.url, elsewhere, tmp_path / "state")
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "ledger.sqlite").symlink_to(tmp_path / "state" / "ledger.sqlite")
    with pytest.raises(ConfigurationError, match="ledger that is in use"):
        back_up(street.ledger.url, elsewhere, tmp_path / "copy")


def epoch_of(folder: Path) -> str:
    with closing(Ledger(f"sqlite:///{folder / 'ledger.sqlite'}")) as ledger:
        return ledger.begin_epoch()


def identifiers_of(url: str) -> list[dict[str, str]]:
    engine = open_engine(url)
    with engine.connect() as connection:
        found = [
            dict(row)
            for row in connection.execute(
                select(result.c.identifiers).order_by(result.c.id)
            ).scalars()
        ]
    engine.dispose()
    return found


def test_each_server_that_begins_on_a_backup_mints_in_an_epoch_of_its_own(
    street: Street, archive: Archive, tmp_path: Path
) -> None:
    street.walk("1.2.3", 1)
    before = street.ledger.begin_epoch()
    back_up(street.ledger.url, archive, tmp_path / "copy")
    shutil.copytree(tmp_path / "copy", tmp_path / "again")
    epochs = [
        epoch_of(tmp_path / "copy"),
        epoch_of(tmp_path / "again"),
        street.ledger.begin_epoch(),
    ]
    assert epochs[2] == before, "the one that goes on keeps its own"
    assert len(set(epochs)) == 3
    assert epoch_of(tmp_path / "copy") == epochs[0], "a restart begins nothing"


def test_a_copy_of_the_ledgers_file_begins_an_epoch_too(street: Street, tmp_path: Path) -> None:
    before = street.ledger.begin_epoch()
    (tmp_path / "copy").mkdir()
    street.ledger.close()
    shutil.copy(tmp_path / "state" / "ledger.sqlite", tmp_path / "copy" / "ledger.sqlite")
    assert epoch_of(tmp_path / "copy") != before


def test_a_result_without_document_gets_other_uids_where_the_backup_is_started(
    street: Street, archive: Archive, tmp_path: Path
) -> None:
    """The server that went on has made its document, and sent it."""
    street.walk("1.2.3", 1)
    street.receive("1.2.4", 1)
    street.read()
    street.clock.now += 1000
    street.assemble()
    street.ledger.begin_epoch()
    before = identifiers_of(street.ledger.url)
    back_up(street.ledger.url, archive, tmp_path / "copy")
    epoch_of(tmp_path / "copy")
    reported, due = identifiers_of(f"sqlite:///{tmp_path / 'copy' / 'ledger.sqlite'}")
    assert reported == before[0], "its document is there and bears them"
    assert due.keys() == before[1].keys()
    assert {kind for kind in due if due[kind] == before[1][kind]} == {
        kind for kind in due if kind.endswith("_series")
    }


def test_a_dump_that_was_restored_begins_an_epoch(postgres_url: str) -> None:
    """pg_restore makes the tables anew, in this cluster or in another one."""
    url = migrated_postgres(postgres_url)
    with closing(Ledger(url)) as ledger:
        before = ledger.begin_epoch()
        assert ledger.begin_epoch() == before
        engine = open_engine(url)
        with engine.begin() as connection:
            connection.execute(text("ALTER TABLE installation RENAME TO before"))
            connection.execute(text("CREATE TABLE installation AS SELECT * FROM before"))
            connection.execute(text("DROP TABLE before"))
        engine.dispose()
        assert ledger.begin_epoch() != before


def test_a_folder_of_another_account_takes_no_backup(street: Street, archive: Archive) -> None:
    """Its links would lead the copy over what is ours."""
    with open_to_all() as site:
        theirs, shared = folder_of_stranger(site / "theirs"), site / "shared"
        shared.mkdir()
        shared.chmod(0o777)
        for target in (theirs, shared):
            with pytest.raises(ConfigurationError, match="other accounts may write there"):
                back_up(street.ledger.url, archive, target)
            assert list(target.iterdir()) == []
        shared.chmod(0o755)
        back_up(street.ledger.url, archive, shared)


def test_a_restored_server_never_sends_other_bytes_under_a_uid_that_was_sent(
    tmp_path: Path,
) -> None:
    """Both make the report of a study that came after the backup, at another time and so with other bytes."""
    (tmp_path / "state").mkdir()
    site = Site(tmp_path / "state", migrated_sqlite(tmp_path / "state"))
    site.receive("1.2.3.1")
    (known,) = site.walk()
    back_up(site.url, site.archive, tmp_path / "copy")
    restored = Site(tmp_path / "copy", f"sqlite:///{tmp_path / 'copy' / 'ledger.sqlite'}")
    minted = []
    for each in (site, restored):
        each.receive("1.2.4.1", study="1.2.4")
        (job,) = each.walk()
        minted.append(job.result.identifiers)
        each.close()
    former, since = minted
    _, series = identifier_names()
    assert {kind for kind in former if former[kind] == since[kind]} == set(series)
    assert known.result.identifiers["sr"] not in (former["sr"], since["sr"])

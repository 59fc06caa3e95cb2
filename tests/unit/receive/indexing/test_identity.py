"""What is the same is said by files, not by a digest that a sender can bring about."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import xxhash

from hilum.domain import Instance
from hilum.receive.files.folder import FileOutcome
from hilum.receive.headers import file_meta
from hilum.receive.indexing.describe import describe
from hilum.receive.indexing.indexer import index
from hilum.receive.storage.session import indexing
from hilum.receive.storage.store_command import StoreCommand
from hilum.services.image_decisions import open_decisions
from hilum.services.ingest import FileOrigin, ingest, taking
from hilum.settings import Settings
from hilum.store.admin.backup import back_up
from hilum.store.archive.archive import Archive
from hilum.store.installation.digest_seed import seed_of
from hilum.store.intake.received import Compared
from hilum.store.ledger import ImageChanged, Ledger, RecordOutcome
from tests.support.ledger.arrivals import first_arrival
from tests.support.ledger.storing import data_set, meta
from tests.support.objects.collisions import colliding_data_sets, colliding_pixels
from tests.support.server.listening import data_set_of, make_settings

UID = "1.2.3"
ORIGIN = FileOrigin("INGEST", "HILUM", None)


class Site:
    """An installation without processes.

    `seed` of what comes: 0, as in an archive of before there was one.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.ledger = Ledger(self.settings.ledger_url)
        self.archive = Archive(self.settings.archive_dir, "listener-1")
        self.seed = self.ledger.digest_seed

    def put(self, encoded: bytes, sender: str = "MODALITY") -> Path:
        with self.archive.begin() as incoming:
            incoming.write(
                file_meta.encode(dataclasses.replace(meta(UID), calling_ae_title=sender)), encoded
            )
            return incoming.commit()

    def receive(self, *encoded: bytes, sender: str = "MODALITY") -> list[RecordOutcome]:
        files = [self.put(item, sender) for item in encoded]
        known: dict[Path | str, Instance] = {file: describe(file, self.seed) for file in files}
        return list(index(files, self.settings, self.ledger, self.archive, known).elements())

    def rows(self, query: str) -> list[Any]:
        with (
            contextlib.closing(
                sqlite3.connect(self.settings.site.state_dir / "ledger.sqlite")
            ) as connection,
            connection,
        ):
            return connection.execute(query).fetchall()

    def in_use(self) -> bytes:
        ((path,),) = self.rows("SELECT path FROM instance")
        return data_set_of(self.archive.locate(path))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(make_settings(tmp_path / "state"))
    yield made
    made.ledger.close()


@pytest.fixture
def older(site: Site) -> Site:
    """Its image came before there was a seed."""
    site.seed = 0
    return site


def upgraded(site: Site) -> Site:
    site.seed = site.ledger.digest_seed
    return site


def test_pictures_with_one_digest_are_made_by_hand_and_the_seed_tells_them_apart(
    site: Site,
) -> None:
    one, other = colliding_pixels()
    assert one != other
    assert xxhash.xxh3_128(one).digest() == xxhash.xxh3_128(other).digest()
    assert (
        xxhash.xxh3_128(one, seed=site.seed).digest()
        != xxhash.xxh3_128(other, seed=site.seed).digest()
    )


@pytest.mark.parametrize("is_older", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_other_pixels_with_the_same_public_digest_are_a_conflict_and_kept(
    site: Site, *, is_older: bool, together: bool
) -> None:
    one, other = colliding_data_sets(UID)
    site.seed = 0 if is_older else site.seed
    if together:
        assert sorted(site.receive(one, other)) == [RecordOutcome.CONFLICT, RecordOutcome.NEW]
    else:
        site.receive(one)
        assert upgraded(site).receive(other) == [RecordOutcome.CONFLICT]
    assert site.in_use() == one
    ((quarantined,),) = site.rows("SELECT path FROM conflict")
    assert data_set_of(site.archive.locate(quarantined)) == other


@pytest.mark.parametrize("is_older", [False, True])
def test_they_do_not_pass_for_a_corrected_header_either(site: Site, *, is_older: bool) -> None:
    (one, _), (_, renamed) = colliding_data_sets(UID), colliding_data_sets(UID, patient_id=b"P2")
    site.seed = 0 if is_older else site.seed
    site.receive(one)
    assert upgraded(site).receive(renamed) == [RecordOutcome.CONFLICT]
    assert site.rows("SELECT header_revision FROM instance") == [(1,)]
    assert site.in_use() == one


def test_digests_that_are_forced_equal_delete_nothing(site: Site) -> None:
    """As if somebody knew the seed: the files are looked at."""
    site.receive(data_set(UID))
    ((digest, pixel_digest),) = site.rows("SELECT digest, pixel_digest FROM instance")
    file = site.put(data_set(UID, pixels=b"\1\2" * 50))
    forced = dataclasses.replace(describe(file), digest=digest, pixel_digest=pixel_digest)
    assert list(index([file], site.settings, site.ledger, site.archive, {file: forced})) == [
        RecordOutcome.CONFLICT
    ]
    assert site.in_use() == data_set(UID)
    ((quarantined, said),) = site.rows("SELECT path, digest FROM conflict")
    assert (data_set_of(site.archive.locate(quarantined)), said.split("-")[0]) == (
        data_set(UID, pixels=b"\1\2" * 50),
        "sha256",
    )


@pytest.mark.parametrize("is_older", [False, True])
def test_a_header_that_does_not_count_is_known_by_its_bytes_and_hides_no_other(
    site: Site, *, is_older: bool
) -> None:
    """Another sender's: it waits in quarantine, and what only looks like it is not deleted with it."""
    (one, _), (same, other) = colliding_data_sets(UID), colliding_data_sets(UID, patient_id=b"P2")
    site.seed = 0 if is_older else site.seed
    site.receive(one)
    assert site.receive(same, sender="OTHER") == [RecordOutcome.HEADER_CONFLICT]
    assert upgraded(site).receive(same, sender="OTHER") == [RecordOutcome.DUPLICATE]
    assert site.receive(other, sender="OTHER") == [RecordOutcome.CONFLICT]
    assert len(list(site.archive.quarantined())) == 2
    assert site.in_use() == one


def test_what_came_before_the_seed_is_known_again(older: Site) -> None:
    older.receive(data_set(UID))
    before = older.rows("SELECT digest, pixel_digest FROM instance")
    assert upgraded(older).receive(data_set(UID)) == [RecordOutcome.DUPLICATE]
    assert older.rows("SELECT digest, pixel_digest FROM instance") == before, (
        "results are named after it"
    )
    assert older.receive(data_set(UID, patient_id=b"P2")) == [RecordOutcome.HEADER_REVISION]
    ((digest, pixel_digest),) = older.rows("SELECT digest, pixel_digest FROM instance")
    assert (seed_of(digest, 1), pixel_digest) == (1, before[0][1])
    assert older.receive(data_set(UID, pixels=b"\1\2")) == [RecordOutcome.CONFLICT]
    assert upgraded(older).receive(data_set(UID, pixels=b"\1\2")) == [RecordOutcome.DUPLICATE]


def test_what_came_before_the_seed_and_lost_its_pixels_is_known_again(older: Site) -> None:
    older.receive(data_set(UID))
    ((path,),) = older.rows("SELECT path FROM instance")
    older.rows("UPDATE instance SET pixels_removed_at = 1")
    older.archive.remove(path)
    assert upgraded(older).receive(data_set(UID)) == [RecordOutcome.RESTORED]


def test_a_stored_file_that_a_disk_has_changed_since_is_no_reason_to_delete_the_whole_one(
    site: Site,
) -> None:
    """Its reading went well, and nobody had noticed."""
    site.receive(data_set(UID))
    ((path,),) = site.rows("SELECT path FROM instance")
    file = site.archive.locate(path)
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    assert site.receive(data_set(UID)) == [RecordOutcome.RESTORED]
    assert site.in_use() == data_set(UID)


@pytest.mark.parametrize("is_older", [False, True])
def test_what_a_person_discarded_stays_so_and_nothing_else_goes_with_it(
    site: Site, *, is_older: bool
) -> None:
    one, other = colliding_data_sets(UID)
    site.seed = 0 if is_older else site.seed
    site.receive(data_set(UID))
    assert site.receive(one) == [RecordOutcome.CONFLICT]
    with contextlib.closing(open_decisions(site.settings)) as decisions:
        decisions.discard(1)
    assert upgraded(site).receive(one) == [RecordOutcome.DUPLICATE]
    assert site.receive(other) == [RecordOutcome.CONFLICT]


def test_what_was_discarded_by_an_earlier_version_is_decided_once_more(older: Site) -> None:
    older.receive(data_set(UID))
    older.receive(data_set(UID, pixels=b"\1\2"))
    with contextlib.closing(open_decisions(older.settings)) as decisions:
        decisions.discard(1)
        older.rows("UPDATE conflict SET sha256 = NULL")
        assert upgraded(older).receive(data_set(UID, pixels=b"\1\2")) == [RecordOutcome.CONFLICT]
        decisions.discard(2)
    assert older.receive(data_set(UID, pixels=b"\1\2")) == [RecordOutcome.DUPLICATE]


@pytest.mark.parametrize("is_older", [False, True])
def test_a_file_of_a_folder_is_known_by_its_bytes(
    site: Site, tmp_path: Path, *, is_older: bool
) -> None:
    one, other = colliding_data_sets(UID)
    site.seed = 0 if is_older else site.seed
    site.receive(data_set(UID, patient_id=b"P0"), data_set(UID))
    paths = [tmp_path / name for name in ("same", "replaced", "other")]
    for path, encoded in zip(
        paths, (data_set(UID), data_set(UID, patient_id=b"P0"), one), strict=True
    ):
        path.write_bytes(file_meta.encode(meta(UID)) + encoded)
    fates = [
        ingest(site.settings, [path], ORIGIN, 1, lambda _: None, pytest.fail)
        for path in (*paths, paths[2])
    ]
    assert [dict(found) for found in fates] == [
        {FileOutcome.KNOWN: 1},
        {FileOutcome.KNOWN: 1},
        {FileOutcome.CONFLICT: 1},
        {FileOutcome.CONFLICT: 1},
    ]
    paths[2].write_bytes(file_meta.encode(meta(UID)) + other)
    ingest(site.settings, [paths[2]], ORIGIN, 1, lambda _: None, pytest.fail)
    assert len(list(site.archive.quarantined())) == 2


def test_an_image_that_changes_while_files_are_compared_is_compared_again(site: Site) -> None:
    site.receive(data_set(UID))
    stale = site.ledger.known_images([UID])
    site.receive(data_set(UID, patient_id=b"P2"))

    class Late(Ledger):
        """Its first look is that of a host that was overtaken."""

        looks = 0

        def known_images(self, uids: Any) -> Any:
            self.looks += 1
            return stale if self.looks == 1 else super().known_images(uids)

    with contextlib.closing(Late(site.settings.ledger_url)) as ledger:
        file = site.put(data_set(UID))
        known: dict[Path | str, Instance] = {file: describe(file, site.seed)}
        assert list(index([file], site.settings, ledger, site.archive, known)) == [
            RecordOutcome.HEADER_REVISION
        ]
        assert ledger.looks == 2


def test_a_comparison_with_another_file_than_that_of_the_row_decides_nothing(site: Site) -> None:
    site.receive(data_set(UID))
    came = first_arrival(describe(site.put(data_set(UID)), site.seed), site.settings)
    for stale in (Compared(), Compared("another/by/now.dcm")):
        with pytest.raises(ImageChanged):
            site.ledger.record([dataclasses.replace(came, compared=stale)])


def test_each_role_that_takes_objects_has_the_seed_of_the_ledger(
    site: Site, tmp_path: Path
) -> None:
    """C-STORE and STOW-RS by `indexing`, files by `taking`; two hosts with one ledger alike."""
    digests = set[str]()
    for name in ("host-a", "host-b"):
        with contextlib.closing(Ledger(site.settings.ledger_url)) as ledger:
            archive = Archive(site.settings.archive_dir, name)
            with indexing(site.settings, ledger, archive, threading.Event(), 10.0) as reception:
                command = StoreCommand.of_file(meta(UID))
                with contextlib.closing(reception.begin(command)) as arriving:
                    arriving.write([memoryview(data_set(UID))])
                    arriving.commit()
        ((digest,),) = site.rows("SELECT digest FROM instance")
        digests.add(digest)
    assert digests == {f"s1-{xxhash.xxh3_128(data_set(UID), seed=site.seed).hexdigest()}"}
    with taking(site.settings, ORIGIN, pytest.fail, threading.Event()) as (intake, _):
        path = tmp_path / "1.dcm"
        path.write_bytes(file_meta.encode(meta(UID)) + data_set(UID))
        assert intake.take(path).fate is FileOutcome.KNOWN


def test_a_restored_backup_has_the_seed(site: Site, tmp_path: Path) -> None:
    site.receive(data_set(UID))
    back_up(site.settings.ledger_url, site.archive, tmp_path / "backup")
    restored = Site(Settings(site={"state_dir": tmp_path / "backup"}, receive={"reserve_bytes": 0}))
    with contextlib.closing(restored.ledger):
        assert restored.seed == site.seed
        assert restored.receive(data_set(UID)) == [RecordOutcome.DUPLICATE]

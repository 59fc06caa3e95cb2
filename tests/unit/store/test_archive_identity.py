"""An archive knows its installation: another one, mounted by mistake, takes no object."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from hilum.domain import NO_ARCHIVE
from hilum.errors import ConfigurationError
from hilum.store.archive.archive import Archive
from hilum.store.archive.consistency import archive_of, begin_archive, require_archive
from hilum.store.archive.identity import FILE_NAME, begin_identity, read_identity
from tests.support.ledger.ledgers import migrated_sqlite

OURS = "7f3c0c62-7b5a-4b8e-9d53-0d4d7d1d2c11"
THEIRS = "e1a8d6aa-2f37-4c46-8b5b-6e3c0a4f9b22"


def ledger_in(folder: Path, namespace: str) -> str:
    """Return the URL of a ledger of an installation of its own."""
    folder.mkdir()
    url = migrated_sqlite(folder)
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(
            text("UPDATE installation SET value = :it WHERE key = 'namespace'"), {"it": namespace}
        )
    engine.dispose()
    return url


def test_the_first_host_draws_the_identity_and_all_others_see_it(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as hosts:
        drawn = list(hosts.map(lambda _: begin_identity(tmp_path, OURS), range(8)))
    assert len(set(drawn)) == 1
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_an_archive_of_another_installation_takes_no_object(tmp_path: Path) -> None:
    ours = ledger_in(tmp_path / "ours", OURS)
    theirs = ledger_in(tmp_path / "theirs", THEIRS)
    archive = Archive(tmp_path / "archive")
    begin_archive(theirs, archive)
    for refuse in (begin_archive, require_archive):
        with pytest.raises(ConfigurationError, match="of another installation"):
            refuse(ours, archive)
    assert archive_of(ours, archive) == NO_ARCHIVE
    require_archive(theirs, archive)


def test_two_archives_of_one_installation_are_told_apart(tmp_path: Path) -> None:
    url = ledger_in(tmp_path / "ledger", OURS)
    first = Archive(tmp_path / "first")
    second = Archive(tmp_path / "second")
    for archive in (first, second):
        begin_archive(url, archive)
    assert archive_of(url, first) != archive_of(url, second)


def test_an_archive_of_an_earlier_version_gets_its_identity_and_keeps_it(tmp_path: Path) -> None:
    url = ledger_in(tmp_path / "ledger", OURS)
    archive = Archive(tmp_path / "archive")
    archive.make()
    begin_archive(url, archive)
    drawn = read_identity(archive.root)
    begin_archive(url, archive)
    assert read_identity(archive.root) == drawn is not None


def test_an_empty_mount_point_is_no_archive(tmp_path: Path) -> None:
    url = ledger_in(tmp_path / "ledger", OURS)
    archive = Archive(tmp_path / "archive")
    begin_archive(url, archive)
    shutil.rmtree(archive.root)
    archive.root.mkdir()
    assert archive_of(url, archive) == NO_ARCHIVE


def test_a_broken_identity_is_said_with_its_file(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("{}")
    with pytest.raises(OSError, match=FILE_NAME):
        read_identity(tmp_path)


def test_an_identity_that_cannot_be_read_is_named_with_its_remedy(tmp_path: Path) -> None:
    url = ledger_in(tmp_path / "ledger", OURS)
    archive = Archive(tmp_path / "archive")
    begin_archive(url, archive)
    (archive.root / FILE_NAME).write_bytes(b"")
    for refuse in (begin_archive, require_archive):
        with pytest.raises(ConfigurationError) as refused:
            refuse(url, archive)
        (problem,) = refused.value.problems
        assert problem.startswith(f"archive: {archive.root}/{FILE_NAME}: it is not the identity")
        assert "remove it" in problem
    (archive.root / FILE_NAME).unlink()
    begin_archive(url, archive)
    require_archive(url, archive)

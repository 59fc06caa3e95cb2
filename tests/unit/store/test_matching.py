"""Ledger and archive belong together.

One of the two that is missing does not pass for a new installation.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest

from hilum.errors import ConfigurationError
from hilum.services.recover import orphans_of, recover_orphans
from hilum.settings import Settings
from hilum.store.archive.archive import Archive, place_of
from hilum.store.archive.consistency import begin_archive
from hilum.store.ledger import Ledger, RecordOutcome
from hilum.supervisor.checks.archive import archive_checks
from hilum.supervisor.checks.check import unless_refused
from hilum.supervisor.supervisor import Supervisor
from testing.phantoms import phantom
from tests.support.ledger.street import Clock, Street
from tests.support.server.listening import make_settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """An installation with two images."""
    settings = make_settings(tmp_path / "state")
    with contextlib.closing(Ledger(settings.ledger_url)) as ledger:
        Street(ledger, Clock()).receive("1.2.3", 1, 2)
    for name in ("1.2.3.1", "1.2.3.2"):
        file = settings.archive_dir / "studies" / f"{name}.dcm"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"pixels")
    return settings


def checked(settings: Settings) -> tuple[bool, str]:
    (found,) = unless_refused("archive", archive_checks(settings))
    return found.ok, found.detail


def test_an_archive_that_is_not_mounted_is_not_begun_anew(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Supervisor, "_bind_ports", lambda _supervisor: None)
    archive = Archive(settings.archive_dir)
    assert checked(settings) == (True, str(archive.root))
    away = archive.root.rename(archive.root.with_name("away"))
    archive.root.mkdir()  # where it was mounted
    refused = "archive: the ledger names images, but there is no archive in "
    url = settings.ledger_url
    for role in ("api", "listener"):
        with pytest.raises(ConfigurationError, match=refused):
            Supervisor(settings, role).run()
    for begin in (lambda: begin_archive(url, archive), archive.held("a").__enter__):
        with pytest.raises((ConfigurationError, FileNotFoundError)):
            begin()
    assert (checked(settings)[0], checked(settings)[1].startswith(refused)) == (False, True)
    assert not list(archive.root.iterdir())
    archive.make()  # as an earlier version did at each start
    said = f"{archive.root} has none of the newest images of the ledger (2 looked for)"
    assert checked(settings) == (False, said)
    shutil.rmtree(archive.root)
    away.rename(archive.root)
    begin_archive(settings.ledger_url, archive)
    assert checked(settings) == (True, str(archive.root))


def test_a_ledger_that_is_gone_is_not_begun_anew_and_what_it_lacks_is_taken_back(
    settings: Settings,
) -> None:
    archive, ledger_file = (
        Archive(settings.archive_dir, "listener-0"),
        settings.site.state_dir / "ledger.sqlite",
    )
    with archive.begin() as incoming:
        incoming.write(
            phantom.save(
                phantom.make_instance(seed=3, rows=64, columns=64),
                settings.site.state_dir / "pa.dcm",
            ).read_bytes()
        )
        file = incoming.commit()
    archive.place(file)
    file.unlink()
    kept = ledger_file.rename(ledger_file.with_name("kept"))
    begun = "ledger: there is none yet, but "
    with pytest.raises(ConfigurationError, match=begun):
        Supervisor(settings).run()
    assert (checked(settings)[0], checked(settings)[1].startswith(begun), ledger_file.exists()) == (
        False,
        True,
        False,
    )
    kept.rename(ledger_file)
    with contextlib.closing(
        Ledger(settings.ledger_url)
    ) as ledger:  # a row that is not in its place any more, and is nobody's loss
        Street(ledger, Clock()).receive("1.2.5", 1)
    (found,) = orphans_of(settings)
    assert found == archive.root / place_of(file)
    assert recover_orphans(settings, [found]) == {RecordOutcome.NEW: 1}
    assert (orphans_of(settings), found.is_file(), list(archive.unindexed())) == ([], True, [])


def test_a_new_installation_and_a_restored_archive_without_locks_begin(
    settings: Settings, tmp_path: Path
) -> None:
    new, placed = make_settings(tmp_path / "new"), settings.archive_dir / "ab" / "cd" / "abcd.dcm"
    placed.parent.mkdir(parents=True)
    placed.write_bytes(b"pixels")
    for one in (settings, new):
        (one.archive_dir / "locks").rmdir()
        begin_archive(one.ledger_url, archive := Archive(one.archive_dir))
        assert (archive.is_there, checked(one)[0]) == (True, True)

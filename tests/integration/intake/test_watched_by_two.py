"""Hosts that share an archive and watch one folder.

One of them takes its files, and when it is killed another one does.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hilum.store.archive.archive import Archive
from testing.phantoms.phantom import make_instance, save, uid_for
from testing.serving import Hilum
from tests.support.machine.waiting import wait_for
from tests.support.server.watcher import stored, watcher


@pytest.fixture
def installation(tmp_path: Path) -> Hilum:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    watch = {"watch.scanner": {"path": str(inbox), "settle_seconds": 0}}
    made = Hilum(tmp_path / "hilum", {}, receive={"reserve_bytes": 0}, **watch)
    made.write_settings()
    subprocess.run(made.command("migrate"), check=True, capture_output=True)
    return made


def unsettled(installation: Hilum) -> list[Path]:
    return [
        file
        for file in (installation.folder / "state/archive/unindexed").rglob("*")
        if file.is_file()
    ]


def put(inbox: Path, *numbers: int) -> None:
    """Files that are renamed into place."""
    for number in numbers:
        image = make_instance(5, rows=64, columns=64)
        image.SOPInstanceUID = image.file_meta.MediaStorageSOPInstanceUID = uid_for(
            "watched", number
        )
        save(image, inbox / f".{number}").rename(inbox / f"{number}.dcm")


def test_who_takes_over_indexes_what_another_host_had_taken(
    installation: Hilum, tmp_path: Path
) -> None:
    image = save(make_instance(5, rows=64, columns=64), tmp_path / "1.dcm")
    with Archive(
        installation.folder / "state/archive", "elsewhere-ingest-0.live"
    ).begin() as incoming:
        incoming.write(image.read_bytes())
        incoming.commit()
    with watcher(installation, tmp_path / "log"):
        wait_for(lambda: stored(installation) == 1, what="its row")


def test_one_takes_the_files_and_the_other_when_that_is_killed(
    installation: Hilum, tmp_path: Path
) -> None:
    inbox, first_log, second_log = (
        tmp_path / "inbox",
        tmp_path / "first.log",
        tmp_path / "second.log",
    )
    with watcher(installation, first_log) as first:
        put(inbox, 0)
        wait_for((inbox / "taken/0.dcm").exists, what="the first watcher")
        with watcher(installation, second_log):
            wait_for(
                lambda: b"watch_standby" in second_log.read_bytes(),
                what="the second one to stand by",
            )
            put(inbox, *range(1, 20))
            wait_for((inbox / "taken/19.dcm").exists, what="the files of the first")
            assert second_log.read_bytes().count(b"\n") == 1, "it has done and said nothing else"
            put(inbox, *range(20, 40))
            first.kill()
            wait_for(lambda: not list(inbox.glob("*.dcm")), what="the second watcher")
            wait_for(lambda: stored(installation) == 40, what="all rows")
            wait_for(
                lambda: not unsettled(installation), what="the files in their places"
            )  # which they get when their rows are there
    assert {file.name for file in (inbox / "taken").iterdir()} == {
        f"{number}.dcm" for number in range(40)
    }


def test_a_link_to_itself_holds_nobody_up_and_is_said_once_without_its_name(
    installation: Hilum, tmp_path: Path
) -> None:
    inbox, log = tmp_path / "inbox", tmp_path / "log"
    (inbox / "DOE^JANE.dcm").symlink_to("DOE^JANE.dcm")
    with watcher(installation, log):
        for number in (1, 2):
            put(inbox, number)
            wait_for((inbox / f"taken/{number}.dcm").exists, what="a file beside it")
    assert log.read_bytes().count(b"entries_skipped") == 1
    assert b"DOE" not in log.read_bytes()

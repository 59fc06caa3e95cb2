"""A watched folder while the archive's disk is full.

Files wait where they are, nothing is taken half, and room is enough to go on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hilum.store.archive.archive import Archive
from testing.phantoms.phantom import make_instance, save, uid_for
from testing.serving import Hilum
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.machine.disks import fill_to, small_disk
from tests.support.machine.waiting import wait_for
from tests.support.server.listening import data_set_of, unindexed
from tests.support.server.watcher import stored, watcher

MIB = 1 << 20
_LIMITS = {
    "to the reserve": {"reserve_bytes": 2 * MIB, "reject_bytes": 4 * MIB},
    "to the last byte": {"reserve_bytes": 0, "reject_bytes": 0},
}


@pytest.fixture(params=_LIMITS)
def installation(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hilum]:
    """Settings and a migrated ledger; the archive has a file system of 16 MiB for itself."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    watch = {"watch.scanner": {"path": str(inbox), "settle_seconds": 0}}
    made = Hilum(tmp_path / "hilum", {}, receive=_LIMITS[request.param], **watch)
    made.write_settings()
    (made.folder / "state").mkdir()
    migrated_sqlite(made.folder / "state")
    with small_disk(made.folder / "state/archive", 16):
        yield made


def put(inbox: Path, *numbers: int) -> dict[str, Path]:
    """Files of 512 KiB that are renamed into place; what is put there, by SOP Instance UID."""
    made = {}
    for number in numbers:
        image = make_instance(5, rows=512, columns=512)
        image.SOPInstanceUID = image.file_meta.MediaStorageSOPInstanceUID = uid_for(
            "watched", number
        )
        made[str(image.SOPInstanceUID)] = save(image, inbox / f".{number}").rename(
            inbox / f"{number}.dcm"
        )
    return made


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def has_said(log: Path) -> Callable[[], bool]:
    return lambda: any(
        json.loads(line)["event"] == "watch_waits"
        for line in log.read_text().splitlines()
        if line.startswith("{")
    )


def test_files_wait_for_room_and_are_taken_when_there_is_some(
    installation: Hilum, tmp_path: Path
) -> None:
    inbox, log, archive = (
        tmp_path / "inbox",
        tmp_path / "log",
        Archive(installation.folder / "state/archive"),
    )
    with watcher(installation, log):
        put(inbox, 1)
        wait_for(lambda: stored(installation) == 1, what="the first")
        wait_for(
            lambda: not list(unindexed(archive)) and names(inbox) == ["taken"], what="its place"
        )
        room = fill_to(archive.root, MIB // 4)
        waiting = {uid: data_set_of(file) for uid, file in put(inbox, 2, 3, 4).items()}
        wait_for(has_said(log), what="word that it waits")
        assert names(inbox) == ["2.dcm", "3.dcm", "4.dcm", "taken"]
        wait_for(
            lambda: not list(unindexed(archive)), what="nothing half taken"
        )  # but for the moment of another try
        room.unlink()
        wait_for(lambda: stored(installation) == 4, what="the others")
        wait_for(
            lambda: not list(unindexed(archive)) and names(inbox) == ["taken"], what="their places"
        )
    kept = [data_set_of(file) for file in archive.root.rglob("*.dcm")]
    assert len(kept) == 4
    assert all(content in kept for content in waiting.values())

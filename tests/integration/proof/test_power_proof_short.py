"""The short form of the proof's parts `power` and `power_street`, and that their cuts take what nobody has synced."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hilum.settings.archive import ArchiveSection
from hilum.store.archive.archive import Archive
from hilum.store.archive.durable_rename import (
    Durability,
    DurableRename,
    durable_rename_of,
    mount_of,
)
from hilum.store.archive.object_archive import ObjectArchive
from hilum.store.archive.object_client import ObjectClient
from hilum.triton import runtime
from load_tests.proof.listeners.power import cut_power
from load_tests.proof.part import Plan
from load_tests.proof.power_disk import PowerDisk, kinds
from load_tests.proof.small_disk import may_mount
from load_tests.proof.street.power import power_street
from testing.tiny_release import make_tiny
from tests.support.peers.peers import missing, require_program

pytestmark = pytest.mark.slow
CONTENT = os.urandom(3 << 20)


@pytest.fixture(params=["ext4", "xfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PowerDisk]:
    if not may_mount():
        missing("a file system can be mounted by root only")
    if request.param not in kinds():
        missing(f"mkfs.{request.param} is not installed")
    with PowerDisk(request.param, tmp_path / "disk", 512) as made:
        yield made


def written(folder: Path, name: str) -> int:
    """A descriptor of an unsynced file."""
    fd = os.open(folder / f"{name}.part", os.O_WRONLY | os.O_CREAT)
    assert os.write(fd, CONTENT) == len(CONTENT)
    return fd


def renamed(folder: Path, name: str) -> Path:
    return (folder / f"{name}.part").rename(folder / f"{name}.dcm")


def in_order(folder: Path) -> DurableRename:
    rename = durable_rename_of(folder)
    assert rename.syncs == 1
    return rename


def test_the_marker_of_a_store_in_a_folder_outlives_a_cut(disk: PowerDisk, tmp_path: Path) -> None:
    section = ArchiveSection(url=f"file://{tmp_path}/disk/store")
    archive = ObjectArchive(tmp_path / "spool", client=ObjectClient(section), serial=lambda: "7")
    archive.make()
    disk.cut()
    disk.restore()
    assert archive.is_there


def test_what_an_archive_has_committed_outlives_a_cut(disk: PowerDisk, tmp_path: Path) -> None:
    ways: tuple[Durability, ...] = ("auto", "strict")
    for way in ways:
        archive = Archive(tmp_path / "disk", way, durability=way)
        with archive.begin() as incoming:
            incoming.write(CONTENT[:1000])
            incoming.write(CONTENT[1000:])
            incoming.commit()
    disk.cut()
    disk.restore()
    assert [file.read_bytes() == CONTENT for file in Archive(tmp_path / "disk").unindexed()] == [
        True,
        True,
    ]


def test_what_nobody_has_synced_does_not(disk: PowerDisk, tmp_path: Path) -> None:
    """Else the cuts of the proof would prove nothing."""
    fd = written(tmp_path / "disk", "a")
    renamed(tmp_path / "disk", "a")
    os.close(fd)
    disk.cut()
    disk.restore()
    assert not list((tmp_path / "disk").glob("a.*"))


def test_a_name_can_be_durable_before_its_bytes_unless_these_were_waited_for(
    disk: PowerDisk, tmp_path: Path
) -> None:
    """A commit that somebody else waits for takes along all new names, and no bytes that are still on their way."""
    folder = tmp_path / "disk"
    rename = in_order(folder)
    hasty, patient, other = (written(folder, name) for name in ("hasty", "patient", "other"))
    rename.flush(patient)
    renamed(folder, "hasty")
    renamed(folder, "patient")
    os.fsync(other)
    for fd in (hasty, patient, other):
        os.close(fd)
    disk.cut()
    disk.restore()
    assert (folder / "patient.dcm").read_bytes() == CONTENT
    assert (folder / "hasty.dcm").read_bytes() != CONTENT


def test_one_sync_of_the_folder_makes_names_and_bytes_durable(
    disk: PowerDisk, tmp_path: Path
) -> None:
    folder = tmp_path / "disk"
    rename = in_order(folder)
    for name in "ab":
        fd = written(folder, name)
        rename.flush(fd)
        renamed(folder, name)
        os.close(fd)
    rename.commit()
    disk.cut()
    disk.restore()
    assert {file.name: file.read_bytes() == CONTENT for file in folder.glob("*.*")} == {
        "a.dcm": True,
        "b.dcm": True,
    }


def test_what_a_killed_process_had_named_and_not_synced_is_durable_once_it_was_found(
    disk: PowerDisk, tmp_path: Path
) -> None:
    archive = Archive(tmp_path / "disk", "listener-1")
    with archive.begin() as incoming:
        incoming.write(b"the folder is there")
        folder = incoming.commit().parent
    fd = written(folder, "b")
    renamed(folder, "b")
    os.close(fd)
    assert folder / "b.dcm" in archive.left_behind(["listener-1"])
    disk.cut()
    disk.restore()
    assert (folder / "b.dcm").read_bytes() == CONTENT


def test_triton_s_run_time_folder_is_whole_or_not_there(disk: PowerDisk, tmp_path: Path) -> None:
    """Names without bytes in it kept tritonserver from starting for good."""
    if (wheel := runtime.find()) is None:
        missing("the wheel with tritonserver is not installed")
    target = runtime.prepare(wheel, tmp_path / "disk")
    other = written(tmp_path / "disk", "other")
    os.fsync(other)  # takes the folder's name along
    os.close(other)
    disk.cut()
    disk.restore()
    library = "libtriton_python.so"
    assert (target / "backends/python" / library).read_bytes() == (
        wheel.backend / library
    ).read_bytes()


def test_an_ext4_without_a_journal_is_not_taken_for_one_that_keeps_order(tmp_path: Path) -> None:
    """One sync of the folder would leave the file behind: its size and blocks are in no journal."""
    if not may_mount() or "ext4" not in kinds():
        missing("needs root, and mkfs.ext4")
    with PowerDisk("ext4", tmp_path / "disk", 64, options=("-O", "^has_journal")):
        found = mount_of(tmp_path / "disk")
        assert found is not None
        assert found.kind == "ext4"
        assert durable_rename_of(tmp_path / "disk").syncs == 2


def test_cuts_under_load_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    require_program("storescu", "dcmtk")
    if not may_mount():
        missing("a file system can be mounted by root only")
    if kinds() != ["ext4", "xfs"]:
        missing("mkfs.ext4 and mkfs.xfs are not both installed")
    found = cut_power(tmp_path, 1, 6, lambda _: None)
    assert found.holds, (found.goals, found.problems)
    assert found.figures["objects_acknowledged"] > 0


def test_a_street_goes_on_after_a_cut(tmp_path: Path) -> None:
    if not may_mount() or "ext4" not in kinds():
        missing("needs root, and mkfs.ext4")
    found = power_street(
        Plan(tmp_path, make_tiny(tmp_path / "release"), seed=1, is_short=True, say=lambda _: None)
    )
    assert found.holds, (found.goals, found.problems)
    assert found.figures["cuts"] == {"ext4": 1}
    assert found.figures["images_acknowledged"] == 2 * found.figures["studies"] > 0
    # The dispatcher of the former life owned the PACS: it was not waited for until that
    # lapsed.
    assert "leases_released" in (tmp_path / "ext4/hilum.log").read_text(encoding="utf-8")

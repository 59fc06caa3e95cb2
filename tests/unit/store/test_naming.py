"""How a received name becomes durable is decided by the file system that holds it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hilum.store.archive.archive import Archive
from hilum.store.archive.durable_rename import Mount, durable_rename_of, is_in_order, mount_of
from hilum.store.archive.write_out import await_write_out
from tests.support.machine.disks import small_disk

MOUNTS = """22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:27 / /srv rw shared:2 - nfs4 nas:/export rw
31 22 254:1 / /srv/hilum rw - xfs /dev/vdb rw,noquota
32 31 0:28 / /srv/hilum/two\\040words rw - tmpfs tmpfs rw
33 31 254:2 / /srv/hilum/hidden rw - ext4 /dev/vdc rw
34 31 0:29 / /srv/hilum/hidden rw - overlay overlay rw,lowerdir=/a - b
a line that nobody knows
"""


@pytest.mark.parametrize(
    ("folder", "mount"),
    [
        ("/", Mount("ext4", "254:0")),
        ("/var/lib/hilum", Mount("ext4", "254:0")),
        ("/srv/other", Mount("nfs4", "0:27")),
        ("/srv/hilum/archive/unindexed", Mount("xfs", "254:1")),
        ("/srv/hilum2", Mount("nfs4", "0:27")),
        ("/srv/hilum/two words/archive", Mount("tmpfs", "0:28")),
        ("/srv/hilum/hidden/archive", Mount("overlay", "0:29")),
    ],
)
def test_the_innermost_mount_is_what_holds_a_folder(
    tmp_path: Path, folder: str, mount: Mount
) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS, encoding="utf-8")
    assert mount_of(Path(folder), tmp_path / "mountinfo") == mount


def test_where_nobody_says_what_holds_a_folder_there_is_no_order(tmp_path: Path) -> None:
    assert mount_of(tmp_path, tmp_path / "no such file") is None
    (tmp_path / "empty").touch()
    assert mount_of(tmp_path, tmp_path / "empty") is None
    assert not is_in_order(None)


@pytest.mark.parametrize(
    ("kind", "journal", "expected"),
    [
        ("xfs", None, True),
        ("ext4", "17\n", True),
        ("ext4", "<none>\n", False),
        ("ext4", None, False),
        ("ext3", "17\n", False),
        ("nfs4", None, False),
        ("overlay", None, False),
    ],
)
def test_an_ext4_has_order_if_it_has_a_journal(
    tmp_path: Path, kind: str, journal: str | None, expected: bool
) -> None:
    """Made without one (mkfs.ext4 -O ^has_journal), as on some virtual machines, it syncs each file and each folder for itself."""
    (tmp_path / "devices/pci/vda").mkdir(parents=True)
    (tmp_path / "dev/block").mkdir(parents=True)
    (tmp_path / "dev/block/254:0").symlink_to(tmp_path / "devices/pci/vda")
    if journal is not None:
        (tmp_path / "fs/ext4/vda").mkdir(parents=True)
        (tmp_path / "fs/ext4/vda/journal_task").write_text(journal, encoding="ascii")
    assert is_in_order(Mount(kind, "254:0"), tmp_path) is expected


def test_a_link_leads_to_the_file_system_behind_it(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4) as disk:
        (tmp_path / "link").symlink_to(disk)
        found = mount_of(tmp_path / "link")
        assert found == mount_of(disk)
        assert found is not None
        assert found.kind == "tmpfs"
        assert durable_rename_of(tmp_path / "link").syncs == 2


def test_the_setting_has_the_last_word(tmp_path: Path) -> None:
    assert durable_rename_of(tmp_path, "strict").syncs == 2
    assert durable_rename_of(tmp_path).syncs == (1 if is_in_order(mount_of(tmp_path)) else 2)


def test_an_error_of_the_disk_is_not_taken_for_success() -> None:
    reader, writer = os.pipe()
    try:
        with pytest.raises(OSError, match="seek") as caught:  # a pipe has no range of bytes
            await_write_out(writer)
    finally:
        os.close(reader)
        os.close(writer)
    assert caught.value.errno == errno.ESPIPE


SYSTEM_CALLS = """
import os, sys
from pathlib import Path
from hilum.store.archive import durable_rename
from hilum.store.archive.archive import Archive
durable_rename.is_in_order = lambda _mount: sys.argv[2] == 'in_order'
archive = Archive(Path(sys.argv[1]) / sys.argv[2])
with archive.begin() as incoming:  # its folder is made
    incoming.write(b"first")
    incoming.commit()
called = []
def told(name, real):
    def function(*arguments):
        called.append(name)
        return real(*arguments)
    return function
os.fdatasync, os.fsync, os.rename = (told(real.__name__, real) for real in (os.fdatasync, os.fsync, os.rename))
durable_rename.await_write_out = told("await_write_out", durable_rename.await_write_out)
with archive.begin() as incoming:
    incoming.write(b"second")
    incoming.commit()
print(*called)
"""


@pytest.mark.parametrize(
    ("kind", "calls"),
    [("in_order", "await_write_out rename fsync"), ("other", "fdatasync rename fsync")],
)
def test_bytes_are_out_before_the_name_and_the_folder_is_synced_behind_it(
    tmp_path: Path, kind: str, calls: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SYSTEM_CALLS, str(tmp_path), kind],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == calls


def test_what_a_dead_process_left_is_found_in_its_folder_alone(tmp_path: Path) -> None:
    archive = Archive(tmp_path, "listener-1")
    assert archive.left_behind(["listener-1"]) == []
    with archive.begin() as incoming:
        incoming.write(b"abc")
        file = incoming.commit()
    assert archive.left_behind(["listener-1"]) == [file]
    assert archive.left_behind(["listener-2"]) == []

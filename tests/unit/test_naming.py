"""How a received name becomes durable is decided by the file system that holds it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hilum.store.archive import Archive
from hilum.store.naming import ByFile, ByFolder, file_system_of, naming_of
from hilum.store.write_out import await_write_out
from tests.support.disks import small_disk

MOUNTS = """22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:27 / /srv rw shared:2 - nfs4 nas:/export rw
31 22 254:1 / /srv/hilum rw - xfs /dev/vdb rw,noquota
32 31 0:28 / /srv/hilum/two\\040words rw - tmpfs tmpfs rw
33 31 254:2 / /srv/hilum/hidden rw - ext4 /dev/vdc rw
34 31 0:29 / /srv/hilum/hidden rw - overlay overlay rw,lowerdir=/a - b
a line that nobody knows
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", "ext4"),
        ("/var/lib/hilum", "ext4"),
        ("/srv/other", "nfs4"),
        ("/srv/hilum/archive/unindexed", "xfs"),
        ("/srv/hilum2", "nfs4"),
        ("/srv/hilum/two words/archive", "tmpfs"),
        ("/srv/hilum/hidden/archive", "overlay"),
    ],
)
def test_the_innermost_mount_says_what_file_system_a_folder_is_on(tmp_path: Path, folder: str, kind: str) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS, encoding="utf-8")
    assert file_system_of(Path(folder), tmp_path / "mountinfo") == kind


def test_where_nobody_says_names_are_synced_with_their_folder(tmp_path: Path) -> None:
    assert file_system_of(tmp_path, tmp_path / "no such file") == ""
    (tmp_path / "empty").touch()
    assert file_system_of(tmp_path, tmp_path / "empty") == ""


def test_a_link_leads_to_the_file_system_behind_it(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 4) as disk:
        (tmp_path / "link").symlink_to(disk)
        assert file_system_of(tmp_path / "link") == file_system_of(disk) == "tmpfs"
        assert isinstance(naming_of(tmp_path / "link"), ByFolder)


def test_the_setting_has_the_last_word(tmp_path: Path) -> None:
    assert isinstance(naming_of(tmp_path, "folder"), ByFolder)
    expected = ByFile if file_system_of(tmp_path) in ("ext4", "xfs") else ByFolder
    assert isinstance(naming_of(tmp_path), expected)
    assert (ByFile.commits, ByFolder.commits) == (1, 2)


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
from hilum.store import naming
from hilum.store.archive import Archive
naming.file_system_of = lambda _folder: sys.argv[2]
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
naming.await_write_out = told("await_write_out", naming.await_write_out)
with archive.begin() as incoming:
    incoming.write(b"second")
    incoming.commit()
print(*called)
"""


@pytest.mark.parametrize(("kind", "calls"), [("xfs", "await_write_out rename fsync"), ("nfs4", "fdatasync rename fsync")])
def test_bytes_are_out_before_the_name_and_the_name_is_synced_behind_it(tmp_path: Path, kind: str, calls: str) -> None:
    ran = subprocess.run([sys.executable, "-c", SYSTEM_CALLS, str(tmp_path), kind], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == calls


def test_what_a_dead_process_left_is_found_in_its_folder_alone(tmp_path: Path) -> None:
    archive = Archive(tmp_path, "listener-1")
    assert archive.left_behind("listener-1") == []
    with archive.begin() as incoming:
        incoming.write(b"abc")
        file = incoming.commit()
    assert archive.left_behind("listener-1") == [file]
    assert archive.left_behind("listener-2") == []

"""An archive knows its installation: another one, mounted by mistake, takes no object."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from hilum.domain import NO_ARCHIVE
from hilum.errors import ConfigurationError
from hilum.store.archive.archive import Archive
from hilum.store.archive.consistency import archive_of, begin_archive, require_archive
from hilum.store.archive.identity import FILE_NAME, begin_identity, read_identity
from hilum.triton import seccomp
from tests.support.ledger.ledgers import migrated_sqlite

OURS = "7f3c0c62-7b5a-4b8e-9d53-0d4d7d1d2c11"
THEIRS = "e1a8d6aa-2f37-4c46-8b5b-6e3c0a4f9b22"


WITH_CALLS_THAT_FAIL = """
import sys
from pathlib import Path
from hilum.store.archive.identity import begin_identity
from hilum.triton.seccomp import Denial, restrict
restrict([Denial(call, int(sys.argv[2])) for call in sys.argv[4:]])
try:
    print(begin_identity(Path(sys.argv[1]), sys.argv[3]).archive)
except OSError as error:
    sys.exit(str(error))
"""


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


NEEDS_SECCOMP = pytest.mark.skipif(
    not (seccomp.is_available() and seccomp.is_installed(seccomp.LIBRARY)),
    reason="system calls are made to fail by libseccomp",
)


def begun_where_fails(folder: Path, error: int, *calls: str) -> subprocess.CompletedProcess[str]:
    """Begin the identity in a process whose system calls of these names fail."""
    command = [sys.executable, "-c", WITH_CALLS_THAT_FAIL, str(folder), str(error), OURS]
    return subprocess.run([*command, *calls], capture_output=True, text=True, check=False)


@NEEDS_SECCOMP
@pytest.mark.parametrize("error", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_an_archive_on_a_file_system_without_hard_links_has_an_identity(
    tmp_path: Path, error: int
) -> None:
    done = begun_where_fails(tmp_path, error, "link", "linkat")
    assert done.returncode == 0, done.stderr
    found = read_identity(tmp_path)
    assert found is not None
    assert (found.installation, found.archive) == (OURS, done.stdout.strip())
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


@NEEDS_SECCOMP
def test_a_full_disk_is_said_with_the_folder_of_the_archive(tmp_path: Path) -> None:
    done = begun_where_fails(tmp_path, errno.ENOSPC, "fsync")
    assert (done.returncode, str(tmp_path / FILE_NAME) in done.stderr) == (1, True), done.stderr
    assert list(tmp_path.iterdir()) == [], "the next start begins anew"


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
    with pytest.raises(OSError, match=f"remove it.*{FILE_NAME}"):
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

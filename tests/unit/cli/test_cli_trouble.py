"""The command line where a folder, a disk or a ledger is not as it should be.

What to do, and no traceback.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import typer

from hilum.cli.frame import explained
from hilum.domain import Priority
from hilum.report import build_documents
from hilum.settings import Settings, Site
from hilum.store.archive.archive import Archive
from hilum.store.database.engines import open_engine
from hilum.store.ledger import Ledger
from hilum.store.migrations.revision import REVISION
from hilum.supervisor.checks.access import access, usable
from testing.phantoms import phantom
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.street import Clock, Street
from tests.support.machine.disks import fill_to, small_disk
from tests.support.reports.results import CONTEXT, make_release, report_job, report_of
from tests.support.server import commands

NOBODY = 65534
AS_SERVER = "as the user of the server, as in `sudo -u hilum hilum"
STUDY = "1.2.3"


def hilum(
    state: Path, *words: str | Path, user: int | None = None
) -> subprocess.CompletedProcess[str]:
    """A command on this state folder; `user`: for root only."""
    done = commands.hilum(*words, environment={"HILUM_SITE__STATE_DIR": str(state)}, user=user)
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """With a ledger and an archive, both empty."""
    folder = tmp_path / "state"
    (folder / "archive" / "locks").mkdir(parents=True)
    migrated_sqlite(folder)
    return folder


@pytest.fixture
def street(state: Path) -> Iterator[Street]:
    """On the ledger of `state`."""
    clock = Clock()
    ledger = Ledger(f"sqlite:///{state / 'ledger.sqlite'}", clock)
    yield Street(ledger, clock)
    ledger.close()


@pytest.fixture
def closed() -> Iterator[Path]:
    """A state folder into which `stranger` may not look.

    Not in `tmp_path`, which others may not enter at all.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        state = Path(folder, "state")
        state.mkdir()
        migrated_sqlite(state)
        state.chmod(0o700 if os.geteuid() == 0 else 0)
        yield state
        state.chmod(0o700)


def stranger(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command by somebody who is not the owner of the state folder, or, where that takes root, by one who has closed it to himself."""
    return hilum(state, *words, user=NOBODY if os.geteuid() == 0 else None)


@pytest.mark.parametrize("inside", [".", "below"])
def test_check_by_a_stranger_says_who_has_to_run_it(inside: str, closed: Path) -> None:
    done = stranger(closed / inside, "check")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    for name in ("state folder", "ledger"):
        (place,) = (
            number for number, line in enumerate(lines) if line.startswith(f"PROBLEM {name}: ")
        )
        assert AS_SERVER in lines[place + 1]
    assert "checks, " in lines[-1], "it goes on to its end"


def test_what_is_made_is_closed_to_other_accounts_and_check_says_what_is_not(closed: Path) -> None:
    state, copy = closed.parent / "new", closed.parent / "copy"
    ledger, settings = state / "ledger.sqlite", Settings(site=Site(state_dir=state))
    made = [hilum(state, "migrate"), hilum(state, "migrate")]
    assert [done.stdout for done in made] == [
        f"ledger at revision {REVISION}{new}: {ledger}\n" for new in (", new and empty", "")
    ]
    saved = hilum(state, "backup", copy)
    assert (saved.returncode, f"{ledger} has no image" in saved.stderr) == (1, True), saved.stderr
    modes = [
        stat.S_IMODE(made.stat().st_mode)
        for made in (state, ledger, copy, copy / "ledger.sqlite", copy / "archive")
    ]
    assert modes == [0o700, 0o640, 0o700, 0o640, 0o750]
    ledger.chmod(0o644)
    assert [check.ok for check in access(settings)] == [True], "nobody else gets so far"
    state.chmod(0o711)
    (found,) = access(settings)
    assert (found.ok, found.advice) == (False, f"They hold patient data: chmod o= {ledger}")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which may write everywhere")
def test_root_leaves_nothing_to_a_server_that_is_somebody_else(closed: Path) -> None:
    image, archive = closed.parent / "image.dcm", closed / "archive"
    phantom.save(phantom.make_instance(seed=3, rows=16, columns=16), image)
    for path in (closed, closed / "ledger.sqlite", image):
        os.chown(path, NOBODY, NOBODY)
    (archive / "locks").mkdir(parents=True)
    os.chown(archive / "locks", NOBODY, NOBODY)
    for command in (("ingest", image), ("conflicts", "keep", "1"), ("recover", "--yes")):
        refused = hilum(closed, *command)
        assert (refused.returncode, "sudo -u nobody hilum" in refused.stderr) == (
            2,
            True,
        ), refused.stderr
    assert [path.name for path in archive.rglob("*")] == ["locks"]
    shutil.rmtree(archive)
    assert "1 stored" in hilum(closed, "ingest", image, user=NOBODY).stdout
    assert "1 known" in hilum(closed, "ingest", image, user=NOBODY).stdout
    (closed / "ledger.sqlite").unlink()
    assert hilum(closed, "migrate").returncode == 2, "the folder stands for what is not there yet"


def test_what_a_mounted_file_system_has_beside_the_archive_was_left_by_nobody(closed: Path) -> None:
    found = closed / "archive" / "lost+found"
    (closed / "archive" / "locks").mkdir(parents=True)
    found.mkdir()
    if os.geteuid() == 0:
        for path in (
            closed,
            closed / "ledger.sqlite",
            closed / "archive",
            closed / "archive" / "locks",
        ):
            os.chown(path, NOBODY, NOBODY)
    else:
        found.chmod(0)
    assert [check.ok for check in usable(Settings(site=Site(state_dir=closed)))] == [True]


def test_check_says_what_another_user_has_left_in_the_archive(closed: Path) -> None:
    settings, left = Settings(site=Site(state_dir=closed)), closed / "archive" / "13"
    (closed / "archive" / "locks").mkdir(parents=True)
    (left / "37").mkdir(parents=True)
    (left / "37" / "name.dcm").write_bytes(b"pixels")
    closed.chmod(0o700)
    assert [check.ok for check in usable(settings)] == [True]
    if os.geteuid() == 0:
        os.chown(closed / "ledger.sqlite", NOBODY, NOBODY)
        for path in (closed / "archive", closed / "archive" / "locks"):
            os.chown(path, NOBODY, NOBODY)
    else:
        left.chmod(0)
    (found,) = usable(settings)
    left.chmod(0o700)
    assert (found.ok, f"such as {left}" in found.detail) == (False, True)
    assert found.advice.endswith(
        f"chown -R --reference={closed / 'ledger.sqlite'} {closed / 'ledger.sqlite'}"
        f" {closed / 'archive'}"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which may write everywhere")
@pytest.mark.parametrize("is_root", [False, True])
def test_check_says_that_root_has_begun_the_ledger_itself(closed: Path, *, is_root: bool) -> None:
    """It is no model for the others then.

    Where root is the server, in a folder of somebody else, it is.
    """
    settings, locks = Settings(site=Site(state_dir=closed)), closed / "archive" / "locks"
    locks.mkdir(parents=True)
    for path in (closed,) if is_root else (closed, locks.parent, locks):
        os.chown(path, NOBODY, NOBODY)
    (found,) = usable(settings)
    assert found.ok is is_root
    ledger = closed / "ledger.sqlite"
    assert is_root or found.advice == f"chown -R --reference={closed} {ledger} {locks.parent}"


def test_migrate_by_a_stranger_says_who_has_to_run_it(closed: Path) -> None:
    done = stranger(closed / "below", "migrate")
    assert (
        done.returncode,
        done.stderr.startswith(f"hilum: {closed}"),
        AS_SERVER in done.stderr,
    ) == (2, True, True), done.stderr


def test_a_backup_to_what_is_no_folder_names_it(state: Path) -> None:
    (state.parent / "file").write_text("")
    for target in (state.parent / "file", state.parent / "file" / "below", Path("/proc/nothing")):
        done = hilum(state, "backup", target)
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith(f"hilum: {target}")
        assert "Give another path." in done.stderr


@pytest.mark.parametrize(
    ("free", "said"),
    [
        (64 * 1024, "hilum: ledger: database or disk is full."),
        (1024 * 1024, "No space left on device. Make room there, then do it again."),
    ],
)
def test_a_backup_to_a_full_disk_says_so(free: int, said: str, state: Path, street: Street) -> None:
    arrival = street._arrival(STUDY, 1, Priority.LIVE, "CR1", "densenet121_untrained@1")
    file = state / "archive" / arrival.instance.path
    file.parent.mkdir()
    file.write_bytes(bytes(2 * 1024 * 1024))
    street.ledger.record([arrival])
    with small_disk(state.parent / "disk", 3) as disk:
        fill_to(disk, free)
        done = hilum(state, "backup", disk / "backup")
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr


def damage(ledger: Path, what: str) -> None:
    """The header, or the root page of a table."""
    with closing(sqlite3.connect(ledger)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        row = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (what,)
        ).fetchone()
    with ledger.open("r+b") as file:
        file.seek((row[0] - 1) * size if row else 0)
        file.write(b"\xff" * 64)


@pytest.mark.parametrize("what", ["header", "delivery"])
def test_a_damaged_ledger_is_named_without_a_traceback(what: str, state: Path) -> None:
    said = "the ledger is damaged"
    damage(state / "ledger.sqlite", what)
    done = hilum(state, "backup", state.parent / "copy")
    assert (
        done.returncode,
        done.stderr.startswith(f"hilum: ledger: {said}. Stop `hilum serve`, and restore"),
    ) == (2, True), done.stderr
    checked = hilum(state, "check")
    name = "ledger" if what == "header" else "ledger file"
    assert f"PROBLEM {name}: {said}\n        -> Stop" in checked.stdout, (
        checked.stdout + checked.stderr
    )


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [
        ("2147483647", 1, "no conflict 2147483647 in the ledger"),
        ("2147483648", 2, "not in the range"),
        ("9" * 20, 2, "not in the range"),
    ],
)
def test_a_number_that_no_row_has_is_wrong_use(
    number: str, status: int, said: str, state: Path
) -> None:
    done = hilum(state, "conflicts", "keep", number)
    assert (done.returncode, said in done.stderr) == (status, True), done.stderr


@pytest.mark.parametrize(
    ("table", "command"),
    [
        ("study", f"study {STUDY}"),
        ("conflict", "conflicts list"),
        ("destination", "destinations list"),
        ("rollout", "rollout list"),
    ],
)
def test_a_ledger_that_does_not_answer_is_said(table: str, command: str, state: Path) -> None:
    with sqlite3.connect(state / "ledger.sqlite") as connection:
        connection.execute(f"DROP TABLE {table}")
    connection.close()
    done = hilum(state, *command.split())
    assert (done.returncode, done.stderr) == (
        1,
        "hilum: the ledger has no tables yet; `hilum check` says more\n",
    )


def test_the_database_is_quoted_without_a_statement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'nowhere' / 'ledger.sqlite'}")
    with pytest.raises(typer.Exit) as ended, explained(), engine.connect():
        pass
    assert ended.value.exit_code == 1
    assert capsys.readouterr().err.startswith("hilum: ledger: unable to open database file. ")


def test_who_reads_our_output_may_leave() -> None:
    with pytest.raises(BrokenPipeError), explained():
        raise BrokenPipeError


def with_reports(state: Path, *contents: bytes) -> None:
    """The Structured Reports of the ledger, oldest first, get these bytes."""
    with sqlite3.connect(state / "ledger.sqlite") as connection:
        rows = connection.execute(
            "SELECT id FROM document WHERE kind = 'sr' ORDER BY id"
        ).fetchall()
        for (number,), content in zip(rows, contents, strict=True):
            connection.execute("UPDATE document SET content = ? WHERE id = ?", (content, number))
    connection.close()


def reports() -> tuple[bytes, bytes]:
    """A Structured Report and the one that replaces it."""
    release = make_release()
    job = report_of(phantom.make_study(3, views=("PA",), rows=16, columns=16), release)
    (before,) = build_documents(job, release, CONTEXT, ("sr",))
    (after,) = build_documents(
        report_job(job.instances, job.result, {"sr": before}), release, CONTEXT, ("sr",)
    )
    return before.content, after.content


def test_a_tree_is_that_of_the_current_result_or_there_is_none(state: Path, street: Street) -> None:
    first, second = reports()
    street.walk(STUDY, 1)
    with_reports(state, first)
    shown = hilum(state, "study", STUDY, "--tree")
    assert (shown.returncode, "Replaces:" in shown.stdout, "PRELIMINARY" in shown.stdout) == (
        0,
        False,
        True,
    ), shown.stderr
    street.receive(STUDY, 2)
    street.read()
    street.assemble()
    superseded = hilum(state, "study", STUDY, "--tree")
    assert (superseded.returncode, superseded.stdout) == (1, "")
    assert f"study {STUDY} has no Structured Report of its current result" in superseded.stderr
    street.report()
    with_reports(state, first, second)
    assert "Replaces:" in hilum(state, "study", STUDY, "--tree").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "say whose: --patient, or --study for one study"),
        (("--patient", "4711", "--study", "1.2.3"), "and not both"),
        (("--study", "1.2.3", "--issuer", "NORTH"), "--issuer belongs to --patient"),
        (("--study", " "), "--study is empty"),
        (("--patient", " "), "--patient is empty"),
    ],
)
def test_an_erasure_says_whose(state: Path, words: tuple[str, ...], said: str) -> None:
    vague = hilum(state, "erase", *words, "--yes")
    assert (vague.returncode, said in vague.stderr) == (2, True), vague.stdout + vague.stderr


def test_one_study_is_counted_then_erased(state: Path, street: Street) -> None:
    street.walk(STUDY, 1)
    counted = hilum(state, "erase", "--study", STUDY)
    would = "1 studies, 1 images, 2 documents, 0 files in quarantine would be erased; add --yes"
    assert (counted.returncode, counted.stdout.splitlines()[0]) == (1, would), counted.stderr
    done = hilum(state, "erase", "--study", STUDY, "--yes")
    assert (done.returncode, STUDY in done.stdout + done.stderr) == (0, False), (
        done.stdout + done.stderr
    )
    assert hilum(state, "study", STUDY).returncode == 1


def test_an_erasure_that_leaves_files_is_not_done_also_without_a_rewrite(state: Path) -> None:
    words = ("erase", "--patient", "PHANTOM-00000003", "--yes", "--no-rewrite")
    done = hilum(state, *words)
    assert (done.returncode, "was not rewritten" in done.stdout) == (0, True), done.stderr
    image = phantom.make_instance(seed=3, rows=16, columns=16)
    with Archive(state / "archive", "listener").begin() as incoming:
        incoming.write(Path(phantom.save(image, state.parent / "image.dcm")).read_bytes())
        incoming.commit()
    left = hilum(state, *words)
    assert (left.returncode, "1 files of this patient have just arrived" in left.stdout) == (
        1,
        True,
    ), left.stdout + left.stderr

"""`hilum ingest`: files without a network and a running server (with one.

Test_object_changes); repeated, interrupted, on a full disk.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from pathlib import Path

import pytest

from testing.phantoms.phantom import make_instance, save, uid_for
from testing.serving import Hilum
from tests.support.ledger.database import rows_of
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.server import commands
from tests.support.server.listening import data_set_of


@pytest.fixture
def installation(tmp_path: Path) -> Hilum:
    """Settings and a migrated ledger; nothing runs."""
    made = Hilum(tmp_path / "hilum", {}, receive={"reserve_bytes": 0})
    made.write_settings()
    migrate_ledger(made)
    return made


def migrate_ledger(server: Hilum) -> None:
    """As `hilum migrate` would."""
    (server.folder / "state").mkdir()
    migrated_sqlite(server.folder / "state")


def ingest(server: Hilum, *words: object) -> subprocess.CompletedProcess[str]:
    return commands.hilum(*server.command("ingest", *map(str, words))[1:])


def stored(server: Hilum) -> dict[str, bytes]:
    """SOP Instance UID to the data set in the archive."""
    archive = server.folder / "state/archive"
    return {
        row["sop_instance_uid"]: data_set_of(archive / row["path"])
        for row in rows_of(server.folder / "state", "SELECT * FROM instance")
    }


def draw(folder: Path, count: int) -> dict[str, Path]:
    """Small files in folders below each other; their UIDs."""
    made, base = {}, make_instance(5, rows=64, columns=64)
    for number in range(count):
        base.SOPInstanceUID = base.file_meta.MediaStorageSOPInstanceUID = uid_for("ingest", number)
        base.PixelData = number.to_bytes(2, "little") + base.PixelData[2:]
        target = folder / f"{number % 3}" / f"{number % 2}"
        target.mkdir(parents=True, exist_ok=True)
        made[str(base.SOPInstanceUID)] = save(base, target / f"{number:04}.dcm")
    return made


def test_a_folder_is_taken_once_bit_for_bit_and_what_is_not_dicom_is_said(
    installation: Hilum, tmp_path: Path
) -> None:
    made = draw(tmp_path / "files", 30)
    (tmp_path / "files/readme\n:100: [red].txt").write_text("no DICOM")
    (tmp_path / "files/empty").touch()
    (tmp_path / "files/DICOMDIR").write_bytes(bytes(128) + b"DICM")
    ct = make_instance(
        9, rows=32, columns=32, overrides={"SOPClassUID": "1.2.840.10008.5.1.4.1.1.2"}
    )
    ct.file_meta.MediaStorageSOPClassUID = ct.SOPClassUID
    save(ct, tmp_path / "files/ct.dcm")
    done = ingest(installation, tmp_path / "files")
    assert done.stdout.startswith(
        "30 stored, 0 known, 0 discarded, 2 refused, 2 skipped, 0 failed, 0 conflict"
    ), done.stdout + done.stderr
    assert done.returncode == 1, "two were refused"
    assert r"readme\n:100: [red].txt': not a DICOM file" in done.stderr
    assert (
        "ct.dcm: SOP Class not accepted: CT Image Storage. Send CR, DX and Secondary Capture images"
        " only" in done.stderr
    )
    assert stored(installation) == {uid: data_set_of(file) for uid, file in made.items()}
    assert {
        row["priority"]
        for row in rows_of(installation.folder / "state", "SELECT priority FROM reading")
    } == {2}, "the priority reanalysis"
    for name in ("ct.dcm", "DICOMDIR"):
        (tmp_path / "files" / name).unlink()
    again = ingest(installation, tmp_path / "files")
    assert again.stdout.startswith("0 stored, 30 known"), again.stdout
    assert again.returncode == 0
    assert len(rows_of(installation.folder / "state", "SELECT 1 FROM reading")) == 30, (
        "nothing is read twice"
    )


def test_two_copies_with_different_headers_are_each_taken_once(
    installation: Hilum, tmp_path: Path
) -> None:
    """Repeated, a folder that holds the header from before a correction does not take the correction back."""
    (tmp_path / "files").mkdir()
    image = make_instance(5, rows=64, columns=64)
    for name in ("WRONG^NAME", "CORRECTED^NAME"):
        image.PatientName = name
        save(image, tmp_path / "files" / f"{'ab'[name[0] == 'C']}.dcm")
        assert ingest(installation, tmp_path / "files").returncode == 0
    before = rows_of(installation.folder / "state", "SELECT header_revision, digest FROM instance")
    assert before[0]["header_revision"] == 2
    for _ in range(2):
        assert ingest(installation, tmp_path / "files").stdout.startswith("0 stored, 2 known")
    assert (
        rows_of(installation.folder / "state", "SELECT header_revision, digest FROM instance")
        == before
    )
    assert stored(installation)[str(image.SOPInstanceUID)] == data_set_of(tmp_path / "files/b.dcm")


def test_other_pixels_are_said_until_a_person_decides_and_written_once(
    installation: Hilum, tmp_path: Path
) -> None:
    """Beside all that is the installation's own, which is passed over."""
    files = installation.folder / "files"
    made = list(draw(files, 2).values())
    content = made[0].read_bytes()
    for number in range(2):
        (files / f"{number}.dcm").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    quarantine = installation.folder / "state/archive/quarantine"
    done = ingest(installation, installation.folder, "--jobs", 1)
    assert done.stdout.startswith("2 stored, 1 known, 0 discarded, 0 refused, "), (
        done.stdout + done.stderr
    )
    assert ", 1 conflict in " in done.stdout
    assert "(`hilum conflicts list`); the same command, once more, names each" in done.stderr
    assert f"{installation.folder / 'state'}: Hilum's own (site.state_dir)" in done.stderr
    assert done.returncode == 1
    (held,) = [file for file in quarantine.rglob("*") if file.is_file()]
    again = ingest(installation, files)
    assert (again.returncode, again.stdout.partition(" in ")[0]) == (
        1,
        "0 stored, 3 known, 0 discarded, 0 refused, 0 skipped, 0 failed, 1 conflict",
    )
    assert f"conflict  {made[0]}: other pixels under a known SOP Instance UID" in again.stderr
    assert "names each" not in again.stderr
    assert [file for file in quarantine.rglob("*") if file.is_file()] == [held]
    with sqlite3.connect(installation.folder / "state/ledger.sqlite") as connection:
        connection.execute("UPDATE conflict SET state = 'kept'")
    decided = ingest(installation, files)
    assert (
        decided.returncode,
        decided.stdout.partition(",")[0],
        ", 0 conflict" in decided.stdout,
    ) == (0, "0 stored", True), decided.stderr
    refused = ingest(installation, held)
    assert (refused.returncode, "site.state_dir" in refused.stderr, refused.stdout) == (
        2,
        True,
        "",
    ), refused.stderr


def test_interrupted_it_says_what_it_has_done(installation: Hilum, tmp_path: Path) -> None:
    draw(tmp_path / "files", 60)
    for number in range(400):
        os.mkfifo(tmp_path / f"files/1/{number:03}")
    # Tests that were started in the background may ignore it, and so may all that they start.
    command = [
        "env",
        "--default-signal=INT",
        *installation.command("ingest", str(tmp_path / "files")),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        fcntl.fcntl(
            running.stderr, fcntl.F_SETPIPE_SZ, 4096
        )  # a few lines: while nobody reads the next ones, it cannot come to its end
        assert "a pipe" in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        said = running.stderr.read()
    assert re.search(r"stopped   \d+ stored, .* \d+ skipped, .*; the same command goes on", said), (
        said
    )
    assert running.returncode not in (0, 2)


def test_on_a_terminal_a_line_counts_along(installation: Hilum, tmp_path: Path) -> None:
    draw(tmp_path / "files", 3)
    ours, theirs = pty.openpty()
    terminal = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    command = installation.command("ingest", str(tmp_path / "files"))
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=theirs, timeout=120, check=False, env=terminal
    )
    os.close(theirs)
    assert done.returncode == 0
    assert b"3 stored" in os.read(ours, 1 << 16)
    os.close(ours)


def test_a_route_and_a_priority_are_those_that_were_asked_for(tmp_path: Path) -> None:
    made = Hilum(
        tmp_path / "hilum",
        {},
        receive={"reserve_bytes": 0, "ae_titles": ["HILUM", "NIGHT"]},
        **{"routes.NIGHT": {"priority": "urgent"}},
    )
    made.write_settings()
    migrate_ledger(made)
    files = list(draw(tmp_path / "files", 2).values())
    assert (
        ingest(
            made, files[0], "--to", "NIGHT", "--priority", "route", "--from", "RESEARCH"
        ).returncode
        == 0
    )
    assert ingest(made, files[1], "--to", "NIGHT", "--priority", "live").returncode == 0
    columns = "priority, calling_ae_title, called_ae_title"
    priorities = rows_of(
        made.folder / "state",
        f"SELECT {columns} FROM reading JOIN instance ON instance.id = instance_id ORDER BY"
        " reading.id",
    )
    assert priorities == [
        {"priority": 0, "calling_ae_title": "RESEARCH", "called_ae_title": "NIGHT"},
        {"priority": 1, "calling_ae_title": "HILUM_INGEST", "called_ae_title": "NIGHT"},
    ]
    assert ingest(made, files[0], "--priority", "soon").returncode == 2


def test_killed_in_the_middle_and_repeated_everything_is_there_once(
    installation: Hilum, tmp_path: Path
) -> None:
    made = draw(tmp_path / "files", 400)
    for _ in range(3):
        running = subprocess.Popen(
            installation.command("ingest", str(tmp_path / "files")),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        time.sleep(1.1)
        running.send_signal(signal.SIGKILL)
        running.communicate()
    done = ingest(installation, tmp_path / "files")
    assert done.returncode == 0, done.stderr
    assert stored(installation) == {uid: data_set_of(file) for uid, file in made.items()}
    counts = Counter(
        row["instance_id"]
        for row in rows_of(installation.folder / "state", "SELECT instance_id FROM reading")
    )
    assert len(counts) == 400
    assert set(counts.values()) == {1}
    left = [
        path
        for path in (installation.folder / "state/archive/unindexed").rglob("*")
        if path.is_file()
    ]
    assert left == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_said_and_the_rest_is_taken(
    installation: Hilum, tmp_path: Path
) -> None:
    made = list(draw(tmp_path / "files", 3).values())
    made[1].chmod(0)
    done = ingest(installation, tmp_path / "files")
    assert done.stdout.startswith("2 stored"), done.stdout
    assert "cannot be read: Permission denied" in done.stderr
    assert done.returncode == 1


def test_a_nearly_full_disk_is_waited_for(tmp_path: Path) -> None:
    full = Hilum(tmp_path / "hilum", {}, receive={"reserve_bytes": 1 << 60})
    full.write_settings()
    migrate_ledger(full)
    draw(tmp_path / "files", 3)
    with subprocess.Popen(
        full.command("ingest", str(tmp_path / "files")), stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stderr is not None
        assert "MiB of disk are free" in running.stderr.readline()
        running.kill()
    assert stored(full) == {}


def test_a_missing_file_is_a_failure_and_no_traceback(installation: Hilum, tmp_path: Path) -> None:
    done = ingest(installation, tmp_path / "nothing")
    assert done.returncode == 1
    assert "cannot be read: No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr

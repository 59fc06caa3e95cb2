"""`hilum export`: files, standard output, exit status, and its row of the audit."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from hilum.store.audit.log import AuditFilter, AuditLog
from hilum.store.ledger import Ledger
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.read_studies import ACCESSION, CHEST, PATIENT, ReadStudies
from tests.support.ledger.street import Clock
from tests.support.server import commands

FINDINGS = 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with settings, and a ledger with one study of two images and one that waits."""
    url = migrated_sqlite(tmp_path)
    (tmp_path / "hilum.toml").write_text(f'[site]\nstate_dir = "{tmp_path}"\n')
    clock = Clock()
    with closing(Ledger(url, clock)) as ledger:
        studies = ReadStudies(ledger, clock, CHEST)
        studies.walk("1.2.10", 1, 2)
        studies.receive("1.2.11", 1)
    return tmp_path


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return commands.hilum("export", *words, "--config", folder / "hilum.toml", folder=folder)


def audited(folder: Path) -> list[tuple[object, ...]]:
    with closing(AuditLog(f"sqlite:///{folder / 'ledger.sqlite'}")) as log:
        rows, _ = log.list(AuditFilter())
    return [(row["verb"], row["outcome"], row["count"], row["detail"]) for row in reversed(rows)]


def test_an_export_says_where_its_tables_are_and_is_audited(folder: Path) -> None:
    done = run(folder, "--out", "results.csv", "--study-dates", "2019-01-01..2019-12-31")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "results.csv: 10 rows of 2 studies\n"
        "results.not_read.csv: 1 row of images that were not read\n"
    )
    assert audited(folder) == [("export", "begun", 0, None), ("export", "done", 2, None)]


def test_standard_output_is_csv_alone(folder: Path) -> None:
    done = run(folder, "--out", "-", "--studies")
    assert done.returncode == 0
    rows = list(csv.DictReader(io.StringIO(done.stdout, newline="")))
    assert [row["study_instance_uid"] for row in rows] == ["1.2.10"] * FINDINGS
    assert done.stderr.startswith("hilum: 5 rows of 2 studies; 1 row of images")


def test_identifiers_are_warned_about_and_audited(folder: Path) -> None:
    done = run(folder, "--out", "results.csv", "--identifiers")
    assert done.returncode == 0
    assert "names patients" in done.stderr
    assert audited(folder)[-1] == ("export", "done", 2, "with identifiers")
    written = (folder / "results.csv").read_text()
    assert PATIENT in written
    assert ACCESSION in written
    assert PATIENT not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--out", "results.xlsx"), "let it end in .csv or .parquet"),
        (("--out", "hilum.csv"), "give another name, or --force"),
        (("--out", "a.csv", "--campaign", "old"), "there is no campaign 'old'"),
        (("--out", "a.csv", "--study-dates", "2019"), "is no range of days"),
        (("--out", "none/a.csv"), "Give another path."),
    ],
)
def test_wrong_use_has_exit_status_2_and_writes_nothing(
    folder: Path, words: tuple[str, ...], said: str
) -> None:
    (folder / "hilum.csv").write_text("mine")
    before = sorted(each.name for each in folder.iterdir())
    done = run(folder, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    left = {each.name for each in folder.iterdir()} - {"ledger.sqlite-wal", "ledger.sqlite-shm"}
    assert sorted(left) == [name for name in before if not name.endswith(("-wal", "-shm"))]


def test_a_disk_that_is_full_has_exit_status_1(folder: Path) -> None:
    script = 'exec > /dev/full; exec "$@"'
    program = commands.hilum_program()
    done = subprocess.run(
        ["sh", "-c", script, "sh", program, "export", "--out", "-", "-c", folder / "hilum.toml"],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert audited(folder)[-1][:2] == ("export", "failed")


def test_without_duckdb_parquet_names_its_extra_and_csv_is_written(folder: Path) -> None:
    def without_duckdb(name: str) -> subprocess.CompletedProcess[str]:
        words = ["hilum", "export", "--out", name, "--config", str(folder / "hilum.toml")]
        program = (
            f"import sys; sys.modules['duckdb'] = None; sys.argv = {words!r}\n"
            "from hilum.__main__ import main; main()"
        )
        return subprocess.run(
            [sys.executable, "-c", program],
            check=False,
            capture_output=True,
            text=True,
            cwd=folder,
            timeout=120,
        )

    refused = without_duckdb("a.parquet")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        'hilum: duckdb is not installed; it comes with the extra "parquet": pip install'
        ' "hilum[parquet]"\n'
    )
    assert without_duckdb("a.csv").returncode == 0
    assert audited(folder) == [("export", "begun", 0, None), ("export", "done", 2, None)]

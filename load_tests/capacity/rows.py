"""Rows and bytes of the ledger for a study: what a year of studies leaves there.

    python -m load_tests.capacity.rows [--studies 120] [--result load_tests/results/bench-rows.json]

Studies of two phantom images go through a whole Hilum, on SQLite, to a receiver. Then each table's
rows and pages are counted, with the indexes on it. What an empty ledger has is taken off.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from hilum.models.build import build
from hilum.models.manifest import catalogue
from hilum.store.migrations.migrate import migrate
from load_tests.bench.cpu_engine import Built
from load_tests.bench.cpu_street import Street
from load_tests.load.figures import Goal
from load_tests.load.machine import REPOSITORY
from load_tests.load.measure import circumstances
from testing.phantoms import phantom
from testing.serving import BUILT_MODELS

RESULT: Final = REPOSITORY / "load_tests/results/bench-rows.json"
_RELEASE: Final = "densenet121_untrained@1"
_VIEWS: Final = ("PA", "AP")
_SIDE: Final = 512  # the pixels are in no row
_RATE: Final = 4.0
_MOST_KB: Final = 150.0
_LEAST_ROWS: Final = 0.5  # an association, a person or a start is no study
_SIZES: Final = (
    "SELECT m.tbl_name, sum(s.pgsize) FROM dbstat s JOIN sqlite_schema m ON m.name = s.name"
    " WHERE m.tbl_name NOT LIKE 'sqlite%' GROUP BY m.tbl_name"
)
Table = dict[str, float]


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 the goal holds, 1 it does not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=120, help="(%(default)s)")
    parser.add_argument("--result", type=Path, default=RESULT, help="(%(default)s)")
    options = parser.parse_args(words)
    around = circumstances()
    with tempfile.TemporaryDirectory(prefix="hilum-rows-") as folder:
        found = measured(Path(folder), options.studies)
    held = goals(found["tables"])
    options.result.write_text(
        json.dumps(as_json(found, held, around), indent=1) + "\n", encoding="utf-8"
    )
    for goal in held:
        state = "holds " if goal.holds else "BROKEN"
        print(f"{state} {goal.name}: {goal.value:.3g} {goal.unit} (<= {goal.goal:g})")
    return 0 if all(goal.holds for goal in held) else 1


def measured(folder: Path, studies: int) -> dict[str, Any]:
    """Run the studies; return each table's rows and bytes a study, and the size of each document."""
    empty = folder / "empty.sqlite"
    migrate(f"sqlite:///{empty}")
    with Street(folder, _built()) as street:
        drawn = [
            phantom.make_study(seed, views=_VIEWS, rows=_SIDE, columns=_SIDE) for seed in range(4)
        ]
        street.send(drawn, studies, _RATE)
    ledger = next(folder.rglob("ledger.sqlite"))
    with closing(sqlite3.connect(ledger)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return {
        "studies": studies,
        "images_a_study": len(_VIEWS),
        "tables": a_study(sizes(empty), sizes(ledger), studies),
        "documents": documents(ledger),
    }


def _built() -> Built:
    manifests = REPOSITORY / "model_repository"
    build.build([_RELEASE], manifests, BUILT_MODELS)
    return Built(catalogue.load_catalogue(manifests)[_RELEASE], manifests, BUILT_MODELS)


def sizes(ledger: Path) -> dict[str, Table]:
    """Return rows and bytes of each table; bytes are those of its pages and of its indexes."""
    with closing(sqlite3.connect(ledger)) as connection:
        pages = dict(connection.execute(_SIZES))
        return {
            name: {"rows": _count(connection, name), "bytes": float(size)}
            for name, size in pages.items()
        }


def _count(connection: sqlite3.Connection, table: str) -> float:
    # The name is one of SQLite's own list of tables.
    (count,) = connection.execute(f'SELECT count(*) FROM "{table}"').fetchone()  # noqa: S608
    return float(count)


def a_study(
    before: Mapping[str, Table], after: Mapping[str, Table], studies: int
) -> dict[str, Table]:
    """Return the growth of each table for a study, without those that do not grow with studies."""
    grown = {
        name: {
            kind: round((now[kind] - before.get(name, {}).get(kind, 0.0)) / studies, 3)
            for kind in ("rows", "bytes")
        }
        for name, now in after.items()
    }
    return {name: table for name, table in sorted(grown.items()) if table["rows"] >= _LEAST_ROWS}


def documents(ledger: Path) -> dict[str, float]:
    """Return the mean bytes of a document by kind."""
    with closing(sqlite3.connect(ledger)) as connection:
        asked = "SELECT kind, avg(length(content)) FROM document GROUP BY kind"
        return {kind: round(size, 1) for kind, size in connection.execute(asked)}


def goals(tables: Mapping[str, Table]) -> list[Goal]:
    """One: a study is small beside its pixels."""
    all_bytes = sum(table["bytes"] for table in tables.values())
    return [Goal("ledger of a study of two images", all_bytes / 1000, "kB", _MOST_KB)]


def as_json(
    found: Mapping[str, Any], held: Sequence[Goal], around: Mapping[str, Any]
) -> dict[str, Any]:
    """The result file."""
    return {
        "what": "rows and bytes of the ledger for a study of two images, SQLite, indexes included",
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **around,
        **found,
        "goals": [goal.as_json() for goal in held],
    }


if __name__ == "__main__":
    sys.exit(main())

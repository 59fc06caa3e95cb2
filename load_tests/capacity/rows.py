"""Rows and bytes of the ledger for a study: what a year of studies leaves there.

    python -m load_tests.capacity.rows --url postgresql+psycopg://… [--studies 240]

Studies of two phantom images go through a whole Hilum to a receiver. Its ledger is the empty
database at the URL; without one it is a SQLite file. Then the rows and bytes of each table are
counted, with its indexes. What the empty ledger has is taken off.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, text

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
_RATE: Final = 2.0
_MOST_KB: Final = 150.0
_LEAST_ROWS: Final = 0.5  # an association, a person or a start is no study
_SIZES: Final = {
    "sqlite": (
        "SELECT m.tbl_name, sum(s.pgsize) FROM dbstat s JOIN sqlite_schema m ON m.name = s.name"
        " WHERE m.tbl_name NOT LIKE 'sqlite%' GROUP BY m.tbl_name"
    ),
    "postgresql": (
        "SELECT relname, pg_total_relation_size(oid) FROM pg_class"
        " WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    ),
}
_VERSIONS: Final = {
    "sqlite": "SELECT 'SQLite ' || sqlite_version()",
    "postgresql": "SELECT 'PostgreSQL ' || split_part(current_setting('server_version'), ' ', 1)",
}
Table = dict[str, float]


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 the goal holds, 1 it does not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=240, help="(%(default)s)")
    parser.add_argument("--url", help="of an empty PostgreSQL database; none: SQLite")
    parser.add_argument("--result", type=Path, default=RESULT, help="(%(default)s)")
    options = parser.parse_args(words)
    around = circumstances()
    with tempfile.TemporaryDirectory(prefix="hilum-rows-") as folder:
        found = measured(Path(folder), options.studies, options.url)
    held = goals(found["tables"])
    options.result.write_text(
        json.dumps(as_json(found, held, around), indent=1) + "\n", encoding="utf-8"
    )
    for goal in held:
        state = "holds " if goal.holds else "BROKEN"
        print(f"{state} {goal.name}: {goal.value:.3g} {goal.unit} (<= {goal.goal:g})")
    return 0 if all(goal.holds for goal in held) else 1


def measured(folder: Path, studies: int, url: str | None) -> dict[str, Any]:
    """Run the studies; return each table's rows and bytes a study, and the size of each document."""
    ledger = url or f"sqlite:///{folder / 'ledger.sqlite'}"
    migrate(ledger)
    engine = create_engine(ledger)
    before = sizes(engine)
    with Street(folder, _built(), ledger={"url": ledger}) as street:
        drawn = [
            phantom.make_study(seed, views=_VIEWS, rows=_SIDE, columns=_SIDE) for seed in range(4)
        ]
        street.send(drawn, studies, _RATE)
    found = {
        "database": str(_asked(engine, _VERSIONS[engine.dialect.name])[0][0]),
        "studies": studies,
        "images_a_study": len(_VIEWS),
        "tables": a_study(before, sizes(engine), studies),
        "documents": documents(engine),
    }
    engine.dispose()
    return found


def _built() -> Built:
    manifests = REPOSITORY / "model_repository"
    build.build([_RELEASE], manifests, BUILT_MODELS)
    return Built(catalogue.load_catalogue(manifests)[_RELEASE], manifests, BUILT_MODELS)


def sizes(engine: Engine) -> dict[str, Table]:
    """Return rows and bytes of each table; bytes are those of its pages and of its indexes."""
    pages = _asked(engine, _SIZES[engine.dialect.name])
    with engine.connect() as connection:
        return {
            name: {"rows": _count(connection, name), "bytes": float(size)} for name, size in pages
        }


def _count(connection: Connection, table: str) -> float:
    # The name is one of the database's own list of tables.
    return float(connection.execute(text(f'SELECT count(*) FROM "{table}"')).scalar_one())  # noqa: S608


def _asked(engine: Engine, question: str) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(text(question)))


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


def documents(engine: Engine) -> dict[str, float]:
    """Return the mean bytes of a document by kind, before a database compresses them."""
    asked = "SELECT kind, avg(length(content)) FROM document GROUP BY kind"
    return {kind: round(float(size), 1) for kind, size in _asked(engine, asked)}


def goals(tables: Mapping[str, Table]) -> list[Goal]:
    """One: a study is small beside its pixels."""
    all_bytes = sum(table["bytes"] for table in tables.values())
    return [Goal("ledger of a study of two images", all_bytes / 1000, "kB", _MOST_KB)]


def as_json(
    found: Mapping[str, Any], held: Sequence[Goal], around: Mapping[str, Any]
) -> dict[str, Any]:
    """The result file."""
    return {
        "what": "rows and bytes of the ledger for a study of two images, indexes included",
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **around,
        **found,
        "goals": [goal.as_json() for goal in held],
    }


if __name__ == "__main__":
    sys.exit(main())

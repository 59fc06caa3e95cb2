"""`make bench-fleet`: the ledger with ten million finished readings on PostgreSQL.

    python -m load_tests.ledger.run [--rows 10000000] [--folder /srv/bench] [--result FILE]

A PostgreSQL of its own is started, filled and asked: claims beside those of an empty ledger, the
cost of a reading for one and for several analysers, every query of pages, REST and the exporter,
and the same again while rows of old studies leave. Its folder is deleted at the end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, text

from hilum.store.database.engines import open_engine
from hilum.store.migrations.migrate import migrate
from load_tests.ledger import analysers, claims, fill, picture, queries, sizes
from load_tests.ledger.claims import Side
from load_tests.ledger.fill import Amount
from load_tests.ledger.goals import goals_of
from load_tests.load.measure import circumstances, percentiles
from testing.postgres import PostgresMissing, fresh_database, postgres_cluster

RESULT: Final = Path(__file__).parents[1] / "results" / "bench-fleet.json"
# A small server for one department; what is not said is PostgreSQL's default. `wal_level` is for
# the filling: it saves a log of all rows.
OPTIONS: Final[Mapping[str, str]] = {
    "shared_buffers": "1GB",
    "effective_cache_size": "6GB",
    "work_mem": "16MB",
    "random_page_cost": "1.1",
    "max_wal_size": "4GB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_connections": "60",
}


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 they do not, 2 the run did not take place."""
    options = parse(words)
    around = circumstances()
    folder = Path(tempfile.mkdtemp(prefix="hilum-bench-", dir=options.folder))
    try:
        with postgres_cluster(folder, OPTIONS) as url:
            found = measure(options, url, folder)
    except (PostgresMissing, RuntimeError, OSError) as error:
        print(f"no measurement: {error}", file=sys.stderr)
        return 2
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    goals = goals_of(found)
    answer = {
        "what": (__doc__ or "").splitlines()[0],
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **around,
        "postgresql": {"options": dict(OPTIONS), "version": found.pop("version")},
        "settings": {"rows": options.rows, "claims": options.claims, "rounds": options.rounds},
        **found,
        "goals": [goal.as_json() for goal in goals],
    }
    options.result.write_text(json.dumps(answer, indent=1) + "\n")
    picture.write(options.result.with_suffix(".png"), answer)
    for goal in goals:
        print(f"{'holds ' if goal.holds else 'BROKEN'} {goal.name}: {goal.value:.4g} {goal.unit}")
    return 0 if all(goal.holds for goal in goals) else 1


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="load_tests.ledger.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="finished readings (%(default)s)"
    )
    parser.add_argument(
        "--claims", type=int, default=1500, help="claims on each ledger (%(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=60, help="times that each query runs (%(default)s)"
    )
    parser.add_argument(
        "--readings", type=int, default=4000, help="of each turn of analysers (%(default)s)"
    )
    parser.add_argument(
        "--folder", type=Path, help="with room for 3.5 kB a row (default: of temporary files)"
    )
    parser.add_argument("--keep", action="store_true", help="do not delete the database")
    parser.add_argument("--result", type=Path, default=RESULT, help="(%(default)s)")
    return parser.parse_args(words)


def say(said: str) -> None:
    """Print on standard error, with the time of day."""
    print(f"{datetime.now(UTC):%H:%M:%S} {said}", file=sys.stderr, flush=True)


def measure(options: argparse.Namespace, url: str, folder: Path) -> dict[str, Any]:
    """Fill, and take all figures."""
    empty = fresh_database(url)
    for each in (url, empty):
        migrate(each)
    engine = open_engine(url)
    amount = Amount(options.rows, time.time())
    found: dict[str, Any] = {"version": _version(engine)}
    found["fill_seconds"] = fill.fill(engine, amount, say)
    found["sizes"] = sizes.of_tables(engine)
    say("claims")
    found["claims"] = _claims(empty, url, options.claims)
    say("queries")
    sample = queries.sample_of(engine, amount)
    found["queries_ms"] = {
        name: _rounded(percentiles(values))
        for name, values in queries.measured(url, sample, amount, options.rounds).items()
    }
    say("analysers")
    turns = [
        analysers.measure(url, folder, number, options.readings) for number in (1, 2, 4, 1, 2, 4)
    ]
    found["analysers"] = [asdict(turn) for turn in turns]
    engine.dispose()
    return found


def _claims(empty: str, full: str, count: int) -> dict[str, Any]:
    sides = claims.claims_in_turns(empty, full, count)
    names = ("empty", "full")
    return {name: _of_side(side) for name, side in zip(names, sides, strict=True)}


def _of_side(side: Side) -> dict[str, Any]:
    return {
        "claims": len(side.claims),
        "ms": _rounded(percentiles(side.claims)),
        "all_ms": [round(value, 3) for value in side.claims],
    }


def _version(engine: Engine) -> str:
    with engine.connect() as connection:
        return str(connection.execute(text("SHOW server_version")).scalar_one())


def _rounded(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in figures.items()}


if __name__ == "__main__":
    sys.exit(main())

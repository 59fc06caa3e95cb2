"""`make bench-fleet`: the ledger with ten million finished readings on PostgreSQL.

    python -m load_tests.ledger.run [--rows 10000000] [--folder /srv/bench] [--result FILE]

A PostgreSQL of its own is started, filled and asked: claims beside those of an empty ledger, the
cost of a reading for one and for several analysers, every query of pages, REST and the exporter,
and claims again while rows of old studies leave. Its folder is deleted at the end, but for --keep.
"""

from __future__ import annotations

import argparse
import json
import os
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
from load_tests.ledger import analysers, claims, fill, picture, queries, removal, sizes
from load_tests.ledger.claims import Side
from load_tests.ledger.fill import Amount
from load_tests.ledger.goals import goals_of
from load_tests.load import command_line
from load_tests.load.measure import circumstances, percentiles
from testing.postgres import PostgresMissing, fresh_database, postgres_cluster

RESULT: Final = Path(__file__).parents[1] / "results" / "bench-fleet.json"
_FILLED: Final = "filled.json"
_TURNS: Final = (1, 4, 2, 4, 1, 1, 4)  # analysers
# A small server for one department; what is not said is PostgreSQL's default. `wal_level` is for
# the filling: it saves a log of all rows. Without parallel workers the sessions' CPU is all CPU.
OPTIONS: Final[Mapping[str, str]] = {
    "shared_buffers": "1GB",
    "effective_cache_size": "6GB",
    "work_mem": "16MB",
    "random_page_cost": "1.1",
    "max_wal_size": "4GB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_parallel_workers_per_gather": "0",
    "max_connections": "60",
}


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 they do not, 2 the run did not take place."""
    options = parse(words)
    around = circumstances()
    folder = options.cluster or Path(tempfile.mkdtemp(prefix="hilum-bench-", dir=options.folder))
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
        "settings": {
            "claims": options.claims,
            "rounds": options.rounds,
            # Below 0: it ran before other programs of the machine.
            "niceness": os.nice(0),
        },
        **found,
        "goals": [goal.as_json() for goal in goals],
    }
    picture.write(options.result.with_suffix(".png"), answer)
    for turn in answer["claims"].values():
        del turn["all_wall_ms"]
        del turn["all_cpu_ms"]
    options.result.write_text(json.dumps(answer, indent=1) + "\n")
    for goal in goals:
        print(f"{'holds ' if goal.holds else 'BROKEN'} {goal.name}: {goal.value:.4g} {goal.unit}")
    return 0 if all(goal.holds for goal in goals) else 1


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = command_line.parser("load_tests.ledger.run", __doc__)
    add = parser.add_argument
    add("--rows", type=int, default=10_000_000, help="finished readings (%(default)s)")
    add("--claims", type=int, default=1500, help="claims on each ledger (%(default)s)")
    add("--rounds", type=int, default=60, help="times that each query runs (%(default)s)")
    add("--readings", type=int, default=4000, help="of each turn of analysers (%(default)s)")
    add("--leaving", type=int, default=20_000, help="studies that leave (%(default)s)")
    add("--folder", type=Path, help="with room for 4 kB a row (default: of temporary files)")
    add("--keep", action="store_true", help="do not delete the cluster")
    add("--cluster", type=Path, help="folder of a cluster that was kept: it is not filled again")
    add("--result", type=Path, default=RESULT, help="(%(default)s)")
    return parser.parse_args(words)


def say(said: str) -> None:
    """Print on standard error, with the time of day."""
    print(f"{datetime.now(UTC):%H:%M:%S} {said}", file=sys.stderr, flush=True)


def measure(options: argparse.Namespace, empty: str, folder: Path) -> dict[str, Any]:
    """Fill a ledger, and take all figures. `empty`: a database beside it."""
    migrate(empty)
    filled = _filled(options, empty, folder)
    url = filled["url"]
    amount = Amount(filled["rows"], filled["now"])
    engine = open_engine(url)
    found: dict[str, Any] = {
        "version": _version(engine),
        "rows": amount.readings,
        "studies": amount.studies,
        "fill_seconds": round(filled["fill_seconds"]),
        "sizes": sizes.of_tables(engine),
    }
    say("claims")
    found["claims"] = _claims(empty, url, options.claims)
    say("queries")
    found["queries"] = _queries(url, engine, amount, options.rounds)
    say("analysers")
    turns = [analysers.measure(url, number, options.readings) for number in _TURNS]
    found["analysers"] = [asdict(turn) for turn in turns]
    say("rows leave")
    found |= _removal(options, empty, url, folder, amount)
    engine.dispose()
    return found


def _filled(options: argparse.Namespace, empty: str, folder: Path) -> dict[str, Any]:
    """Fill a ledger, or take the one of an earlier run."""
    note = folder / _FILLED
    if note.exists():
        kept: dict[str, Any] = json.loads(note.read_text())
        migrate(kept["url"])
        return kept
    url = fresh_database(empty)
    migrate(url)
    engine = open_engine(url)
    amount = Amount(options.rows, time.time())
    seconds = fill.fill(engine, amount, say)
    engine.dispose()
    made = {"url": url, "now": amount.now, "rows": amount.readings, "fill_seconds": seconds}
    note.write_text(json.dumps(made))
    return made


def _claims(empty: str, full: str, count: int) -> dict[str, Any]:
    sides = claims.claims_in_turns(empty, full, count)
    return {name: _of_side(side) for name, side in zip(("empty", "full"), sides, strict=True)}


def _queries(url: str, engine: Engine, amount: Amount, rounds: int) -> dict[str, Any]:
    sample = queries.sample_of(engine, amount)
    times = queries.measured(url, engine, sample, amount, rounds)
    return {
        name: {
            "wall_ms": _rounded(percentiles(found.wall_ms)),
            "cpu_ms": _rounded(percentiles(found.cpu_ms)),
        }
        for name, found in times.items()
    }


def _removal(
    options: argparse.Namespace, empty: str, full: str, folder: Path, amount: Amount
) -> dict[str, Any]:
    """Claims while rows leave, and after it."""
    state = Path(tempfile.mkdtemp(prefix="exports-", dir=folder))
    process = removal.begin(full, state, amount.now, options.leaving)
    during = _claims(empty, full, options.claims // 3)
    figures = removal.end(process)
    say("claims after that")
    after = _claims(empty, full, options.claims // 3)
    turns = {"while rows leave": during, "after rows have left": after}
    return {
        "removal": {
            **figures,
            "claims": {
                when: {name: _without_values(side) for name, side in sides.items()}
                for when, sides in turns.items()
            },
        }
    }


def _without_values(side: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in side.items() if not name.startswith("all_")}


def _of_side(side: Side) -> dict[str, Any]:
    return {
        "claims": len(side.wall_ms),
        "wall_ms": _rounded(percentiles(side.wall_ms)),
        "cpu_ms": _rounded(percentiles(side.cpu_ms)),
        "all_wall_ms": side.wall_ms,
        "all_cpu_ms": side.cpu_ms,
    }


def _version(engine: Engine) -> str:
    with engine.connect() as connection:
        return str(connection.execute(text("SHOW server_version")).scalar_one())


def _rounded(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 3) for name, value in figures.items()}


if __name__ == "__main__":
    sys.exit(main())

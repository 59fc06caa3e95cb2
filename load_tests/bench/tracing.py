"""`make bench-tracing`: what OpenTelemetry spans cost.

CPU of an image with every study traced, beside the same Hilum without traces.

    python -m load_tests.bench.tracing [--rounds 7] [--studies 60] [--rate 4] [--result
    load_tests/results/bench-tracing.json]

Two Hilums with DenseNet-121 in OpenVINO, started together; each round sends the same studies to one
and then to the other, in turns. The collector is this process, which takes everything and keeps
nothing; it is in nobody's figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from pydicom import Dataset

from hilum.errors import ConfigurationError
from hilum.models.build import precision_speed
from load_tests.bench.cpu import BENCH_FOLDER, SIZES, say, studies_of
from load_tests.bench.cpu_engine import build_fastest, count_engine
from load_tests.bench.cpu_street import Street
from load_tests.load import command_line
from load_tests.load.measure import Goal, circumstances
from testing.accounting import Accountant
from testing.serving import HilumEnded

RESULT: Final = Path(__file__).parents[1] / "results" / "bench-tracing.json"
_DEAREST: Final = 1.05
_WARM_UP: Final = 6


@dataclass(frozen=True, slots=True)
class Turn:
    """One round: milliseconds of CPU an image, all processes but the model's own calls."""

    without: float
    traced: float


class Sink:
    """Takes spans, and counts them by the request."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}/v1/traces"
        self.requests = 0


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 they do not, 2 the run did not take place."""
    options = parse(words)
    try:
        around = circumstances()
        turns, requests = measure(options)
    except (HilumEnded, ConfigurationError, subprocess.CalledProcessError, OSError) as error:
        print(f"no measurement: {error}", file=sys.stderr)
        return 2
    goals = [
        Goal(
            "CPU of an image outside the model, traced / not traced",
            ratio(turns),
            "times",
            _DEAREST,
            at_most=True,
        ),
        Goal(
            "requests that the collector was sent", float(requests), "requests", 1.0, at_most=False
        ),
    ]
    show(turns, goals)
    said = {
        "what": __doc__.splitlines()[0] if __doc__ else "",
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **around,
    }
    settings = {
        "rounds": options.rounds,
        "studies": options.studies,
        "rate": options.rate,
        "precision": options.precision,
    }
    answer = {
        **said,
        "settings": settings,
        "turns": [asdict(turn) for turn in turns],
        "goals": [goal.as_json() for goal in goals],
    }
    options.result.write_text(json.dumps(answer, indent=1) + "\n")
    return 0 if all(goal.holds for goal in goals) else 1


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = command_line.parser("load_tests.bench.tracing", __doc__)
    parser.add_argument("--rounds", type=int, default=7, help="(%(default)s)")
    parser.add_argument(
        "--studies", type=int, default=60, help="of two images, each turn (%(default)s)"
    )
    parser.add_argument("--rate", type=float, default=4.0, help="studies a second (%(default)s)")
    parser.add_argument(
        "--precision",
        choices=precision_speed.PRECISIONS,
        help="(default: the one that costs this CPU the least)",
    )
    parser.add_argument("--result", type=Path, default=RESULT, help="(%(default)s)")
    return parser.parse_args(words)


def ratio(turns: Sequence[Turn]) -> float:
    """The median round's."""
    return float(statistics.median(turn.traced / turn.without for turn in turns))


def measure(options: argparse.Namespace) -> tuple[list[Turn], int]:
    """The rounds, and how often the collector was sent something."""
    built = build_fastest(BENCH_FOLDER, options.precision)
    count_engine(built)
    studies = studies_of(SIZES[-1])
    with ExitStack() as stack:
        sink = stack.enter_context(collecting())
        streets = []
        for tracing in ({}, {"endpoint": sink.endpoint}):
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="hilum-tracing-", ignore_cleanup_errors=True)
            )
            street = stack.enter_context(Street(Path(folder), built, tracing=tracing))
            streets.append((street, stack.enter_context(Accountant(street.pid))))
        for street, _ in streets:
            street.send(studies, _WARM_UP, options.rate)
        turns = []
        for number in range(options.rounds):
            say(f"round {number + 1} of {options.rounds}")
            # The first one meets other caches than the second.
            order = streets if number % 2 == 0 else streets[::-1]
            spent = {
                street: milliseconds(street, accountant, studies, options)
                for street, accountant in order
            }
            turns.append(Turn(*(spent[street] for street, _ in streets)))
    return turns, sink.requests


def milliseconds(
    street: Street,
    accountant: Accountant,
    studies: Sequence[Sequence[Dataset]],
    options: argparse.Namespace,
) -> float:
    """CPU of an image, without what the model's engine counts itself."""
    window = street.watched(
        accountant,
        partial(street.send, studies, options.studies, options.rate),
        2 * options.studies,
    )
    return 1000 * (sum(window.roles.values()) - window.charged["engine"]) / window.images


@contextmanager
def collecting() -> Iterator[Sink]:
    """An OTLP receiver that forgets."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            sink.requests += 1
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Not on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sink = Sink(server.server_port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield sink
    finally:
        server.shutdown()
        server.server_close()


def show(turns: Sequence[Turn], goals: Sequence[Goal]) -> None:
    """For a terminal."""
    for turn in turns:
        print(f"{turn.without:6.2f} ms an image, traced {turn.traced:6.2f} ms")
    for goal in goals:
        bound = f"{'<=' if goal.at_most else '>='} {goal.goal:g}"
        print(
            f"{'holds ' if goal.holds else 'BROKEN'}  {goal.name}: {goal.value:.3f} {goal.unit}"
            f" ({bound})"
        )


if __name__ == "__main__":
    sys.exit(main())

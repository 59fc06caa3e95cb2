"""`make bench-campaign`: campaigns beside the bare engine, live studies, and a home-made worker.

Each round starts each system afresh, one after the other, on the same studies. Results in
`results/bench-campaign.json`; docs/figures/campaigns.md says how to read them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from hilum.errors import ConfigurationError
from load_tests.campaign import archives, planned
from load_tests.campaign.live import LiveFigures, live
from load_tests.campaign.planned import PlannedFigures
from load_tests.campaign.systems import SYSTEMS, NotFinished, Rate, Task
from load_tests.load import command_line
from load_tests.load.figures import Goal
from load_tests.load.measure import circumstances
from load_tests.load.mix import Mix, Part
from load_tests.peer import material
from load_tests.peer.peer_system import PeerEnded
from load_tests.peer.phases import RunBroken
from testing.network.sender import CALLING_AE_TITLE
from testing.peers import ProgramEnded
from testing.phantoms import phantom
from testing.phantoms.encoded import encode
from testing.serving import REPOSITORY, HilumEnded

RESULT = Path(__file__).parents[1] / "results" / "bench-campaign.json"
_PEERS = {"c-move", "peer"}
_OLD_BESIDE_LIVE = 60
MATERIAL = REPOSITORY / "state" / "bench-cpu"


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 they do not, 2 the run did not take place."""
    options = parse(words)
    try:
        return measure(options)
    except (
        HilumEnded,
        PeerEnded,
        ProgramEnded,
        subprocess.CalledProcessError,
        NotFinished,
        RunBroken,
        ConfigurationError,
        OSError,
    ) as error:
        print(f"no measurement: {error}", file=sys.stderr)
        return 2


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = command_line.parser("load_tests.campaign.run", __doc__)
    add = parser.add_argument
    add("--rounds", type=int, default=3, help="(%(default)s)")
    add("--studies", type=int, default=60, help="of two images, in each turn (%(default)s)")
    add("--live", type=int, default=20, help="live studies, without and with (%(default)s)")
    add("--planned", type=int, default=100_000, help="series of the large plan (%(default)s)")
    add("--rows", type=int, default=2500, help="(%(default)s)")
    add("--columns", type=int, default=2048, help="(%(default)s)")
    add("--systems", nargs="*", default=list(SYSTEMS), choices=list(SYSTEMS))
    add("--result", type=Path, default=RESULT, help="(%(default)s)")
    return parser.parse_args(words)


def measure(options: argparse.Namespace) -> int:
    """All rounds, printed and written."""
    made = material.make(MATERIAL)
    with _folder() as folder:
        say(f"drawing {options.studies} studies of 2 images, {options.rows}x{options.columns}")
        studies = folder / "studies"
        files = archives.draw(studies, options.studies, options.rows, options.columns)
        rounds = [
            _round(number, Task(folder, files, studies, made), options)
            for number in range(1, options.rounds + 1)
        ]
        beside = _live(folder, made, options)
        many = _planned(options)
    kept = goals(rounds, beside, many)
    write(options, rounds, beside, many, kept, made)
    for goal in kept:
        print(f"{goal.name:48} {goal.value:10.3f} {goal.unit:4} goal {goal.goal:g}")
    say(f"written: {options.result}")
    return 0 if all(goal.holds for goal in kept) else 1


def _round(number: int, task: Task, options: argparse.Namespace) -> dict[str, Rate]:
    found: dict[str, Rate] = {}
    for name in options.systems:
        os.sync()  # what the last system has written is not the next one's work
        with _folder() as folder:
            rate = SYSTEMS[name](Task(folder, task.files, task.studies, task.material))
        found[name] = rate
        say(
            f"round {number}, {name}: {rate.images_per_second:.2f} images/s,"
            f" {rate.cpu_seconds * 1000:.0f} ms of CPU an image"
        )
    return found


def _live(folder: Path, made: material.Material, options: argparse.Namespace) -> LiveFigures | None:
    if not options.live:
        return None
    # A campaign that lasts as long as the live studies; a quarter of the size, for the disk's sake.
    old = folder / "old"
    rows = options.rows // 2
    columns = options.columns // 2
    files = archives.draw(old, options.live * _OLD_BESIDE_LIVE, rows, columns)
    mix = folder / "mix"
    mix.mkdir()
    drawn = phantom.make_study(7, views=("PA", "AP"), rows=options.rows, columns=options.columns)
    Mix((Part(1.0, CALLING_AE_TITLE, (tuple(encode(image) for image in drawn),)),)).save(mix)
    with _folder() as place:
        found = live(Task(place, files, old, made), mix, options.live, 0.5)
    say(f"live: a campaign adds {found.added_p95 * 1000:.0f} ms to the 95th percentile")
    return found


def _planned(options: argparse.Namespace) -> PlannedFigures | None:
    if not options.planned:
        return None
    with _folder() as place:
        found = planned.planned(place / "many", options.planned)
    say(
        f"{found.series} planned series: status in {found.status_seconds:.2f} s,"
        f" {found.status_cpu_seconds:.2f} s of CPU"
    )
    return found


def goals(
    rounds: Sequence[Mapping[str, Rate]], beside: LiveFigures | None, many: PlannedFigures | None
) -> list[Goal]:
    """The figures that are held against a bound; ratios within one round."""
    kept = []
    for name in ("files", "c-move"):
        ratios = [
            found[name].images_per_second / found["bare"].images_per_second
            for found in rounds
            if {"bare", name} <= found.keys()
        ]
        if ratios:
            kept.append(Goal(f"{name}, of the bare rate", median(ratios), "", 0.9, at_most=False))
    kept += _beside_the_peer(rounds)
    if beside is not None:
        kept.append(Goal("added to the live p95", beside.added_p95 * 1000, "ms", 100.0))
    if many is not None:
        kept.append(Goal("status of the large plan", many.status_seconds, "s", 1.0))
        kept.append(Goal("memory of that status", many.status_mebibytes, "MiB", 200.0))
    return kept


def _beside_the_peer(rounds: Sequence[Mapping[str, Rate]]) -> list[Goal]:
    both = [(found["c-move"], found["peer"]) for found in rounds if found.keys() >= _PEERS]
    if not both:
        return []
    by_rate = median(own.images_per_second / peer.images_per_second for own, peer in both)
    by_cpu = median(own.cpu_seconds / peer.cpu_seconds for own, peer in both)
    return [
        Goal("c-move, of the peer's rate", by_rate, "", 1.0, at_most=False),
        Goal("c-move, of the peer's CPU an image", by_cpu, "", 1.0),
    ]


def write(
    options: argparse.Namespace,
    rounds: Sequence[Mapping[str, Rate]],
    beside: LiveFigures | None,
    many: PlannedFigures | None,
    kept: Sequence[Goal],
    made: material.Material,
) -> None:
    """Figures with the circumstances in which they are true."""
    content: dict[str, Any] = {
        "what": "campaigns beside a full queue, live studies and movescu with Python workers",
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **circumstances(),
        **made.built.about_precision(),
        "settings": {name: value for name, value in vars(options).items() if name != "result"},
        "rounds": [{name: asdict(rate) for name, rate in found.items()} for found in rounds],
        "live": None if beside is None else asdict(beside),
        "planned": None if many is None else asdict(many),
        "goals": [goal.as_json() for goal in kept],
    }
    options.result.parent.mkdir(parents=True, exist_ok=True)
    options.result.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(
        prefix="hilum-bench-campaign-", ignore_cleanup_errors=True
    ) as folder:
        yield Path(folder)


def say(text: str) -> None:
    """Progress."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

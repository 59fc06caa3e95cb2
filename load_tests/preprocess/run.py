"""`make bench-preprocess`: from a file, or from stored values, to the model's tensor on one core.

Ours beside the authors' code path.

    python -m load_tests.preprocess.run [--quick] [--rounds 7] [--result
    load_tests/results/bench-preprocess.json]

Both sides take turns in one process that is pinned to one core, with one thread of torch. A round
gives CPU seconds of either side and their ratio; the table has medians of all rounds. Files are in
the page cache. A GPU is measured by `make gpu-proof`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from load_tests.load import command_line
from load_tests.load.measure import Goal, circumstances
from load_tests.preprocess.cases import Case, cases
from load_tests.preprocess.syntaxes import plugins_for

RESULT = Path(__file__).parents[1] / "results" / "bench-preprocess.json"
_OURS_A_ROUND = 5
_CODEC_A_ROUND = 3
_WORKERS = 2
_WORKERS_GOAL = 1.6
_EXACT = 0.3  # of ±1024: fp16 has steps of 0.5 below 1024


@dataclass(frozen=True, slots=True)
class Row:
    """Medians over the rounds, milliseconds of CPU; `error` is the largest difference on ±1024.

    `codec_ms`: our decoder alone. `decoder`: their plug-in of pydicom, "" where pixels are not compressed.
    """

    name: str
    theirs_ms: float
    ours_ms: float
    ratio: float
    ratios: tuple[float, ...]
    error: float
    rms: float
    goal: float | None
    codec_ms: float | None
    decoder: str


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 one does not."""
    options = _parser().parse_args(words)
    around = circumstances()
    size, square = ((640, 512), 512) if options.quick else ((2500, 2048), 2048)
    with tempfile.TemporaryDirectory() as folder:
        found_workers = workers(Path(folder), size, options.seconds)
        _alone_on_a_core()
        rows = [
            measured(case, options.rounds) for case in measurable(cases(Path(folder), size, square))
        ]
    goals = goals_of(rows, found_workers)
    show(rows, goals)
    _write(options.result, as_json(rows, goals, found_workers, around, size))
    return 0 if all(goal.holds for goal in goals) else 1


def _parser() -> argparse.ArgumentParser:
    parser = command_line.parser("load_tests.preprocess.run", __doc__)
    parser.add_argument("--rounds", type=int, default=7, help="(%(default)s)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=10.0,
        help="of one and of two workers (%(default)s)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="small pictures: whether it runs, not how fast"
    )
    parser.add_argument("--result", type=Path, default=RESULT, help="(%(default)s)")
    return parser


def _alone_on_a_core() -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    torch.set_num_threads(1)


def measurable(wanted: Sequence[Case]) -> list[Case]:
    """Without those that the authors' side cannot decode here as it is meant to."""
    kept = []
    for case in wanted:
        if case.decoder is None or case.decoder[1] in plugins_for(case.decoder[0]):
            kept.append(case)
        else:
            print(
                f"left out: {case.name}: pydicom has no plug-in {case.decoder[1]} here; see"
                " docs/models/preprocessing.md",
                file=sys.stderr,
            )
    return kept


def measured(case: Case, rounds: int) -> Row:
    """One case, its sides in turns. All run once before."""
    theirs = case.theirs().astype(np.float64)
    ours = case.ours().astype(np.float64)
    difference = np.abs(theirs - ours)
    seconds = [_round(case) for _ in range(rounds)]
    ratios = tuple(slow / fast for slow, fast, _ in seconds)
    slow, fast, codec = (1000 * statistics.median(side) for side in zip(*seconds, strict=True))
    return Row(
        name=case.name,
        theirs_ms=slow,
        ours_ms=fast,
        ratio=statistics.median(ratios),
        ratios=ratios,
        error=float(difference.max()),
        rms=float(np.sqrt((difference**2).mean())),
        goal=case.goal,
        codec_ms=codec if case.codec else None,
        decoder=case.decoder[1] if case.decoder else "",
    )


def _round(case: Case) -> tuple[float, float, float]:
    """CPU seconds of theirs, of ours, of the decoder alone (0: none)."""
    theirs = _cpu_seconds(case.theirs)
    ours = statistics.median(_cpu_seconds(case.ours) for _ in range(_OURS_A_ROUND))
    codec = (
        statistics.median(_cpu_seconds(case.codec) for _ in range(_CODEC_A_ROUND))
        if case.codec
        else 0.0
    )
    return theirs, ours, codec


def _cpu_seconds(run: Any) -> float:  # noqa: ANN401 - any callable
    began = time.process_time()
    run()
    return time.process_time() - began


def workers(folder: Path, size: tuple[int, int], seconds: float) -> dict[str, float]:
    """Images a second of one and of two spawned processes, each on a core of its own, from little endian files to tensors."""
    cores = sorted(os.sched_getaffinity(0))[-_WORKERS:]
    if len(cores) < _WORKERS:
        return {}
    cases(folder, size, 64)  # the files
    rates = {}
    for name, used in (("one", cores[-1:]), ("two", cores)):
        with multiprocessing.get_context("spawn").Pool(len(used)) as pool:
            rates[name] = sum(
                pool.starmap(_worker, [(core, folder, seconds) for core in used], chunksize=1)
            )
    return rates


def _worker(core: int, folder: Path, seconds: float) -> float:
    from load_tests.preprocess.cases import little_endian  # noqa: PLC0415 - in the spawned process

    os.sched_setaffinity(0, {core})
    torch.set_num_threads(1)
    run = little_endian(folder)
    run()
    time.sleep(0.5)  # the others start up meanwhile
    count = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        run()
        count += 1
    return count / (time.perf_counter() - began)


def goals_of(rows: Sequence[Row], rates: Mapping[str, float]) -> list[Goal]:
    """Those of the rows, of their error, and of two workers where there are two cores."""
    found = [
        Goal(row.name, row.ratio, "times", row.goal, at_most=False)
        for row in rows
        if row.goal is not None
    ]
    exact = [row.error for row in rows if "reduced" not in row.name]
    found.append(
        Goal("largest error of an exact row, of ±1024 and after fp16", max(exact), "levels", _EXACT)
    )
    if rates:
        found.append(
            Goal(
                "two workers against one",
                rates["two"] / rates["one"],
                "times",
                _WORKERS_GOAL,
                at_most=False,
            )
        )
    return found


def show(rows: Sequence[Row], goals: Sequence[Goal]) -> None:
    """For a person."""
    print(
        f"{'milliseconds of CPU':42}{'theirs':>9}{'by':>11}{'ours':>9}{'ratio':>8}{'codec':>9}{'at most':>9}{'max err':>9}"
    )
    for row in rows:
        codec, at_most = (
            (f"{row.codec_ms:9.2f}", f"{row.theirs_ms / row.codec_ms:9.2f}")
            if row.codec_ms
            else ("", "")
        )
        left = (
            f"{row.name:42}{row.theirs_ms:9.1f}{row.decoder:>11}{row.ours_ms:9.2f}{row.ratio:8.2f}"
        )
        print(f"{left}{codec:>9}{at_most:>9}{row.error:9.3f}")
    for goal in goals:
        bound = f"{'<=' if goal.at_most else '>='} {goal.goal:g}"
        print(
            f"{'holds ' if goal.holds else 'BROKEN'} {goal.name}: {goal.value:.3g} {goal.unit}"
            f" ({bound})"
        )


def as_json(
    rows: Sequence[Row],
    goals: Sequence[Goal],
    rates: Mapping[str, float],
    around: Mapping[str, Any],
    size: tuple[int, int],
) -> dict[str, Any]:
    """The result file."""
    return {
        "what": (
            "CPU of one core from stored values or from a file to the tensor of torchxrayvision,"
            " the authors' code path beside ours"
        ),
        **around,
        "size": list(size),
        "rows": [
            {**asdict(row), "ratios": [round(ratio, 2) for ratio in row.ratios]} for row in rows
        ],
        "workers_images_per_second": dict(rates),
        "goals": [goal.as_json() for goal in goals],
    }


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"measured_at": datetime.now(UTC).isoformat(timespec="seconds"), **content}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

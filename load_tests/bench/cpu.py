"""`make bench-cpu`: where the CPU of an image goes, by stage and by process, for a 10 MB and a 0.5 MB image; idle, at work, busy, flat out.

It starts a Hilum of its own with DenseNet-121 in OpenVINO (bf16 or f32, whichever costs this CPU
less), is its sender and its PACS, and leaves both out of the figures. Results, with those of
earlier runs, in
`load_tests/results/bench-cpu.json`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pydicom import Dataset

from hilum.errors import ConfigurationError
from hilum.models.build import precision_speed
from load_tests.bench.cpu_engine import build_fastest, count_engine
from load_tests.bench.cpu_result import Measured, goals, record, show
from load_tests.bench.cpu_stages import Window, rows
from load_tests.bench.cpu_street import Street
from load_tests.load import command_line
from load_tests.load.measure import circumstances
from load_tests.load.mix import Mix, Part
from load_tests.peer import phases
from testing.accounting import Accountant
from testing.network.sender import CALLING_AE_TITLE
from testing.network.senders import SendersEnded
from testing.phantoms import phantom
from testing.phantoms.encoded import encode
from testing.serving import REPOSITORY, HilumEnded

RESULT = Path(__file__).parents[1] / "results" / "bench-cpu.json"
BENCH_FOLDER = REPOSITORY / "state" / "bench-cpu"


@dataclass(frozen=True, slots=True)
class Size:
    """An image's size: two bytes a pixel."""

    name: str
    rows: int
    columns: int


SIZES = (Size("10 MB", 2500, 2048), Size("0.5 MB", 512, 512))


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 they do not, 2 the run did not take place."""
    options = parse(words)
    try:
        around = circumstances()
        measured = measure(options)
    except (
        HilumEnded,
        ConfigurationError,
        SendersEnded,
        phases.RunBroken,
        subprocess.CalledProcessError,
        OSError,
    ) as error:
        print(f"no measurement: {error}", file=sys.stderr)
        return 2
    show(measured)
    if options.result is not None:
        record(options.result, measured, around, vars(options))
    return 0 if all(goal.holds for goal in goals(measured)) else 1


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = command_line.parser("load_tests.bench.cpu", __doc__)
    add = parser.add_argument
    add("--studies", type=int, default=50, help="studies of two images of each size (%(default)s)")
    add("--rate", type=float, default=1.5, help="studies a second (%(default)s)")
    add(
        "--busy-rate",
        type=float,
        default=8.0,
        help="studies a second, once more: stages share their work; 0: not at all (%(default)s)",
    )
    add(
        "--flat-out",
        type=int,
        default=400,
        help="studies as fast as Hilum takes them; 0: none (%(default)s)",
    )
    add("--outstanding", type=int, default=40, help="of those, on their way at once (%(default)s)")
    add(
        "--idle",
        type=float,
        default=20.0,
        help="how long Hilum is left alone, seconds (%(default)s)",
    )
    add(
        "--precision",
        choices=precision_speed.PRECISIONS,
        help="of the model (default: the one that costs this CPU the least)",
    )
    add("--result", type=Path, default=RESULT, help="(%(default)s)")
    return parser.parse_args(words)


def measure(options: argparse.Namespace) -> Measured:
    """Idle, then each size at the usual rate, at the busy one, and as many as Hilum takes."""
    built = build_fastest(BENCH_FOLDER, options.precision)
    count_engine(built)
    with ExitStack() as stack:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="hilum-cpu-", ignore_cleanup_errors=True)
        )
        street = stack.enter_context(Street(Path(folder), built))
        accountant = stack.enter_context(Accountant(street.pid))
        studies = {size.name: studies_of(size) for size in SIZES}
        for of_size in studies.values():
            street.send(of_size, 4, options.rate)
        say(f"idle for {options.idle:g} s")
        street.settle()
        idle = street.watched(accountant, lambda: time.sleep(options.idle))
        loads: dict[str, Window] = {}
        for at, rate in {"": options.rate, f" {options.busy_rate:g}/s": options.busy_rate}.items():
            for name, of_size in studies.items() if rate else ():
                say(f"{options.studies} studies of two images of {name}, {rate:g} a second")
                loads[name + at] = street.watched(
                    accountant,
                    partial(street.send, of_size, options.studies, rate),
                    2 * options.studies,
                )
        for name, of_size in studies.items() if options.flat_out else ():
            loads[f"{name} flat out"] = flat_out(street, accountant, of_size, options)
    return Measured(
        idle,
        {name: rows(load, idle) for name, load in loads.items()},
        loads,
        built.release.id,
        built.about_precision(),
    )


def flat_out(
    street: Street,
    accountant: Accountant,
    of_size: Sequence[Sequence[Dataset]],
    options: argparse.Namespace,
) -> Window:
    """As many studies as Hilum takes.

    A few before them, so that its sender's associations are there.
    """
    say(f"{options.flat_out} studies of two images, {options.outstanding} on their way at once")
    with tempfile.TemporaryDirectory(prefix="hilum-cpu-", ignore_cleanup_errors=True) as folder:
        Mix(
            (Part(1.0, CALLING_AE_TITLE, tuple(tuple(map(encode, study)) for study in of_size)),)
        ).save(Path(folder))
        with street.offering(Path(folder)) as offering:
            phases.warm_up(offering, 4)
            return street.watched(
                accountant,
                partial(offering.send, options.flat_out, options.outstanding),
                2 * options.flat_out,
            )


def studies_of(size: Size) -> list[list[Dataset]]:
    """Two frontal images a study: the release reads no others."""
    say(f"drawing images of {size.name}")
    return [
        phantom.make_study(seed, views=("PA", "AP"), rows=size.rows, columns=size.columns)
        for seed in range(2)
    ]


def say(text: str) -> None:
    """Progress."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

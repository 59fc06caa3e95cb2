"""`make capacity`: what a number of studies a day needs. docs/capacity.md.

    python -m load_tests.capacity.run --studies 50000 --images 2 --peak 3

Costs are read from the committed files in load_tests/results. Nothing is measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from load_tests.capacity.measured import NETWORKS, RESULTS, SYNTAXES, read
from load_tests.capacity.plan import Demand, UnitSupply
from load_tests.capacity.tables import terminal
from load_tests.load import command_line


def main(words: Sequence[str] | None = None) -> int:
    """Print the plan; exit code 0."""
    options = parsed(words)
    costs = read(options.results)
    image_mb = costs.image_mb.value if options.image_mb is None else options.image_mb
    demand = Demand(
        studies=options.studies,
        images=options.images,
        peak=options.peak,
        image_mb=round(image_mb, 3),
        retention_days=options.retention_days,
        network=options.network,
        syntax=options.syntax,
    )
    supply = UnitSupply(
        cores=options.cores,
        gbit=options.gbit,
        gpu_images=options.gpu_images,
        archive_mb=options.archive_mb,
        sync_ms=options.sync_ms,
        cpu_ceiling=options.cpu_ceiling,
        other_ceiling=options.other_ceiling,
    )
    print("\n".join(terminal(demand, supply, costs)))
    return 0


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the options. Exits with a message where one makes no sense."""
    parser = command_line.parser("load_tests.capacity.run", __doc__)
    _of_demand(parser)
    _of_supply(parser)
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the result files")
    return parser.parse_args(words)


def _of_demand(parser: argparse.ArgumentParser) -> None:
    usual = Demand(1.0)
    add = parser.add_argument
    add("--studies", type=_positive, default=10_000.0, help="a day (%(default)s)")
    add("--images", type=_positive, default=usual.images, help="a study (%(default)s)")
    add("--peak", type=_at_least_one, default=usual.peak, help="hour over the mean (%(default)s)")
    add("--image-mb", type=_positive, help="10^6 bytes of an image (that of load-steady.json)")
    add("--retention-days", type=_positive, default=usual.retention_days, help="(%(default)s)")
    add("--network", choices=sorted(NETWORKS), default=usual.network, help="(%(default)s)")
    add("--syntax", choices=sorted(SYNTAXES), default=usual.syntax, help="(%(default)s)")


def _of_supply(parser: argparse.ArgumentParser) -> None:
    usual = UnitSupply()
    add = parser.add_argument
    add("--cores", type=int, choices=range(1, 1025), metavar="N", default=usual.cores, help="of a host (%(default)s)")  # fmt: skip
    add("--gbit", type=_positive, default=usual.gbit, help="of a host's port (%(default)s)")
    add("--gpu-images", type=_positive, help="images/s of a GPU (published: an RTX 3090)")
    add("--archive-mb", type=_positive, default=usual.archive_mb, help="MB/s (%(default)s)")
    add("--sync-ms", type=_positive, default=usual.sync_ms, help="of a commit (%(default)s)")
    add("--cpu-ceiling", type=_share, default=usual.cpu_ceiling, help="of 1 (%(default)s)")
    add("--other-ceiling", type=_share, default=usual.other_ceiling, help="of 1 (%(default)s)")


def _positive(word: str) -> float:
    return _number(word, lambda value: 0 < value < float("inf"), "a number above 0")


def _at_least_one(word: str) -> float:
    return _number(word, lambda value: 1 <= value <= 24, "a number from 1 to 24")


def _share(word: str) -> float:
    return _number(word, lambda value: 0 < value <= 1, "a share above 0 and up to 1")


def _number(word: str, fits: Callable[[float], bool], wanted: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = float("nan")
    if not fits(value):
        raise argparse.ArgumentTypeError(f"{word!r} is not {wanted}")
    return value


if __name__ == "__main__":
    sys.exit(main())

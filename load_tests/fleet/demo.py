"""`make demo-fleet`: studies come in, a host loses its power before your eyes, others take over.

`python -m load_tests.fleet.demo [--lose HOST] [--screen FILE]` ends by itself. Its exit status
follows the verdict: 0, or 1: a promise was broken, or 2: it cannot run here.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from load_tests.fleet.fleet import Fleet, load
from load_tests.fleet.host import HostDown
from load_tests.fleet.isolation import problem, run_alone
from load_tests.fleet.steadiness import Steadiness
from load_tests.fleet.table import WIDTH, FleetTable, every_second
from load_tests.fleet.topology import SERVERS
from load_tests.proof.street.street import NotQuiet
from load_tests.proof.verdict import Verdict
from testing.tiny_release import make_tiny

_RATE = 1.5
_BEFORE_SECONDS = 12.0
_AFTER_SECONDS = 25.0
_STEADY_SECONDS = 60.0
_DRAIN_SECONDS = 60.0
_INSIDE = "--inside"


def main(given: Sequence[str] | None = None) -> int:
    """Outside: makes a folder and the namespaces. Inside: the demo."""
    words = sys.argv[1:] if given is None else list(given)
    options = parse(words)
    if options.inside is not None:
        return inside(options)
    if reason := problem():
        print(f"demo-fleet: {reason}", file=sys.stderr)
        return 2
    # Unwinds, so that no folder stays.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="hilum-fleet-"))
    try:
        status = run_alone("load_tests.fleet.demo", [*words, _INSIDE, str(folder)])
    except KeyboardInterrupt:
        status = 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return status


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make demo-fleet", description=__doc__)
    names = [spec.name for spec in SERVERS]
    parser.add_argument("--lose", default="analyse1", choices=names, help="(%(default)s)")
    parser.add_argument("--screen", type=Path, help="keep the last screen in this file")
    parser.add_argument(_INSIDE, type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(words)


def inside(options: argparse.Namespace) -> int:
    """In the namespaces."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder: Path = options.inside
    say("starting thirteen hosts, each in namespaces of its own; about a minute")
    try:
        with Fleet(folder, make_tiny(folder / "release"), say=say) as fleet:
            lines, is_good = show(fleet, options.lose)
    except (NotQuiet, HostDown) as error:
        print(f"demo-fleet: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print("\n".join(lines), flush=True)
    if options.screen:
        options.screen.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if is_good else 1


def show(fleet: Fleet, lost: str) -> tuple[list[str], bool]:
    """The last screen under load with the verdict, and whether every promise was kept.

    Raises NotQuiet.
    """
    router = fleet.router(1, load(_RATE))
    table = FleetTable(fleet, router)
    router.start()
    table.note("the sender begins, by the address of the balancer")
    every_second(table, _BEFORE_SECONDS)
    with Steadiness(fleet, router) as steadiness:
        fleet.hosts[lost].power_off()
        table.note(f"{lost} loses its power")
        every_second(table, _AFTER_SECONDS)
        is_steady = every_second(table, _STEADY_SECONDS, steadiness.is_calm)
        state = "steady" if is_steady else "still unsteady"
        table.note(f"{state} {steadiness.seconds:.0f} s after the loss; the sender ends")
        table.draw()
        under_load = table.last
    began = time.monotonic()
    router.finish(_DRAIN_SECONDS)
    every_second(table, _DRAIN_SECONDS, fleet.is_quiet)
    fleet.wait_until_quiet(_DRAIN_SECONDS)
    reported = f"all is reported {time.monotonic() - began:.0f} s later"
    seconds = f"{steadiness.seconds}" if is_steady else "none"
    lines, is_kept = judged(fleet.verdict(), len(fleet.acknowledged()), seconds)
    return [*under_load, reported, "", *lines], is_kept


def judged(verdict: Verdict, acknowledged: int, seconds: str) -> tuple[list[str], bool]:
    """The verdict for people, and whether every promise was kept.

    Where no image was acknowledged, none was tested.
    """
    is_kept = verdict.is_clean and acknowledged > 0
    numbers = {
        "images acknowledged": acknowledged,
        "images lost": len(verdict.lost),
        "studies without a report": len(verdict.unreported),
        "reports twice with other content": len(verdict.contradicting),
        "stuck rows": len(verdict.stuck),
        "seconds to the steady state": seconds,
    }
    lines = [f"{name:<34}{value:>8}" for name, value in numbers.items()]
    lines += [line[:WIDTH] for line in verdict.examples()]
    return [*lines, "KEPT: nothing was lost" if is_kept else "BROKEN: see above"], is_kept


def say(text: str) -> None:
    """Progress, at most 80 columns."""
    print(f"{time.strftime('%H:%M:%S')}  {text}"[:WIDTH], flush=True)


if __name__ == "__main__":
    sys.exit(main())

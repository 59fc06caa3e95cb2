"""`make proof`: faults under load.

`python -m load_tests.proof [PART …] [--short] [--seed N]`; without a part all but image and air_gap.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from load_tests.proof import results
from load_tests.proof.container.run import air_gap, image
from load_tests.proof.destinations.run import destinations
from load_tests.proof.fleet import fleet, fleet_delivery, two_hosts
from load_tests.proof.fuzz.run import fuzz
from load_tests.proof.listeners.disk import listener_disk
from load_tests.proof.listeners.kills import listener_kills
from load_tests.proof.listeners.power import power
from load_tests.proof.part import Outcome, Part, Plan, outcome_of
from load_tests.proof.settings import MANY_LAPSES
from load_tests.proof.street import disk
from load_tests.proof.street.disk import disk_full, ledger_full, ledger_settings, state_settings
from load_tests.proof.street.kills import kills
from load_tests.proof.street.locked import ledger_locked
from load_tests.proof.street.pacs_faults import TIMEOUT_SECONDS, pacs_down, pacs_times_out
from load_tests.proof.street.power import power_street
from load_tests.proof.street.rolling_restart import rolling_restart
from load_tests.proof.street.soak import LOAD, soak
from load_tests.proof.street.triton_deaths import DEADLINE_SECONDS, triton_deaths
from testing.tiny_release import Tiny, make_tiny

PARTS: Mapping[str, Part] = {
    "kills": Part(kills, lambda _: MANY_LAPSES),
    "triton": Part(triton_deaths, lambda _: {"analyse": {"deadline_seconds": DEADLINE_SECONDS}}),
    "pacs_down": Part(pacs_down, timeout_seconds=TIMEOUT_SECONDS),
    "pacs_times_out": Part(pacs_times_out, timeout_seconds=TIMEOUT_SECONDS),
    "disk_full": Part(disk_full, state_settings, disk.LOAD, disk=disk.STATE),
    "ledger_full": Part(ledger_full, ledger_settings, disk=disk.LEDGER),
    "ledger_locked": Part(ledger_locked),
    "rolling_restart": Part(rolling_restart),
    "soak": Part(soak, lambda _: {"log": {"level": "warning"}}, LOAD),
}
# Without a street, of Hilum only listeners; or with one on a file system of its own.
ALONE: Mapping[str, Callable[[Plan], Outcome]] = {
    "air_gap": air_gap,
    "destinations": destinations,
    "fleet": fleet,
    "fleet_delivery": fleet_delivery,
    "fuzz": fuzz,
    "image": image,
    "listener": listener_kills,
    "listener_disk": listener_disk,
    "power": power,
    "power_street": power_street,
    "two_hosts": two_hosts,
}
NAMES = (*ALONE, *PARTS)
# Only where they are named: they ask Debian's mirror and the package index.
_WHEN_NAMED = frozenset({"air_gap", "image"})


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 they do not, 2 a part could not run here."""
    options = parse(words)
    folder = Path(tempfile.mkdtemp(prefix="hilum-proof-", dir=options.folder))
    say(f"working in {folder}")
    tiny = make_tiny(folder / "release")
    parts = options.parts or [name for name in NAMES if name not in _WHEN_NAMED]
    outcomes = [run(name, folder, tiny, options) for name in parts]
    if any(not outcome.holds for outcome in outcomes):
        say(f"kept for a look: {folder}")
        return 1
    shutil.rmtree(folder)
    return 2 if any(outcome.left_out for outcome in outcomes) else 0


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="load_tests.proof", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(NAMES))
    parser.add_argument("--short", action="store_true", help="seconds instead of minutes a part")
    parser.add_argument(
        "--seed", type=int, default=1, help="of the faults and the studies (%(default)s)"
    )
    parser.add_argument(
        "--folder", type=Path, help="where to work (the system's folder for temporary files)"
    )
    parser.add_argument("--result", type=Path, default=results.RESULT, help="(%(default)s)")
    options = parser.parse_args(words)
    if unknown := [name for name in options.parts if name not in NAMES]:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return options


def run(name: str, folder: Path, tiny: Tiny, options: argparse.Namespace) -> Outcome:
    """One part, printed and written."""
    say(name)
    begin = time.monotonic()
    plan = Plan(folder / name, tiny, options.seed, options.short, say)
    outcome = ALONE[name](plan) if name in ALONE else outcome_of(PARTS[name], plan)
    seconds = time.monotonic() - begin
    results.merge(
        options.result,
        name,
        results.section(outcome, options.seed, seconds, is_short=options.short),
    )
    print(
        "\n".join(
            [f"  left out: {outcome.left_out}"]
            if outcome.left_out
            else results.lines(outcome.goals)
        )
    )
    print("".join(f"  {line}\n" for line in outcome.problems), end="")
    say(f"{name}: {seconds:.0f} s")
    return outcome


def say(text: str) -> None:
    """Progress, at most 80 columns."""
    print(f"{time.strftime('%H:%M:%S')}  {text}"[:80], flush=True)


if __name__ == "__main__":
    sys.exit(main())

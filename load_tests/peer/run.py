"""`make load-peer`: Hilum beside what somebody would build today, on the same studies, in turns.

`docs/figures/peer.md` describes the peer.

Each round starts each system afresh, one after the other: studies far apart, then as many as it
takes. Results in `results/load-peer.json`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pydicom

from hilum.errors import ConfigurationError
from hilum.models.build import precision_speed
from load_tests.load import command_line
from load_tests.load.measure import circumstances
from load_tests.load.mix import Mix, Part
from load_tests.peer import comparison, material, phases, result
from load_tests.peer.comparison import Measured, Round
from load_tests.peer.material import Material
from load_tests.peer.orthanc import Orthanc
from load_tests.peer.peer_system import PeerEnded
from load_tests.peer.report import scores_in
from load_tests.peer.systems import SYSTEMS, Pacs, Setting
from testing.accounting import Accountant
from testing.network.receiver import AE_TITLE, Receiver
from testing.network.sender import CALLING_AE_TITLE, Sender
from testing.network.senders import SendersEnded
from testing.peers import StoreScp
from testing.phantoms import phantom
from testing.phantoms.encoded import encode
from testing.serving import REPOSITORY, HilumEnded, free_ports

RESULT = Path(__file__).parents[1] / "results" / "load-peer.json"
# Where `make bench-cpu` keeps its model, too: both use the bundled one in the precision that the
# CPU does best.
MATERIAL = REPOSITORY / "state" / "bench-cpu"


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 they do not, 2 the run did not take place."""
    options = parse(words)
    try:
        return measure(options)
    except (
        HilumEnded,
        PeerEnded,
        SendersEnded,
        ConfigurationError,
        phases.RunBroken,
        OSError,
    ) as error:
        print(f"no measurement: {error}", file=sys.stderr)
        return 2


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = command_line.parser("load_tests.peer.run", __doc__)
    add = parser.add_argument
    add(
        "--rounds",
        type=int,
        default=5,
        help="(%(default)s); the first one favours the later one",
    )
    add(
        "--seconds",
        type=float,
        default=25.0,
        help="of saturation that count, in each round (%(default)s)",
    )
    add("--idle", type=int, default=6, help="studies far apart, in each round (%(default)s)")
    add(
        "--outstanding",
        type=int,
        default=40,
        help="studies on their way in saturation (%(default)s)",
    )
    add(
        "--associations",
        type=int,
        default=4,
        help="of the sender; Orthanc serves four at a time (%(default)s)",
    )
    add(
        "--wait",
        type=int,
        default=1,
        help="Hilum's quiet period and Orthanc's StableAge (%(default)s s)",
    )
    add("--rows", type=int, default=2500, help="(%(default)s)")
    add("--columns", type=int, default=2048, help="(%(default)s)")
    add(
        "--precision",
        choices=precision_speed.PRECISIONS,
        help="Hilum's and the informed peer's (default: what costs this CPU the least)",
    )
    add("--result", type=Path, default=RESULT, help="(%(default)s)")
    return parser.parse_args(words)


def measure(options: argparse.Namespace) -> int:
    """All rounds, printed and written."""
    around = circumstances() | about(options)
    made = material.make(MATERIAL, options.precision)
    around |= made.built.about_precision()
    say(f"drawing studies of 2 images, {options.rows}x{options.columns}")
    studies = [
        phantom.make_study(seed, views=("PA", "AP"), rows=options.rows, columns=options.columns)
        for seed in range(2)
    ]
    with tempfile.TemporaryDirectory(
        prefix="hilum-load-peer-", ignore_cleanup_errors=True
    ) as folder:
        Mix(
            (
                Part(
                    1.0,
                    CALLING_AE_TITLE,
                    tuple(tuple(encode(image) for image in study) for study in studies),
                ),
            )
        ).save(Path(folder))
        apart = same_reading({name: scores(name, made, studies[0], options) for name in SYSTEMS})
        rounds = [
            one_round(number, made, Path(folder), options)
            for number in range(1, options.rounds + 1)
        ]
    kept = comparison.goals(rounds)
    result.show(rounds, apart, kept)
    result.write(options.result, rounds, apart, kept, around)
    say(f"written: {options.result}")
    return 0 if all(goal.holds for goal in kept) else 1


def about(options: argparse.Namespace) -> dict[str, Any]:
    """What the figures depend on, beside machine and versions.

    Raises FileNotFoundError: no Orthanc.
    """
    if Orthanc.program() is None:
        raise FileNotFoundError("Orthanc is not installed (Debian package orthanc)")
    settings = {name: value for name, value in vars(options).items() if name != "result"}
    peer = {
        "orthanc": Orthanc.version(),
        **{name: version(name) for name in ("scikit-image", "urllib3")},
    }
    return {"cpu_flags": material.cpu_flags(), "peer_versions": peer, "settings": settings}


def same_reading(found: Mapping[str, comparison.Scores]) -> Mapping[str, float]:
    """How far each peer's scores are from Hilum's.

    Raises RunBroken: too far, so that it computes something else.
    """
    apart = comparison.differences(found)
    if strange := [
        f"{name} by {value:.3f}"
        for name, value in apart.items()
        if value > comparison.TOLERANCES[name]
    ]:
        raise phases.RunBroken(f"scores differ from Hilum's: {', '.join(strange)}")
    return apart


def scores(
    name: str, made: Material, study: Sequence[pydicom.Dataset], options: argparse.Namespace
) -> comparison.Scores:
    """What a system says about a study, read from the report that it sends."""
    say(f"{name}: reading one study")
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="hilum-load-peer-", ignore_cleanup_errors=True)
            )
        )
        pacs = stack.enter_context(StoreScp(folder / "pacs"))
        where = Pacs(int(pacs.settings["port"]), str(pacs.settings["ae_title"]))
        system = stack.enter_context(
            SYSTEMS[name](Setting(folder / name, made, where, options.wait))
        )
        Sender(system.address, [study], 1).run(rate=1.0, seconds=1.0)
        return scores_in(
            pydicom.dcmread(awaited_report(folder / "pacs" / "received", system.log_end))
        )


def awaited_report(folder: Path, log_end: Callable[[], str]) -> Path:
    """The first file in `folder`, once it no longer grows. Raises RunBroken."""
    deadline = time.monotonic() + 60
    size = -1
    while time.monotonic() < deadline:
        found = next(iter(folder.iterdir()), None)
        if found is not None and (now := found.stat().st_size) == size > 0:
            return found
        size = now if found is not None else -1
        time.sleep(0.2)
    raise phases.RunBroken(f"no report.\n{log_end()}")


def one_round(number: int, made: Material, mix_folder: Path, options: argparse.Namespace) -> Round:
    """Every system once."""
    found = {}
    for name in SYSTEMS:
        os.sync()  # what the last system has written is not the next one's work
        found[name] = one(name, made, mix_folder, options)
        say(f"round {number}, {name}: {result.line(found[name])}")
    return found


def one(name: str, made: Material, mix_folder: Path, options: argparse.Namespace) -> Measured:
    """One system, started for this, idle and saturated."""
    port = free_ports(1)[0]
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="hilum-load-peer-", ignore_cleanup_errors=True)
            )
        )
        receiver = stack.enter_context(Receiver(port))
        system = stack.enter_context(
            SYSTEMS[name](Setting(folder / name, made, Pacs(port, AE_TITLE), options.wait))
        )
        accountant = stack.enter_context(Accountant(system.pid, system.role_of))
        try:
            return observed(
                phases.Offering(system.address, mix_folder, receiver, options.associations),
                accountant,
                options,
            )
        except phases.RunBroken as error:
            raise phases.RunBroken(f"{name}: {error}\n{system.log_end()}") from error


def observed(
    offering: phases.Offering, accountant: Accountant, options: argparse.Namespace
) -> Measured:
    """Warmed up, left almost alone, and pressed."""
    with offering:
        phases.warm_up(offering, 4)
        time.sleep(options.wait + 1)
        idle = phases.idle(offering, options.idle, options.wait)
        saturation = phases.saturate(offering, accountant, options.outstanding, options.seconds)
        studies = offering.reported()
    return Measured(
        tuple(idle), saturation, offering.repeated, offering.generator_cpu_seconds / studies
    )


def say(text: str) -> None:
    """Progress."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""`make bench-ingest`: what receiving costs, interleaved with DCMTK's storescp on the same machine and the same files.

CPU seconds of the receiver are the figure to trust: wall time shares the cores with the senders,
and with other programs.
Ours include the rows in the ledger and a durable file and name; storescp's with the shim a durable
file; without it, none.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from load_tests.ingest import door as ingest_door
from load_tests.ingest.cells import CELLS, KINDS, LARGE_PDU, Cell, draw, lot, send
from load_tests.ingest.peers import (
    make_certificates,
    sink,
    start_orthanc,
    start_sink,
    start_storescp,
    sync_shim,
)
from load_tests.ingest.receivers import Receiver, start_hilum
from load_tests.ingest.result import (
    DCMTK,
    DCMTK_TLS,
    HILUM,
    HILUM_PLAIN,
    HILUM_TLS,
    HILUM_TWICE,
    HILUM_TWO,
    NAMES,
    ORTHANC,
    SINK,
    SYNCED,
    Run,
    goals,
    show,
    summary,
    write,
)
from load_tests.load.measure import circumstances
from testing.peers import Orthanc

RESULT = Path(__file__).parents[1] / "results" / "bench-ingest.json"
_SLOW = (ORTHANC,)
_TLS = (HILUM_TLS, DCMTK_TLS)
_MANY_ASSOCIATIONS = 16  # of fewer TLS costs the same, and a second process has little to do
_WARM = 16
Start = Callable[[Path], Receiver]


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 one does not."""
    options = _options(words)
    around = circumstances()
    with tempfile.TemporaryDirectory(prefix="bench-ingest-", dir=options.folder) as name:
        runs = _runs(options, Path(name))
        door = ingest_door.measured(Path(name), quick=options.quick)
    table = summary(runs)
    found = [*goals(table), *door.goals()]
    write(options.result, around, table, runs, found, asdict(door))
    show(table, found)
    return 0 if all(goal.holds for goal in found) else 1


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="load_tests.ingest.run", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument(
        "--large", type=int, default=32, help="objects of 10 MB a run (%(default)s)"
    )
    parser.add_argument(
        "--small", type=int, default=400, help="objects of 0.5 MB a run (%(default)s)"
    )
    parser.add_argument(
        "--kinds", nargs="+", default=list(KINDS), choices=KINDS, help="(%(default)s)"
    )
    parser.add_argument(
        "--associations", nargs="+", type=int, default=[1, 4, 16], help="at once (%(default)s)"
    )
    parser.add_argument(
        "--pdu-kib", nargs="+", type=int, default=[16, 128], help="PDUs of the sender (%(default)s)"
    )
    parser.add_argument(
        "--receivers", nargs="+", default=NAMES, choices=NAMES, help="(%(default)s)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="few objects, one round: to see that it runs"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="where files are drawn and received; default: the temporary folder",
    )
    parser.add_argument("--result", type=Path, default=RESULT, help="(%(default)s)")
    options = parser.parse_args(words)
    if options.quick:
        options.rounds = 1
        options.large = 16
        options.small = 32
    return options


def _runs(options: argparse.Namespace, folder: Path) -> list[Run]:
    cells = [cell for cell in CELLS if _is_wanted(cell, options)]
    drawn = {kind: draw(folder / kind, kind) for kind in {cell.kind for cell in cells}}
    programs = _programs(folder, options.receivers)
    runs: list[Run] = []
    for number, cell in enumerate(cells):
        files = lot(drawn[cell.kind], options.small if cell.kind == "small" else options.large)
        with _started(folder / f"cell-{number}", programs, cell) as receivers:
            for round_number in range(options.rounds):
                runs += [
                    measure(folder, name, receiver, cell, files)
                    for name, receiver in _turn(receivers, round_number)
                ]
    return runs


def _is_wanted(cell: Cell, options: argparse.Namespace) -> bool:
    return (
        cell.kind in options.kinds
        and cell.associations in options.associations
        and cell.pdu_bytes >> 10 in options.pdu_kib
    )


def _turn(receivers: Mapping[str, Receiver], number: int) -> list[tuple[str, Receiver]]:
    """Each round begins with another one.

    What comes before a run may leave something to its next.
    """
    items = list(receivers.items())
    first = number % len(items)
    return items[first:] + items[:first]


def _programs(folder: Path, names: Sequence[str]) -> dict[str, Start]:
    """Those that can be measured here."""
    found: dict[str, Start] = {
        HILUM: start_hilum,
        HILUM_PLAIN: lambda own: start_hilum(own, is_compiled=False),
        HILUM_TWICE: lambda own: start_hilum(own, durability="strict"),
        HILUM_TWO: lambda own: start_hilum(own, processes=2),
        DCMTK: start_storescp,
    }
    shim = sync_shim()
    program = sink()
    if shim is not None and program is not None:
        found |= {
            SYNCED: lambda own: start_storescp(own, shim),
            SINK: lambda own: start_sink(own, program),
        }
    if Orthanc.program():
        found[ORTHANC] = start_orthanc
    if (tls := make_certificates(folder)) is not None:
        found |= {
            HILUM_TLS: lambda own: start_hilum(own, tls, 2),
            DCMTK_TLS: lambda own: start_storescp(own, shim, tls),
        }
    return {name: start for name, start in found.items() if name in names}


def _takes_part(name: str, cell: Cell) -> bool:
    """The slow ones take half of the time, and TLS is measured in one condition only, a second process with many associations.

    In Python alone: where what is compiled is to help. With two commits of the journal: where there
    is little else to an object.
    """
    if name in _TLS:
        return cell.kind == "dx" and cell.associations == _MANY_ASSOCIATIONS and cell.is_wide
    if name == HILUM_PLAIN:
        return cell.kind == "dx" and cell.associations > 1 and not cell.is_study_each
    if name == HILUM_TWICE:
        return cell.kind == "small" and cell.pdu_bytes == LARGE_PDU
    if name == HILUM_TWO:
        return cell.associations == _MANY_ASSOCIATIONS and cell.pdu_bytes == LARGE_PDU
    return cell.is_wide or name not in _SLOW


@contextlib.contextmanager
def _started(
    folder: Path, programs: Mapping[str, Start], cell: Cell
) -> Iterator[dict[str, Receiver]]:
    """The receivers of one condition, warm."""
    wanted = {
        name: folder / str(number)
        for number, name in enumerate(programs)
        if _takes_part(name, cell)
    }
    for own in wanted.values():
        own.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(contextlib.closing(programs[name](own)))
            for name, own in wanted.items()
        }


def measure(folder: Path, name: str, receiver: Receiver, cell: Cell, files: Sequence[Path]) -> Run:
    """All files, after a few that only warm the receiver up."""
    total = sum(file.stat().st_size for file in files)
    stored = receiver.stored()
    send(files[:_WARM], cell, receiver)
    provide_pages(folder, total)
    wait_until(lambda: receiver.stored() >= stored + _WARM)
    before = receiver.cpu_seconds()
    stages_before = receiver.stages()
    began = time.monotonic()
    send(files, cell, receiver)
    seconds = time.monotonic() - began
    wait_until(lambda: receiver.stored() >= stored + _WARM + len(files))
    cpu = receiver.cpu_seconds() - before
    stages = {
        stage: 1000 * (spent - stages_before[stage]) / len(files)
        for stage, spent in receiver.stages().items()
    }
    receiver.empty()
    print(
        f"{cell}  {name:22} {len(files) / seconds:6.0f} instances/s  {1e9 * cpu / total:5.2f} CPU"
        " s/GB",
        flush=True,
    )
    return Run(cell, name, len(files) / seconds, 1e9 * cpu / total, 1000 * cpu / len(files), stages)


def wait_until(condition: Callable[[], bool]) -> None:
    """Look now and then."""
    while not condition():
        time.sleep(0.02)


def provide_pages(folder: Path, size: int) -> None:
    """Have the kernel own as much memory as the run needs.

    A virtual machine's host takes free pages back and gives them at a price.
    """
    fuel = folder / "fuel"
    with fuel.open("wb") as file:
        for _ in range(1 + int(1.4 * size) // (4 << 20)):
            file.write(bytes(4 << 20))
    fuel.unlink()


if __name__ == "__main__":
    sys.exit(main())

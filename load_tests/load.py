"""`make load`: phantom studies of two images at a constant rate by C-STORE; throughput, and percentiles from the last image to its SR.

It is itself the destination, and starts a Hilum of its own in a temporary folder. With `--to` it loads a Hilum that already runs; that one
must have a destination LOADTEST at this machine's `--listen` port, and accept untrained results where its weights are untrained.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from load_tests import phantom
from load_tests.measure import Figures, Goal, circumstances, figures, goals, percentiles
from load_tests.receiver import AE_TITLE, Receiver
from load_tests.sender import Peer, Sender
from load_tests.serving import Hilum, HilumEnded, free_ports

RESULTS = Path(__file__).with_name("results")


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 they do not, 2 the run did not take place."""
    options = parse(words)
    try:
        return measure(options)
    except (HilumEnded, subprocess.CalledProcessError, OSError) as error:
        print(f"no measurement: {error}", file=sys.stderr)
        return 2


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="load_tests.load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--rate", type=float, default=2.0, help="studies a second (%(default)s)")
    add("--seconds", type=float, default=30.0, help="how long studies are started (%(default)s)")
    add("--associations", type=int, default=4, help="associations of the sender (%(default)s)")
    add("--rows", type=int, default=1024, help="(%(default)s)")
    add("--columns", type=int, default=1024, help="(%(default)s)")
    add("--quiet", type=float, default=2.0, help="quiet period of the Hilum that is started; with --to: of that one (%(default)s s)")
    add("--release", action="append", help="release that reads the images; may be repeated (the settings' default)")
    add("--beyond-quiet", type=float, default=1.0, help="goal: p95 of last image to SR beyond the quiet period (%(default)s s)")
    add("--drain", type=float, default=60.0, help="how long to wait for the last reports (%(default)s s)")
    add("--to", type=Peer.parse, help="AET@host:port of a Hilum that runs")
    add("--listen", type=int, help="port of the destination; any free one where Hilum is started here")
    add("--result", type=Path, default=RESULTS / "load.json", help="(%(default)s)")
    options = parser.parse_args(words)
    if options.to is not None and options.listen is None:
        parser.error("--to needs --listen PORT: the port that the running Hilum's destination LOADTEST names")
    return options


def measure(options: argparse.Namespace) -> int:
    """One run, printed and written."""
    around = circumstances()
    say(f"drawing studies of 2 images, {options.rows}x{options.columns}")
    studies = [phantom.make_study(seed, rows=options.rows, columns=options.columns) for seed in range(4)]
    with ExitStack() as stack:
        port = options.listen or free_ports(1)[0]
        receiver = stack.enter_context(Receiver(port, "0.0.0.0" if options.to else "127.0.0.1"))  # noqa: S104 - the Hilum of --to may be another host
        peer = options.to or started(stack, options, port)
        warm_up(peer, studies, receiver, options)
        found = loaded(peer, studies, receiver, options)
    kept = goals(found, options.rate, options.quiet, options.beyond_quiet)
    show(found, kept, options)
    write(options.result, found, kept, around, options)
    return 0 if all(goal.holds for goal in kept) else 1


def started(stack: ExitStack, options: argparse.Namespace, port: int) -> Peer:
    """A Hilum of our own, ready, whose only destination is the receiver."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hilum-load-", ignore_cleanup_errors=True)))
    destination = {"kind": "dicom", "port": port, "ae_title": AE_TITLE, "accept_untrained": True}
    models = {"models": {"releases": options.release}} if options.release else {}
    hilum = Hilum(folder, {"loadtest": destination}, studies={"quiet_seconds": options.quiet}, log={"level": "warning"}, **models)
    hilum.write_settings()
    say("building models")
    subprocess.run(hilum.command("models", "build"), check=True)
    stack.enter_context(hilum)
    hilum.wait_until_ready(180, lambda missing: say(f"waiting for {missing}"[:100]))
    return Peer("HILUM", "127.0.0.1", hilum.dicom_port)


def warm_up(peer: Peer, studies: Sequence[Sequence[Any]], receiver: Receiver, options: argparse.Namespace) -> None:
    """A few studies that are not counted: first use of models, templates and associations. Raises HilumEnded where none is reported."""
    say("warming up")
    sender = Sender(peer, studies, 1)
    sender.run(rate=2.0, seconds=2.0)
    if not drained(sender, receiver, options.quiet + options.drain):
        reasons = ", ".join(sorted({study.failure for study in sender.sent if study.failure})) or "accepted, but no report came"
        raise HilumEnded(f"no report on the warm-up: {reasons}. Does its destination send here, and accept untrained results?")


def loaded(peer: Peer, studies: Sequence[Sequence[Any]], receiver: Receiver, options: argparse.Namespace) -> Figures:
    """The run that counts."""
    say(f"{options.rate:g} studies/s for {options.seconds:g} s over {options.associations} associations")
    sender, before, shown = Sender(peer, studies, options.associations), receiver.arrivals.count(), [time.monotonic()]

    def progress(started_studies: int) -> None:
        if time.monotonic() - shown[0] >= 5:
            shown[0] = time.monotonic()
            say(f"started {started_studies}, answered {len(sender.sent)}, reported {receiver.arrivals.count() - before}")

    sender.run(options.rate, options.seconds, progress)
    drained(sender, receiver, options.quiet + options.drain)
    return figures(sender.sent, receiver.arrivals)


def drained(sender: Sender, receiver: Receiver, seconds: float) -> bool:
    """Wait until every accepted study has its report; False: some have none after `seconds`, or none was accepted."""
    deadline = time.monotonic() + seconds
    accepted = [study for study in sender.sent if study.failure is None]
    while any(receiver.arrivals.first_after(study.study_instance_uid, study.ended_at) is None for study in accepted):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return bool(accepted)


def show(found: Figures, kept: Sequence[Goal], options: argparse.Namespace) -> None:
    """For a person."""
    print(
        f"\n{found.offered} studies offered, {found.accepted} accepted, {found.reported} reported; {found.studies_per_second:.2f} studies/s"
    )
    for reason in sorted(set(found.failures)):
        print(f"  not accepted: {found.failures.count(reason)} x {reason}")
    beyond = [latency - options.quiet for latency in found.last_image_to_sr]
    print(f"\n{'seconds':44}{'p50':>8}{'p90':>8}{'p95':>8}{'p99':>8}{'max':>8}")
    rows = {
        "last image accepted to SR": found.last_image_to_sr,
        f"the same beyond the quiet period ({options.quiet:g} s)": beyond,
        "intended start of the study to SR": found.intended_to_sr,
        "lateness of the sender": found.late_starts,
    }
    for name, values in rows.items():
        print(f"{name:44}" + "".join(f"{value:8.3f}" for value in percentiles(values).values()))
    print()
    for goal in kept:
        sign = "<=" if goal.at_most else ">="
        print(f"{'holds ' if goal.holds else 'BROKEN'}  {goal.name}: {goal.value:.3g} {goal.unit} ({sign} {goal.goal:g})")


def write(path: Path, found: Figures, kept: Sequence[Goal], around: dict[str, Any], options: argparse.Namespace) -> None:
    """`load.json`: figures with the circumstances that they are true in."""
    settings = {name: str(value) if isinstance(value, (Path, Peer)) else value for name, value in vars(options).items()}
    content = {
        "what": "phantom studies of two images at a constant rate by C-STORE, SR back by C-STORE",
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **around,
        "settings": settings,
        "studies": {"offered": found.offered, "accepted": found.accepted, "reported": found.reported},
        "repeated_reports": found.repeated,
        "studies_per_second": found.studies_per_second,
        "last_image_to_sr_seconds": percentiles(found.last_image_to_sr),
        "intended_start_to_sr_seconds": percentiles(found.intended_to_sr),
        "goals": [goal.as_json() for goal in kept],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    say(f"written: {path}")


def say(text: str) -> None:
    """Progress."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())

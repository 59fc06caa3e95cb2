"""`make load`: a scenario of studies by C-STORE against a Hilum, until the last report is back.

Throughput, latencies, queues, CPU, memory.

It is itself the destination PACS, and starts a Hilum of its own in a temporary folder. With `--to`
it loads a Hilum that already runs;
that one must have a destination LOADTEST at this machine's `--listen` port, and accept untrained
results where its weights are untrained.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from load_tests.load import command_line, outcome, phases, picture, scenario, studies, terminal
from load_tests.load.bundled import models_of
from load_tests.load.ground import Ground, NotMeasured
from load_tests.load.measure import circumstances
from load_tests.load.outcome import Outcome
from load_tests.load.scenario import Scenario, ScenarioError
from load_tests.load.terminal import say
from load_tests.load.watch import Watch
from testing.accounting import Accountant
from testing.network.peer_address import Peer
from testing.network.receiver import AE_TITLE, Receiver
from testing.network.senders import SendersEnded
from testing.serving import Hilum, HilumEnded, free_ports

RESULTS = Path(__file__).parents[1] / "results"
_ACCOUNT_SECONDS = (
    2.0  # Hilum's processes live long; to look more often would cost what the run measures
)


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 they do not, 2 the run did not take place."""
    options = parse(words)
    try:
        if options.scenario == "list":
            terminal.show_scenarios()
            return 0
        return run(chosen(options), options)
    except (
        NotMeasured,
        ScenarioError,
        SendersEnded,
        HilumEnded,
        subprocess.CalledProcessError,
        OSError,
    ) as error:
        print(f"no measurement: {error}", file=sys.stderr)
        return 2


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line. What is not given is as the scenario says."""
    parser = command_line.parser("load_tests.load.run", __doc__)
    add = parser.add_argument
    add("scenario", nargs="?", default="steady", help="a name, a TOML file, or list (%(default)s)")
    add("--seconds", type=float, help="how long the load lasts")
    add(
        "--rate",
        type=float,
        help="in the scenario's unit: studies/s, or multiples of the saturation",
    )
    add(
        "--release",
        help=(
            "release that reads the images; bundled: DenseNet-121, at bf16 or f32, whichever costs"
            " this CPU less"
        ),
    )
    add("--quiet", type=float, help="quiet period, s; with --to: of that Hilum")
    add("--to", type=Peer.parse, help="AET@host:port of a Hilum that runs")
    add(
        "--listen",
        type=int,
        help="port of the destination; any free one where Hilum is started here",
    )
    add("--metrics", help="with --to: the address of its metrics, http://host:8640/metrics")
    add("--token-file", type=Path, help="with --metrics: a file with a token of the scope read")
    add(
        "--result",
        type=Path,
        help="result file; its plots lie beside it (load_tests/results/load-SCENARIO.json)",
    )
    options = parser.parse_args(words)
    if options.to is not None and options.listen is None:
        parser.error(
            "--to needs --listen PORT: the port that the running Hilum's destination LOADTEST names"
        )
    return options


def chosen(options: argparse.Namespace) -> Scenario:
    """The scenario with what the command line changes. Raises ScenarioError."""
    found = scenario.read(options.scenario)
    changes: dict[str, Any] = {
        name: value
        for name in ("seconds", "release")
        if (value := getattr(options, name)) is not None
    }
    if options.rate is not None:
        changes["arrivals"] = found.arrivals.model_copy(update={"rate": options.rate})
    if options.quiet is not None:
        changes["hilum"] = {
            **found.hilum,
            "studies": {**found.hilum.get("studies", {}), "quiet_seconds": options.quiet},
        }
    return found.model_copy(update=changes)


def run(plan: Scenario, options: argparse.Namespace) -> int:
    """One run, printed and written."""
    around = circumstances()
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="hilum-load-", ignore_cleanup_errors=True)
            )
        )
        say("drawing and encoding the studies")
        mix = studies.make(plan.mix)
        mix.save(folder)
        found = measured(stack, plan, options, folder)
    path = options.result or RESULTS / f"load-{plan.name}.json"
    settings = {"command line": _plain(options), "mean_study_mb": round(mix.mean_bytes() / 1e6, 3)}
    write(path, found, outcome.as_json(found, around, settings))
    terminal.show(found)
    return 0 if all(goal.holds for goal in found.goals) else 1


def _headers(token_file: Path | None) -> dict[str, str]:
    return (
        {} if token_file is None else {"Authorization": f"Bearer {token_file.read_text().strip()}"}
    )


def measured(
    stack: ExitStack, plan: Scenario, options: argparse.Namespace, folder: Path
) -> Outcome:
    """All phases. Raises NotMeasured."""
    port = options.listen or free_ports(1)[0]
    receiver = stack.enter_context(Receiver(port, "0.0.0.0" if options.to else "127.0.0.1"))  # noqa: S104 - the Hilum of --to may be another host
    if options.to:
        peer = options.to
        watch = Watch(options.metrics, None, headers=_headers(options.token_file))
    else:
        hilum = started(stack, plan, folder, port)
        peer = Peer("HILUM", "127.0.0.1", hilum.dicom_port)
        watch = Watch(
            f"{hilum.api}/metrics",
            stack.enter_context(Accountant(hilum.pid, every_seconds=_ACCOUNT_SECONDS)),
            headers=hilum.headers,
        )
    ground = Ground(
        plan, peer, receiver, folder, stack.enter_context(watch), plan.quiet_seconds, say
    )
    phases.warm_up(ground)
    saturation = phases.probe(ground) if plan.probe_seconds else None
    if plan.arrivals.unit == "saturation" and saturation is None:
        raise ScenarioError(f"{plan.name}: rates in units of the saturation need probe_seconds")
    loaded = phases.load(
        ground, saturation if plan.arrivals.unit == "saturation" and saturation else 1.0
    )
    return outcome.judge(plan, plan.quiet_seconds, loaded, receiver.arrivals, saturation)


def started(stack: ExitStack, plan: Scenario, folder: Path, port: int) -> Hilum:
    """A Hilum of our own, ready, whose only destination is the receiver."""
    destination = {"kind": "dicom", "port": port, "ae_title": AE_TITLE, "accept_untrained": True}
    sections: dict[str, dict[str, Any]] = {
        "studies": {"quiet_seconds": plan.quiet_seconds},
        "log": {"level": "warning"},
        **plan.hilum,
    }
    sections["models"] = {**models_of(plan.release), **plan.hilum.get("models", {})}
    hilum = Hilum(folder / "hilum", {"loadtest": destination}, **sections)
    hilum.write_settings()
    say("building models")
    subprocess.run(hilum.command("models", "build"), check=True, stdout=subprocess.DEVNULL)
    stack.enter_context(hilum)
    hilum.wait_until_ready(180, lambda missing: say(f"waiting: {missing}"))
    return hilum


def write(path: Path, found: Outcome, content: dict[str, Any]) -> None:
    """The result file and its plots."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    picture.write(path, found, content)
    say(f"written: {path.name}, .png and .html in {path.parent.name}/")


def _plain(options: argparse.Namespace) -> dict[str, Any]:
    """What was given on the command line, without paths.

    They say something about who ran it, and nothing about the figures.
    """
    kept = {
        name: value
        for name, value in vars(options).items()
        if value is not None and name not in ("scenario", "result")
    }
    return {name: str(value) if isinstance(value, Peer) else value for name, value in kept.items()}


if __name__ == "__main__":
    sys.exit(main())

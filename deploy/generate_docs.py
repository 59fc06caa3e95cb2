"""Write the generated parts of docs/ between their markers: settings, metrics, states, reasons, commands.

`make docs` runs it; a test fails while a generated part is stale. What is outside the markers is written by hand and kept.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path

import typer
from prometheus_client.metrics import MetricWrapperBase
from pydicom import uid
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from hilum import IMPLEMENTATION_CLASS_UID, cli, domain, settings, telemetry
from hilum.models import terminology
from hilum.receive import policy
from hilum.store.queues import QUEUES

DOCS = Path(__file__).resolve().parents[1] / "docs"
BENCH_CPU = DOCS.parent / "load_tests/results/bench-cpu.json"

STATES: Mapping[str, type[StrEnum]] = {
    "assemble": domain.StudyState,
    "analyse": domain.ReadingState,
    "report": domain.ResultState,
    "deliver": domain.DeliveryState,
}
# Transitions that no stage decides: they follow from an image that arrives, or from a newer result.
FOLLOWING: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "assemble": (
        ("closed", "due", "a further image, or one is rejected or replaced"),
        ("due", "due", "a further image: the quiet period starts anew"),
        ("closed", "erased", "the patient is erased, in any state"),
    ),
    "analyse": (
        ("due", "not_analysed", "image rejected, or the study completed without waiting"),
        ("leased", "not_analysed", "image rejected"),
        ("analysed", "due", "image replaced"),
        ("analysed", "erased", "the patient is erased, in any state"),
    ),
    "report": (
        ("due", "superseded", "newer result"),
        ("leased", "superseded", "newer result"),
        ("failed", "superseded", "newer result"),
        ("reported", "erased", "the patient is erased, in any state"),
    ),
    "deliver": (
        ("due", "cancelled", "newer result, or the patient is erased"),
        ("dead", "cancelled", "newer result, or the patient is erased"),
        ("leased", "cancelled", "the receiver takes another SOP Class"),
    ),
}


def settings_table() -> Iterator[str]:
    """One table a section."""
    last = ""
    for name, kind, default, description in settings.describe():
        section, _, key = name.rpartition(".")
        if section != last:
            yield f"\n### `[{section}]`\n\n| setting | type | default | meaning |\n|---|---|---|---|"
            last = section
        yield _row(f"`{key}`", kind, f"`{default}`" if default else "none", description)


def metrics_table() -> Iterator[str]:
    """What the processes count, then what is read from the ledger at each scrape."""
    yield "\n### Counted by the processes\n\n| metric | type | labels | meaning |\n|---|---|---|---|"
    for metric in vars(telemetry).values():
        if isinstance(metric, MetricWrapperBase):
            described = next(iter(metric.describe()))
            suffix = "_total" if described.type == "counter" else ""
            yield _row(f"`{described.name}{suffix}`", described.type, _labels(metric._labelnames), described.documentation)  # noqa: SLF001 - the library shows label names nowhere else
    yield "\n### Read from the ledger and the disk at each scrape\n\n| metric | type | labels | meaning |\n|---|---|---|---|"
    for name, (text, labels) in telemetry.STATE_GAUGES.items():
        yield _row(f"`{name}`", "gauge", _labels(labels), text)


def states_list() -> Iterator[str]:
    """One diagram a stage."""
    for stage, states in STATES.items():
        queue = QUEUES[stage]
        yield f"\n### `{queue.table.name}`, the queue of *{stage}*\n\n{_first_line(states)}\n\n```mermaid\nstateDiagram-v2"
        yield from (f"    {line}" for line in _transitions(stage, states))
        yield "```"


def reasons_table() -> Iterator[str]:
    """The closed list."""
    yield "\n| reason | meaning |\n|---|---|"
    yield from (_row(f"`{reason.value}`", reason.meaning) for reason in domain.Reason)
    for words in (domain.Outcome, domain.Decision, domain.RemovalReason, domain.ConflictState):
        yield f"\n**{words.__name__}** ({_first_line(words)}): {', '.join(f'`{word.value}`' for word in words)}."


def commands_list() -> Iterator[str]:
    """Every command with its arguments and options."""
    for path, command in _commands(typer.main.get_command(cli.app), "hilum"):
        arguments = [item for item in command.params if isinstance(item, TyperArgument)]
        options = [item for item in command.params if isinstance(item, TyperOption) and not item.hidden]
        usage = " ".join([path, *map(_metavar, arguments), *(["[OPTIONS]"] if options else [])])
        yield f"\n### `{path}`\n\n{(command.help or '').strip()}\n\n```\n{usage}\n```"
        if options:
            yield "\n| option | meaning |\n|---|---|"
            yield from (_row(", ".join(f"`{name}`" for name in item.opts), item.help or "") for item in options)


def identification_table() -> Iterator[str]:
    """PS3.7 D.3.3.2, as the code says it."""
    yield "\n| attribute | value |\n|---|---|"
    yield _row("Implementation Class UID", f"`{IMPLEMENTATION_CLASS_UID}`")
    yield _row("Implementation Version Name", "`HILUM_` and the version, at most 16 characters")


def accepted_table() -> Iterator[str]:
    """What the listener accepts, in its order of preference."""
    yield "\n| SOP Class | UID | for |\n|---|---|---|"
    purposes = {
        "C-ECHO": (policy.VERIFICATION,),
        "images": policy.STORAGE_SOP_CLASSES,
        "loop guard": policy.REPORT_SOP_CLASSES,
        "rejection notes": (policy.KEY_OBJECT_SELECTION,),
    }
    yield from (_row(uid.UID(item).name, f"`{item}`", purpose) for purpose, classes in purposes.items() for item in classes)
    yield "\n| Transfer Syntax of images, in order of preference | UID | analysed |\n|---|---|---|"
    decoded = (uid.ExplicitVRLittleEndian, uid.ImplicitVRLittleEndian, uid.JPEGBaseline8Bit)
    for item in policy.TRANSFER_SYNTAXES:
        yield _row(uid.UID(item).name, f"`{item}`", "yes" if item in decoded else "no: stored, ends as `transfer_syntax_not_supported`")


def terminology_table() -> Iterator[str]:
    """Every code with its status and source, which public labels mean it, and the codes that are denied."""
    table = terminology.load()
    labels = {
        key: [f"`{name}`: {label}" for name, known in table.label_sets.items() for label, its in known.labels if its == key]
        for key in table.concepts
    }
    yield f"\nVersion {table.version}.\n\n| concept | code | meaning | status | source | public labels |\n|---|---|---|---|---|---|"
    for concept in table.concepts.values():
        code = f"`{concept.code.scheme} {concept.code.value}`"
        yield _row(f"`{concept.key}`", code, concept.code.meaning, concept.status, concept.source, "; ".join(labels[concept.key]))
    yield "\n| label set | from |\n|---|---|"
    yield from (_row(f"`{name}`", known.cites) for name, known in table.label_sets.items())
    yield "\n| denied code | why |\n|---|---|"
    yield from (_row(f"`{scheme} {value}`", why) for (scheme, value), why in table.denied.items())


def cpu_table() -> Iterator[str]:
    """Of the committed run of `make bench-cpu`."""
    run = json.loads(BENCH_CPU.read_text(encoding="utf-8"))
    machine, sizes = run["machine"], run["milliseconds_per_image"]
    yield f"\nMeasured {run['measured_at'][:10]} on {machine['cores']} cores {machine['cpu']}"
    yield f"with a load average of {machine['load_average_before']:.0f} before it;"
    yield f"{run['settings']['rate']:g} studies a second; model and precision: `{run['release']}`.\n"
    yield f"| ms of CPU per image | {' | '.join(sizes)} |\n|---|{'--:|' * len(sizes)}"
    for stage in next(iter(sizes.values())):
        yield _row(f"`{stage}`", *(f"{table[stage]:.1f}" for table in sizes.values()))
    yield "\n| goal | measured | at most | holds |\n|---|--:|--:|---|"
    for goal in run["goals"]:
        yield _row(goal["name"], f"{goal['value']:.3g} {goal['unit']}", f"{goal['goal']:g}", "yes" if goal["holds"] else "no")


GENERATED: Mapping[str, tuple[str, Callable[[], Iterator[str]]]] = {
    "settings": ("settings.md", settings_table),
    "metrics": ("metrics.md", metrics_table),
    "cpu": ("cpu.md", cpu_table),
    "states": ("states.md", states_list),
    "reasons": ("states.md", reasons_table),
    "commands": ("commands.md", commands_list),
    "terminology": ("terminology.md", terminology_table),
    "identification": ("conformance.md", identification_table),
    "accepted": ("conformance.md", accepted_table),
}


def with_generated(text: str, name: str, content: str) -> str:
    """`text` with the part between the markers of `name` replaced. Raises ValueError where there are no markers."""
    begin, end = f"<!-- begin generated: {name} -->", f"<!-- end generated: {name} -->"
    if begin not in text or end not in text:
        raise ValueError(f"no markers for {name}: {begin} … {end}")
    return re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: f"{begin}\n{content}\n{end}", text, flags=re.DOTALL)


def stale() -> Iterator[str]:
    """Names of generated parts that are not what the code says now."""
    for name, (file, render) in GENERATED.items():
        text = (DOCS / file).read_text(encoding="utf-8")
        if with_generated(text, name, "\n".join(render())) != text:
            yield name


def _commands(command: object, path: str) -> Iterator[tuple[str, TyperCommand]]:
    if isinstance(command, TyperGroup):
        for name, item in command.commands.items():
            yield from _commands(item, f"{path} {name}")
    elif isinstance(command, TyperCommand) and not command.hidden:
        yield path, command


def _metavar(argument: TyperArgument) -> str:
    name = (argument.metavar or argument.name or "").upper() + ("…" if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _transitions(stage: str, states: type[StrEnum]) -> Iterator[str]:
    """What `store/claiming.py` does with the rows of this stage, then what its handlers decide."""
    queue = QUEUES[stage]
    followed = {target for _, target, _ in FOLLOWING[stage]} - {"not_analysed"}  # that one its stage decides, too
    yield "[*] --> due: record" if stage in ("assemble", "analyse") else "[*] --> due: advance"
    yield "due --> leased: claim"
    yield "leased --> due: retry"
    for state in states:
        if state.value not in ("due", "leased") and state.value not in followed:
            yield f"leased --> {state.value}: {'attempts or lapses used up' if state.value == queue.failed else 'advance'}"
    yield from (f"{state} --> due: requeue" for state in queue.requeueable)
    yield from (f"{source} --> {target}: {why}" for source, target, why in FOLLOWING[stage])


def _first_line(words: type[StrEnum]) -> str:
    return (words.__doc__ or "").strip()


def _labels(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _row(*cells: str) -> str:
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _cell(text: str) -> str:
    """Markdown takes <name> for HTML, except in code."""
    plain = text.replace("|", "\\|").replace("\n", " ")
    return plain if plain.startswith("`") else plain.replace("<", "&lt;")


def main() -> int:
    """Write what changed."""
    for name in list(stale()):
        file, render = GENERATED[name]
        path = DOCS / file
        path.write_text(with_generated(path.read_text(encoding="utf-8"), name, "\n".join(render())), encoding="utf-8")
        print(f"docs/{file}: {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

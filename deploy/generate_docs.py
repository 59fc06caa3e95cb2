"""Write the generated parts of docs/ between their markers.

Settings, metrics, states, reasons, commands.

`make docs` runs it; a test fails while a generated part is stale. What is outside the markers is written by hand and kept.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer
from prometheus_client.metrics import MetricWrapperBase
from pydicom import uid
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from deploy.tables.capacity import capacity_tables
from deploy.tables.destinations import destinations_tables
from deploy.tables.evaluation import leaderboard_tables, protocols_table
from deploy.tables.export import export_tables
from deploy.tables.http_statuses import http_statuses_table
from deploy.tables.inference import inference_tables
from deploy.tables.ingest import ingest_tables
from deploy.tables.manifest import manifest_tables
from deploy.tables.parity import parity_table, zero_shot_table
from deploy.tables.peer import peer_table
from deploy.tables.preprocessing import (
    doubts_table,
    echo_table,
    fields_tables,
    recipes_table,
    traps_table,
)
from deploy.tables.proof import fleet_table, proof_table
from deploy.tables.senders import senders_table
from hilum import IMPLEMENTATION_CLASS_UID, cli, domain, settings, verbs
from hilum.dicom.storage_commitment import STORAGE_COMMITMENT
from hilum.models.manifest import terminology
from hilum.observability import telemetry
from hilum.receive.policy import sender_policy
from hilum.store.queue.queues import QUEUES
from hilum.store.rollouts.rules import TRANSITIONS
from hilum_preprocessing.codecs import CODECS, NATIVE
from hilum_preprocessing.errors import Flag

DOCS = Path(__file__).resolve().parents[1] / "docs"
BENCH_CPU = DOCS.parent / "load_tests/results/bench-cpu.json"
BENCH_PREPROCESS = DOCS.parent / "load_tests/results/bench-preprocess.json"

STATES: Mapping[str, type[StrEnum]] = {
    "assemble": domain.StudyState,
    "analyse": domain.ReadingState,
    "compare": domain.ComparisonState,
    "report": domain.ResultState,
    "deliver": domain.DeliveryState,
    "commit": domain.CommitmentState,
}
# Transitions that no stage decides: they follow from an image that arrives, or from a newer result.
FOLLOWING: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "assemble": (
        (
            "closed",
            "due",
            "a further image, or one is rejected or replaced, or a further release reads them",
        ),
        ("due", "due", "a further image: the quiet period starts anew"),
        ("closed", "erased", "the patient or the study is erased, in any state"),
    ),
    "analyse": (
        ("due", "not_analysed", "image rejected, or the study completed without waiting"),
        ("leased", "not_analysed", "image rejected"),
        ("analysed", "due", "image replaced"),
        ("not_analysed", "due", "its pixels had left the archive, and come again"),
        ("analysed", "erased", "the patient or the study is erased, in any state"),
    ),
    "compare": (
        ("compared", "due", "a further image, or a corrected header"),
        ("compared", "erased", "the patient or the study is erased, in any state"),
    ),
    "report": (
        ("[*]", "leased", "advance, handed on"),
        ("[*]", "shadow", "advance, of compare"),
        ("shadow", "superseded", "newer result"),
        ("due", "superseded", "newer result"),
        ("leased", "superseded", "newer result"),
        ("failed", "superseded", "newer result"),
        ("reported", "erased", "the patient or the study is erased, in any state"),
    ),
    "deliver": (
        ("[*]", "leased", "advance, handed on"),
        ("[*]", "withheld", "the settings keep it from this destination"),
        ("delivered", "due", "a person has it sent again, or its destination does not keep it"),
        ("delivered", "dead", "its destination does not commit to keep it"),
        ("due", "delivered", "it was to be sent again, and a newer result came first"),
        ("due", "cancelled", "newer result, erased, or its destination is forgotten"),
        ("dead", "cancelled", "newer result, erased, or its destination is forgotten"),
        ("withheld", "cancelled", "newer result, erased, or its destination is forgotten"),
        (
            "leased",
            "cancelled",
            "the receiver takes another SOP Class, or lapsed and its destination is forgotten",
        ),
    ),
    "commit": (("reported", "due", "the same request once more"), ("dead", "[*]", "forgotten")),
}


def settings_table() -> Iterator[str]:
    """One table a section."""
    last = ""
    for name, kind, default, description in settings.describe():
        section, _, key = name.rpartition(".")
        if section != last:
            yield (
                f"\n### `[{section}]`\n\n| setting | type | default | meaning |\n|---|---|---|---|"
            )
            last = section
        yield _row(f"`{key}`", kind, f"`{default}`" if default else "none", description)


def metrics_table() -> Iterator[str]:
    """What the processes count, then what is read from the ledger at each scrape."""
    yield (
        "\n### Counted by the processes\n\n| metric | type | labels | meaning |\n|---|---|---|---|"
    )
    for metric in vars(telemetry).values():
        if isinstance(metric, MetricWrapperBase):
            described = next(iter(metric.describe()))
            suffix = "_total" if described.type == "counter" else ""
            yield _row(
                f"`{described.name}{suffix}`",
                described.type,
                # The library shows label names nowhere else.
                _labels(metric._labelnames),  # noqa: SLF001
                described.documentation,
            )
    yield (
        "\n### Read from the ledger and the disk at each scrape\n\n| metric | type | labels |"
        " meaning |\n|---|---|---|---|"
    )
    for name, (text, labels) in telemetry.STATE_GAUGES.items():
        yield _row(f"`{name}`", "gauge", _labels(labels), text)


def states_list() -> Iterator[str]:
    """One diagram a stage."""
    for stage, states in STATES.items():
        queue = QUEUES[stage]
        yield (
            f"\n### `{queue.table.name}`, the queue of"
            f" *{stage}*\n\n{_first_line(states)}\n\n```mermaid\nstateDiagram-v2"
        )
        yield from (f"    {line}" for line in _transitions(stage, states))
        yield "```"


def rollout_states() -> Iterator[str]:
    """One alias on its way from one release to another."""
    yield (
        f"\n{_first_line(domain.RolloutState)}\n\n```mermaid\nstateDiagram-v2\n    [*] --> loading:"
        " start"
    )
    for state, following in TRANSITIONS.items():
        yield from (f"    {state} --> {target}: {why}" for target, why in following)
    yield (
        f"```\n\n**Mode**: {_first_line(domain.RolloutMode)}"
        f" ({', '.join(f'`{mode}`' for mode in domain.RolloutMode)})"
    )


def reasons_table() -> Iterator[str]:
    """The closed list."""
    yield "\n| reason | meaning |\n|---|---|"
    yield from (_row(f"`{reason.value}`", reason.meaning) for reason in domain.REASONS.values())
    for words in (
        domain.Outcome,
        domain.Decision,
        domain.RemovalReason,
        domain.ConflictState,
        domain.Channel,
        domain.ReportState,
    ):
        yield (
            f"\n**{words.__name__}** ({_first_line(words)}):"
            f" {', '.join(f'`{word.value}`' for word in words)}."
        )


def flags_table() -> Iterator[str]:
    """What the guard and the decoders doubt, in the words of reports."""
    yield "\n| flag | meaning |\n|---|---|"
    yield from (_row(f"`{flag.value}`", flag.meaning) for flag in Flag)


def commands_list() -> Iterator[str]:
    """Every command with its arguments and options."""
    for path, command in _commands(typer.main.get_command(cli.app), "hilum"):
        arguments = [item for item in command.params if isinstance(item, TyperArgument)]
        options = [
            item for item in command.params if isinstance(item, TyperOption) and not item.hidden
        ]
        usage = " ".join([path, *map(_metavar, arguments), *(["[OPTIONS]"] if options else [])])
        yield f"\n### `{path}`\n\n{_wrapped(command.help or '')}\n\n```\n{usage}\n```"
        if options:
            yield "\n| option | meaning |\n|---|---|"
            yield from (
                _row(", ".join(f"`{name}`" for name in item.opts), item.help or "")
                for item in options
            )


def _wrapped(text: str) -> str:
    """Each paragraph in lines of at most 100 columns."""
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(
        textwrap.fill(item, 100, break_long_words=False, break_on_hyphens=False)
        for item in paragraphs
    )


def identification_table() -> Iterator[str]:
    """PS3.7 D.3.3.2, as the code says it."""
    yield "\n| attribute | value |\n|---|---|"
    yield _row("Implementation Class UID", f"`{IMPLEMENTATION_CLASS_UID}`")
    yield _row("Implementation Version Name", "`HILUM_` and the version, at most 16 characters")


def accepted_table() -> Iterator[str]:
    """What the listener accepts as it is installed, in its order of preference."""
    yield "\n| SOP Class | in settings | UID | for |\n|---|---|---|---|"
    keywords = {item: f"`{name}`" for name, item in domain.IMAGE_SOP_CLASSES.items()}
    purposes = {
        "C-ECHO": (sender_policy.VERIFICATION,),
        "images": sender_policy.STORAGE_SOP_CLASSES,
        "loop guard": sender_policy.REPORT_SOP_CLASSES,
        "rejection notes": (sender_policy.KEY_OBJECT_SELECTION,),
        "storage commitment": (STORAGE_COMMITMENT,),
    }
    for purpose, classes in purposes.items():
        yield from (
            _row(uid.UID(item).name, keywords.get(item, ""), f"`{item}`", purpose)
            for item in classes
        )
    yield (
        "\n| Transfer Syntax of images, in order of preference | in settings | UID | analysed"
        " |\n|---|---|---|---|"
    )
    decoded = {*NATIVE, *CODECS}
    for name, item in domain.TRANSFER_SYNTAXES.items():
        is_decoded = (
            "yes" if item in decoded else "no: stored, ends as `transfer_syntax_not_supported`"
        )
        yield _row(uid.UID(item).name, f"`{name}`", f"`{item}`", is_decoded)


def terminology_table() -> Iterator[str]:
    """Every code with its status and source, which public labels mean it, and the codes that are denied."""
    table = terminology.load()
    labels = {
        key: [
            f"`{name}`: {label}"
            for name, known in table.label_sets.items()
            for label, its in known.labels
            if its == key
        ]
        for key in table.concepts
    }
    yield (
        f"\nVersion {table.version}.\n\n| concept | code | meaning | status | source | public"
        " labels |\n|---|---|---|---|---|---|"
    )
    for concept in table.concepts.values():
        code = f"`{concept.code.scheme} {concept.code.value}`"
        yield _row(
            f"`{concept.key}`",
            code,
            concept.code.meaning,
            concept.status,
            concept.source,
            "; ".join(labels[concept.key]),
        )
    yield "\n| label set | from |\n|---|---|"
    yield from (_row(f"`{name}`", known.cites) for name, known in table.label_sets.items())
    yield "\n| denied code | why |\n|---|---|"
    yield from (_row(f"`{scheme} {value}`", why) for (scheme, value), why in table.denied.items())


def cpu_table() -> Iterator[str]:
    """Of the committed run of `make bench-cpu`."""
    run = json.loads(BENCH_CPU.read_text(encoding="utf-8"))
    machine = run["machine"]
    sizes = run["milliseconds_per_image"]
    yield f"\nMeasured {run['measured_at'][:10]} on {machine['cores']} cores {machine['cpu']}"
    yield f"with a load average of {machine['load_average_before']:.0f} before it;"
    yield (
        f"{run['settings']['rate']:g} studies a second unless the column says otherwise; model and"
        f" precision: `{run['release']}`.\n"
    )
    yield f"| ms of CPU per image | {' | '.join(sizes)} |\n|---|{'--:|' * len(sizes)}"
    for stage in next(iter(sizes.values())):
        yield _row(f"`{stage}`", *(f"{table[stage]:.1f}" for table in sizes.values()))
    yield "\n| goal | measured | at most | holds |\n|---|--:|--:|---|"
    for goal in run["goals"]:
        yield _row(
            goal["name"],
            f"{goal['value']:.3g} {goal['unit']}",
            f"{goal['goal']:g}",
            "yes" if goal["holds"] else "no",
        )


def preprocess_table(result: Path = BENCH_PREPROCESS) -> Iterator[str]:
    """Of a run of `make bench-preprocess`."""
    if not result.is_file():
        yield "\nNot measured yet."
        return
    run = json.loads(result.read_text(encoding="utf-8"))
    yield (
        f"\nMeasured {run['measured_at'][:10]} on one core of {run['machine']['cores']},"
        f" {run['machine']['cpu']}"
    )
    yield f"with a load average of {run['machine']['load_average_before']:.1f} before it.\n"
    yield (
        "| | authors, ms | decoded by | ours, ms | times faster | goal | our decoder alone, ms | at"
        " most | largest error of ±1024 |"
    )
    yield "|---|--:|---|--:|--:|--:|--:|--:|--:|"
    yield from map(_preprocess_row, run["rows"])
    if rates := run["workers_images_per_second"]:
        two = rates["two"]
        one = rates["one"]
        yield (
            f"\nTwo workers, little endian files: {two:.0f} images a second, {two / one:.2f} times"
            " one."
        )
    broken = [goal["name"] for goal in run["goals"] if not goal["holds"]]
    yield f"\nGoals missed: {', '.join(broken) or 'none'}."


def _preprocess_row(row: Mapping[str, Any]) -> str:
    """A run before they were measured has no decoders."""
    theirs = row["theirs_ms"]
    ours = row["ours_ms"]
    codec = row.get("codec_ms")
    goal = f"{row['goal']:g}" if row["goal"] else ""
    alone = (f"{codec:.1f}", f"{theirs / codec:.2f}") if codec else ("", "")
    return _row(
        row["name"],
        f"{theirs:.1f}",
        row.get("decoder", ""),
        f"{ours:.1f}",
        f"{row['ratio']:.2f}",
        goal,
        *alone,
        f"{row['error']:.2f}",
    )


def verbs_table() -> Iterator[str]:
    """Every verb, the DICOM event that it is, and by which command or address."""
    yield "\n| verb | what happened | DICOM event | type | action |\n|---|---|---|---|---|"
    for verb, meaning in verbs.MEANINGS.items():
        kinds = ", ".join(kind.meaning for kind in meaning.types)
        event = f"{meaning.event.value} {meaning.event.meaning}"
        yield _row(f"`{verb}`", meaning.words, event, kinds, meaning.action)


GENERATED: Mapping[str, tuple[str, Callable[[], Iterator[str]]]] = {
    "settings": ("reference/settings.md", settings_table),
    "metrics": ("reference/metrics.md", metrics_table),
    "cpu": ("figures/cpu.md", cpu_table),
    "capacity": ("capacity.md", lambda: capacity_tables(_row)),
    "ingest": ("figures/cpu.md", lambda: ingest_tables(_row)),
    "preprocess": ("models/preprocessing.md", preprocess_table),
    "inference": ("figures/inference.md", lambda: inference_tables(_row)),
    "peer": ("figures/peer.md", lambda: peer_table(_row)),
    "proof": ("figures/proof.md", lambda: proof_table(_row)),
    "fleet": ("figures/proof.md", lambda: fleet_table(_row)),
    "destinations": ("figures/destinations.md", lambda: destinations_tables(_row)),
    "states": ("reference/states.md", states_list),
    "rollouts": ("reference/states.md", rollout_states),
    "reasons": ("reference/states.md", reasons_table),
    "flags": ("reference/states.md", flags_table),
    "doubts": ("reference/states.md", lambda: doubts_table(_row)),
    "commands": ("reference/commands.md", commands_list),
    "verbs": ("operate/audit.md", verbs_table),
    "terminology": ("models/terminology.md", terminology_table),
    "manifest": ("models/manifest.md", lambda: manifest_tables(_row)),
    "parity": ("figures/models_parity.md", lambda: parity_table(_row)),
    "zero_shot": ("figures/models_parity.md", lambda: zero_shot_table(_row)),
    "echo": ("archive/decoding.md", lambda: echo_table(_row)),
    "export": ("archive/export.md", lambda: export_tables(_row)),
    "protocols": ("models/evaluate.md", lambda: protocols_table(_row)),
    "leaderboard": ("models/leaderboard.md", lambda: leaderboard_tables(_row)),
    "recipes": ("models/recipes.md", lambda: recipes_table(_row)),
    "input_spec": ("models/input_spec.md", lambda: fields_tables(_row)),
    "traps": ("models/input_spec.md", lambda: traps_table(_row)),
    "identification": ("reference/conformance.md", identification_table),
    "accepted": ("reference/conformance.md", accepted_table),
    "http_statuses": ("destinations/http.md", lambda: http_statuses_table(_row)),
    "senders": ("reference/conformance.md", lambda: senders_table(_row)),
}


def with_generated(text: str, name: str, content: str) -> str:
    """`text` with the part between the markers of `name` replaced.

    Raises ValueError where there are no markers.
    """
    begin = f"<!-- begin generated: {name} -->"
    end = f"<!-- end generated: {name} -->"
    if begin not in text or end not in text:
        raise ValueError(f"no markers for {name}: {begin} … {end}")
    return re.sub(
        re.escape(begin) + ".*?" + re.escape(end),
        lambda _: f"{begin}\n{content}\n{end}",
        text,
        flags=re.DOTALL,
    )


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
    """What `store/queue/claim.py` does with the rows of this stage, then what its handlers decide."""
    queue = QUEUES[stage]
    followed = {target for _, target, _ in FOLLOWING[stage]} - {
        "not_analysed",
        "delivered",
    }  # those their stage decides, too
    yield (
        "[*] --> due: record"
        if stage in ("assemble", "analyse", "compare", "commit")
        else "[*] --> due: advance"
    )
    yield "due --> leased: claim"
    yield "leased --> due: retry"
    for state in states:
        if state.value not in ("due", "leased") and state.value not in followed:
            yield (
                f"leased --> {state.value}:"
                f" {'attempts or lapses used up' if state.value == queue.failed else 'advance'}"
            )
    yield from (f"{state} --> due: requeue" for state in queue.requeueable)
    yield from (f"{source} --> {target}: {why}" for source, target, why in FOLLOWING[stage])


def _first_line(words: type[StrEnum]) -> str:
    return inspect.cleandoc(words.__doc__ or "")


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
        path.write_text(
            with_generated(path.read_text(encoding="utf-8"), name, "\n".join(render())),
            encoding="utf-8",
        )
        print(f"docs/{file}: {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

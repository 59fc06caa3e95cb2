"""Documentation that cannot drift.

What the code has must stand in docs/, and the generated parts must be fresh.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from deploy import generate_docs
from hilum import cli, domain
from hilum.deliver.scu import statuses
from hilum.settings import describe
from hilum.store.queue import requeue
from tests.support.reports.metric_names import metric_names

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = [
    *(
        ROOT / name
        for name in (
            "README.md",
            "ARCHITECTURE.md",
            "CONTRIBUTING.md",
            "CHANGELOG.md",
            "SECURITY.md",
        )
    ),
    *sorted(DOCS.rglob("*.md")),
]
LINK = re.compile(r"\]\(([^)#]+?)(#[^)]*)?\)")
LOGGED = re.compile(r"\blogs?\s(?:says\s)?\(?`([a-z_]+)`(?:\s(?:or|and)\s`([a-z_]+)`)?")


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def words(text: str) -> set[str]:
    """Everything that stands in backticks."""
    return set(re.findall(r"`([^`\n]+)`", text))


def test_generated_parts_are_fresh():
    assert list(generate_docs.stale()) == [], "run `make docs`"


def test_a_stale_part_is_noticed():
    text = page("reference/settings.md")
    content = "\n".join(generate_docs.settings_table())
    assert generate_docs.with_generated(text, "settings", content) == text
    assert generate_docs.with_generated(text, "settings", content + "\n| `new` |") != text
    with pytest.raises(ValueError, match="no markers for settings"):
        generate_docs.with_generated("a page without markers", "settings", content)


def test_every_setting_is_documented():
    text = page("reference/settings.md")
    sections = {part.split("]")[0].strip("`"): words(part) for part in text.split("### `[")[1:]}
    missing = [
        name
        for name, *_ in describe()
        if name.rpartition(".")[2] not in sections.get(name.rpartition(".")[0], set())
    ]
    assert missing == []


def test_every_metric_is_documented_and_none_that_is_gone():
    documented = {word for word in words(page("reference/metrics.md")) if word.startswith("hilum_")}
    base = {re.sub(r"_(bucket|sum|count)$", "", name) for name in metric_names()}
    assert documented == base


NO_STATES = (StrEnum, domain.Channel, domain.Scope)  # operations.md and rest.md say what those are


def state_enums() -> Iterator[type[StrEnum]]:
    yield from (
        item
        for item in vars(domain).values()
        if isinstance(item, type) and issubclass(item, StrEnum) and item not in NO_STATES
    )


def test_every_state_and_reason_is_documented():
    text = page("reference/states.md")
    missing = [
        f"{enum.__name__}.{item.value}"
        for enum in state_enums()
        for item in enum
        if not re.search(rf"\b{item.value}\b", text)
    ]
    assert missing == []


def refusals() -> set[str]:
    """Reasons of `Refused` anywhere in the server, and those of the delivery's status table."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "server").rglob("*.py")]
    return {
        reason for text in sources for reason in re.findall(r"Refused\(\s*\"([a-z_]+)\"", text)
    } | {row[1] for row in statuses._NEVER}


def test_every_reason_of_a_refusal_is_documented():
    assert len(refusals()) > 5
    assert refusals() - words(page("reference/states.md")) == set()


def test_every_reason_of_a_refusal_can_be_requeued_by_its_name():
    tables = page("reference/states.md").partition("### Why a report of storage commitment")[2]
    known = {reason for stage in ("deliver", "commit") for reason in requeue.reasons(stage)}
    assert known - set(domain.REASONS) == set(
        re.findall(r"^\| `([a-z_]+)` \|", tables, re.MULTILINE)
    )
    assert refusals() - known == set()


def commands(command: object, path: str) -> Iterator[str]:
    if isinstance(command, TyperGroup):
        for name, item in command.commands.items():
            yield from commands(item, f"{path} {name}")
    else:
        yield path


def test_every_command_is_documented():
    found = list(commands(typer.main.get_command(cli.app), "hilum"))
    assert len(found) > 6
    assert [path for path in found if f"### `{path}`" not in page("reference/commands.md")] == []


def test_every_diagram_holds_every_state_and_starts_somewhere():
    for stage, states in generate_docs.STATES.items():
        drawn = "\n".join(generate_docs._transitions(stage, states))
        assert [
            state.value for state in states if not re.search(rf"--> {state.value}\b", drawn)
        ] == [], stage
        assert drawn.startswith("[*] --> due")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path):
    targets = [
        target
        for target, _ in LINK.findall(path.read_text(encoding="utf-8"))
        if "://" not in target
    ]
    assert [target for target in targets if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_prose_names_exist(path: Path):
    """`deploy/…`, `server/…` in backticks. Names with placeholders and patterns are left out."""
    inside = re.compile(r"(deploy|server|preprocessing|load_tests|tests|docs)/[\w./-]+")
    named = [word for word in words(path.read_text(encoding="utf-8")) if inside.fullmatch(word)]
    assert [
        name
        for name in named
        if not (ROOT / name).exists() and not name.endswith("results/load.json")
    ] == []


def test_pages_that_code_names_exist():
    code = [
        file
        for top in ("server", "preprocessing", "load_tests", "testing", "deploy")
        for file in (ROOT / top).rglob("*.py")
    ]
    named = {
        (page, str(file.relative_to(ROOT)))
        for file in code
        for page in re.findall(r"\bdocs/[a-z_/-]+\.md", file.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    assert {each for each in named if not (ROOT / each[0]).exists()} == set()


def test_events_of_the_log_that_prose_names_are_written():
    named = {
        event
        for file in PAGES
        for found in LOGGED.findall(file.read_text(encoding="utf-8"))
        for event in found
        if event
    }
    code = "".join(
        file.read_text(encoding="utf-8") for file in (ROOT / "server/hilum").rglob("*.py")
    )
    assert len(named) > 25
    assert {event for event in named if f'"{event}"' not in code} == set()


def test_readme_says_the_essential():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for sentence in ("For research use only", "make demo", "make test", "untrained"):
        assert sentence in text


def test_targets_that_prose_names_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    command = re.compile(r"(?:`|^|=1 )make ([a-z-]+)\b", re.MULTILINE)
    named = {name for path in PAGES for name in command.findall(path.read_text(encoding="utf-8"))}
    assert {"demo", "test", "docs"} <= named
    assert [name for name in named if f"\n{name}:" not in makefile] == []


def test_shell_of_the_readme_names_real_commands():
    """Every `hilum …` line of the README's code blocks starts with a documented command."""
    blocks = re.findall(
        r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL
    )
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("hilum ")]
    known = list(commands(typer.main.get_command(cli.app), "hilum"))
    assert len(lines) > 5
    assert [line for line in lines if not any(line.startswith(path) for path in known)] == []

"""The plain pages: short lines, and no sentence that a reader has to decode."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Add a page once its hand-written prose is plain.
PLAIN_PAGES = (
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "docs/README.md",
    "docs/archive/intake.md",
    "docs/archive/lists.md",
    "docs/archive/odd_files.md",
    "docs/archive/pace.md",
    "docs/decisions/README.md",
    "docs/figures/inference.md",
    "docs/figures/load.md",
    "docs/figures/models_parity.md",
    "docs/figures/peer.md",
    "docs/models/importing.md",
    "docs/models/input_spec.md",
    "docs/models/manifest.md",
    "docs/models/models.md",
    "docs/models/recipes.md",
    "docs/models/rollouts.md",
    "docs/models/terminology.md",
    "docs/operate/audit.md",
    "docs/operate/hosts.md",
    "docs/operate/object_store.md",
    "docs/operate/operations.md",
    "docs/operate/pages.md",
    "docs/operate/tracing.md",
    "docs/operate/troubleshooting.md",
    "docs/operate/workitems.md",
    "docs/reference/commands.md",
    "docs/reference/metrics.md",
    "docs/reference/rest.md",
    "docs/reference/settings.md",
    "docs/reference/states.md",
    "docs/start/first_pacs.md",
    "docs/start/limits.md",
)
COLUMNS = 100
# Generated parts, code blocks and headings are not prose.
NO_PROSE = re.compile(
    r"<!-- begin generated: (\w+) -->.*?<!-- end generated: \1 -->|^```.*?^```$|^#+ .*?$",
    re.MULTILINE | re.DOTALL,
)
# Code and the targets of links are names, and names are no words of a sentence.
NO_WORDS = re.compile(r"`[^`]*`|\]\([^)]*\)|<https?://[^>]*>")
# A sentence begins a paragraph, an item or a cell, or follows a sentence.
BEGINNING = r"(?:^|[.;:] )"
# Each idiom with a sentence that has it.
IDIOMS = {
    "relative pronoun without its person": (
        (
            rf"(?:{BEGINNING}|, |\b(?:and|as|but|by|for|from|of|or|says|than|to|while)"
            r" )who\b|\bwho(?:m|ever|mever)\b"
        ),
        "Of whom something comes is aborted, and who waits is asked.",
    ),
    "what as the subject": (
        (
            rf"(?:{BEGINNING}|, )what"
            r" (?:are|cannot|comes?|came|could|exceeds?|fails?|had|has|holds?|is|may|must|needs?|stays?|waits?|was)\b"
        ),
        "What exceeds a limit is refused.",
    ),
    "verb before its subject": (
        rf"{BEGINNING}(?:is|are|(?:found|kept|met|refused|taken) (?:is|are)) (?![^.]*\?)",
        "Refused are a file without a Transfer Syntax and one without an end.",
    ),
    "none for not one": (r"\bnone (?:is|are|of)\b", "The destination takes none of them."),
    "machine as a person": (
        r"\b(?:is|are|was|were|be) told\b|\bknock(?:s|ed|ing)?\b|\bkeeps? house\b|\bdoorbells?\b",
        "One document knocks, and the sender is told so.",
    ),
    "place for a state": (
        (
            r"\b(?:lies?|lay|lying)"
            r" (?:behind|below|beside|in|on|outside|still|there|under)\b|\bstreets?\b"
        ),
        "The rest of its queue lies still.",
    ),
    "promise by its number": (r"\bpromises? \d", "Untrained weights decide nothing (promise 8)."),
}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def prose(text: str) -> str:
    """The text without its generated parts, code blocks and headings."""
    return NO_PROSE.sub("", text)


def passages(text: str) -> list[str]:
    """Paragraphs, items of lists and cells of tables, each on one line."""
    parts = re.split(r"\n\s*\n|\n\s*(?=[*-] |\d+\. )|[ \n]*\|[ \n]*", prose(text))
    plain = (re.sub(r"^(?:[*-]|\d+\.) |\*\*", "", " ".join(part.split())) for part in parts)
    return [NO_WORDS.sub("", part) for part in plain if part]


def too_long(text: str) -> list[str]:
    """Lines beyond the columns. Markdown cannot break a row of a table."""
    return [
        line
        for line in prose(text).splitlines()
        if len(line) > COLUMNS and not line.startswith("|")
    ]


def idioms(text: str) -> list[tuple[str, str]]:
    """Each idiom that a passage has, with the passage."""
    return [
        (name, passage)
        for passage in passages(text)
        for name, (pattern, _) in IDIOMS.items()
        if re.search(pattern, passage, re.IGNORECASE)
    ]


@pytest.mark.parametrize("name", PLAIN_PAGES)
def test_no_line_of_a_plain_page_is_too_long(name: str):
    assert too_long(read(name)) == []


@pytest.mark.parametrize("name", PLAIN_PAGES)
def test_no_passage_of_a_plain_page_has_an_idiom(name: str):
    assert idioms(read(name)) == []


def test_a_line_that_is_too_long_is_found_outside_of_tables_and_code():
    line = "word " * 21
    assert too_long(f"{line}\n\n| {line} |\n\n```sh\n{line}\n```\n") == [line]


@pytest.mark.parametrize("name", IDIOMS)
def test_an_idiom_is_found_in_prose_items_and_cells_and_nowhere_else(name: str):
    sentence = IDIOMS[name][1]
    assert [
        found for found, _ in idioms(f"It works.\n{sentence}\n\n* {sentence}\n\n| {sentence} |\n")
    ].count(name) == 3
    assert idioms(f"# {sentence}\n\n```\n{sentence}\n```\n\n`{sentence}`\n") == []

"""Docstrings, settings, help and advice use none of the idioms that a tired reader must decode."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = (
    "preprocessing",
    "server/hilum/analyse",
    "server/hilum/api",
    "server/hilum/assemble",
    "server/hilum/audit",
    "server/hilum/cli",
    "server/hilum/deliver",
    "server/hilum/dicom",
    "server/hilum/domain",
    "server/hilum/evaluate",
    "server/hilum/models",
    "server/hilum/observability",
    "server/hilum/processes",
    "server/hilum/receive",
    "server/hilum/report",
    "server/hilum/services",
    "server/hilum/store",
    "server/hilum/settings",
    "server/hilum/supervisor",
    "server/hilum/retrieve",
    "server/hilum/triton",
    "server/hilum/workitems",
)
ROOT_MODULES = "server/hilum"
LONGEST_LINE = 100
IDIOMS = {
    "who or whom for a program": r"\b(?:who|whom|whoever|whomever)\b",
    "what or whatever for a noun": r"\b(?:what|whatever)\b",
    "knocking": r"\bknock(?:s|ed|ing)?\b",
    "a numbered promise": r"\bpromises? \d",
    "a file that lies somewhere": r"\blies?\b",
    "a program that is told": r"\b(?:is|are|was|were) told\b",
    "for ever": r"\bfor ever\b",
    "nobody or somebody": r"\b(?:nobody|somebody|anybody|everybody)\b",
    "a street": r"\bstreets?\b",
    "so long for a time": r"\b(?:for )?so long (?:the|a|an)\b",
}
# Keywords whose texts a person reads: settings, metrics, commands, manifests, advice of the log.
SHOWN = {"description", "help", "advice", "meaning"}
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(text: str) -> Iterator[tuple[int, str, str]]:
    """Line of each docstring, its text without indentation, and its lines as they stand in the file."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Documented) and (found := ast.get_docstring(node)):
            place = node.body[0]
            yield place.lineno, found, "\n".join(lines[place.lineno - 1 : place.end_lineno])


def shown_texts(text: str) -> Iterator[tuple[int, str]]:
    """Line of each text that settings, commands, manifests or log lines show, and the text."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.keyword) and node.arg in SHOWN:
            value = node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.lineno, value.value


def problems(text: str) -> list[str]:
    found = [
        f"{line}: {name}: {shown}"
        for line, shown in shown_texts(text)
        for name, idiom in IDIOMS.items()
        if re.search(idiom, shown, re.IGNORECASE)
    ]
    for line, docstring, shown in docstrings(text):
        first = docstring.splitlines()[0]
        if not first.endswith("."):
            found.append(f"{line}: the first line is no sentence: {first}")
        if any(len(each) > LONGEST_LINE for each in shown.splitlines()):
            found.append(f"{line}: a line is longer than {LONGEST_LINE}: {first}")
        prose = re.sub(r"`[^`]*`|\S+\.md\b", "", docstring)
        found += [
            f"{line}: {name}: {first}"
            for name, idiom in IDIOMS.items()
            if re.search(idiom, prose, re.IGNORECASE)
        ]
    return found


@pytest.mark.parametrize(
    ("folder", "pattern"), [*((folder, "**/*.py") for folder in FOLDERS), (ROOT_MODULES, "*.py")]
)
def test_docstrings_of_finished_folders_are_plain(folder: str, pattern: str) -> None:
    files = sorted((ROOT / folder).glob(pattern))

    found = [
        f"{file.relative_to(ROOT)}:{problem}"
        for file in files
        for problem in problems(file.read_text(encoding="utf-8"))
    ]

    assert files, f"{folder} is gone: take it out of FOLDERS"
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("Who takes an object.", "who or whom"),
        ("Return what came.", "what or whatever"),
        ("One document knocks there.", "knocking"),
        ("An image, durable: promise 1.", "a numbered promise"),
        ("A document lies there.", "a file that lies"),
        ("Serve until the loop is told to stop.", "a program that is told"),
        ("The callers would wait for ever.", "for ever"),
        ("Nobody waits for it.", "nobody"),
        ("Return a sentence without an end", "no sentence"),
        (f"Return {'a very ' * 15}long line.", "longer than"),
    ],
)
def test_an_idiom_in_a_docstring_is_found(docstring: str, expected: str) -> None:
    found = problems(f'def function():\n    """{docstring}"""\n')

    assert [expected in each for each in found] == [True]


@pytest.mark.parametrize(
    "docstring",
    [
        "Return the replies, whose `who` and `what` are fields.",
        "Raises Retry where the supplies and the belief of the sender differ.",
        "Promised objects are kept.",
    ],
)
def test_words_that_only_look_like_an_idiom_pass(docstring: str) -> None:
    assert problems(f'def function():\n    """{docstring}"""\n') == []

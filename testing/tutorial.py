"""Runs a page of the documentation as its reader would.

Writes its files, applies its edits, runs its commands, compares what they say. A command that says
nothing on the page must succeed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_ANYTHING = "…"


def _here(_host: str, command: str) -> Sequence[str]:
    """On this machine."""
    return ["bash", "-c", command]


def follow(
    text: str,
    folder: Path,
    environment: Mapping[str, str],
    line_on: Callable[[str, str], Sequence[str]] = _here,
    seconds: float = 120.0,
) -> Iterator[str]:
    """Do what each block says, in order; yields the commands that have been run.

    `line_on`: the command line that runs a command on the host that its block names;
    `seconds`: the longest that one may take. Raises AssertionError where page and truth differ.
    """
    for kind, name, content in _BLOCK.findall(text):
        if kind == "console":
            for command, said in _COMMAND.findall(content):
                _run(line_on(name, command), command, said, folder, environment, seconds)
                yield command
        elif kind == "diff":
            _apply(content, folder)
        elif name:
            (folder / name).write_text(content, encoding="utf-8")


def _run(
    line: Sequence[str],
    command: str,
    said: str,
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        line,
        cwd=folder,
        env={**environment, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert matches(done.stdout, said), f"$ {command}\n{done.stdout}\nthe page says:\n{said}"
    assert said or done.returncode == 0, f"$ {command}\nended with {done.returncode}, in silence"


def matches(given: str, said: str) -> bool:
    """Whether the output is what the page says.

    … stands for anything in a line, alone for any lines.
    """
    lines = [
        ".*\n?" if line == _ANYTHING else f"{'.*'.join(map(re.escape, line.split(_ANYTHING)))}\n"
        for line in said.splitlines()
    ]
    pattern = "".join("(?:.*\n)*?" if line == ".*\n?" else line for line in lines)
    return re.fullmatch(pattern, given) is not None


def _apply(diff: str, folder: Path) -> None:
    done = subprocess.run(
        ["patch", "-p0"],
        cwd=folder,
        input=diff,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, f"{diff}\n{done.stdout}{done.stderr}"

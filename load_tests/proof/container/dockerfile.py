"""Reads a Dockerfile: the instructions that deploy/Dockerfile uses. Another one is an error."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

WORDS: Final = frozenset(
    {
        "ARG",
        "CMD",
        "COPY",
        "ENTRYPOINT",
        "ENV",
        "EXPOSE",
        "FROM",
        "HEALTHCHECK",
        "LABEL",
        "RUN",
        "STOPSIGNAL",
        "USER",
        "VOLUME",
        "WORKDIR",
    }
)
_FLAGS: Final = {"COPY": {"--from"}, "HEALTHCHECK": {"--interval", "--timeout", "--start-period"}}
_NAME: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class NotUnderstood(Exception):
    """An instruction, or a form of one, that is not carried out here."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, its lines joined. `flags`: --name=value before its words."""

    word: str
    rest: str
    flags: Mapping[str, str]

    def __str__(self) -> str:
        """As it stands in the file, with single spaces."""
        flags = "".join(f"{name}={value} " for name, value in self.flags.items())
        return re.sub(r"\s+", " ", f"{self.word} {flags}{self.rest}")


@dataclass(frozen=True, slots=True)
class Stage:
    """From a FROM to the next. `name`: after AS, or empty."""

    base: str
    name: str
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """`arguments`: the ARG lines before the first FROM, name → default."""

    arguments: Mapping[str, str]
    stages: tuple[Stage, ...]


def read(text: str) -> Dockerfile:
    """The stages of a Dockerfile. Raises NotUnderstood."""
    found = list(_instructions(text))
    first = next((n for n, each in enumerate(found) if each.word == "FROM"), len(found))
    if first == len(found):
        raise NotUnderstood("a Dockerfile without FROM")
    before = [default(each) for each in found[:first] if each.word == "ARG"]
    if len(before) != first:
        raise NotUnderstood("before the first FROM only ARG is understood")
    arguments = {name: value or "" for name, value in before}
    return Dockerfile(arguments, tuple(_stages(found[first:], arguments)))


def default(argument: Instruction) -> tuple[str, str | None]:
    """Name and default of an ARG; None: it has no default."""
    name, equals, value = argument.rest.partition("=")
    return name, shlex.split(value)[0] if value else ("" if equals else None)


def pairs(rest: str, known: Mapping[str, str]) -> dict[str, str]:
    """NAME=VALUE of ENV and LABEL, with what they name put in."""
    found = {}
    for word in shlex.split(rest):
        name, equals, value = word.partition("=")
        if not equals:
            raise NotUnderstood(f"{word}: NAME=VALUE is the form that is understood")
        found[name] = filled(value, known)
    return found


def filled(text: str, known: Mapping[str, str]) -> str:
    """The values of $NAME and ${NAME} put in. Raises NotUnderstood for an unknown name."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in known:
            raise NotUnderstood(f"{text}: {name} has no value here")
        return known[name]

    return _NAME.sub(value, text)


def command(rest: str) -> list[str]:
    """The JSON form of CMD, ENTRYPOINT and VOLUME. Raises NotUnderstood for the form of a shell."""
    try:
        found = json.loads(rest)
    except ValueError:
        found = None
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        raise NotUnderstood(f"{rest}: only the JSON form is understood")
    return found


def _instructions(text: str) -> Iterator[Instruction]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n", " ", "\n".join(lines)).splitlines():
        if line.strip():
            yield _instruction(line.strip())


def _instruction(line: str) -> Instruction:
    word, _, rest = line.partition(" ")
    word = word.upper()
    if word not in WORDS:
        raise NotUnderstood(f"{word} is not carried out here: add it to the interpreter")
    flags: dict[str, str] = {}
    rest = rest.strip()
    while word in {"COPY", "HEALTHCHECK", "RUN", "FROM"} and rest.startswith("--"):
        flag, _, rest = rest.partition(" ")
        name, _, value = flag.partition("=")
        if name not in _FLAGS.get(word, ()):
            raise NotUnderstood(f"{word} {flag} is not carried out here")
        flags[name] = value
        rest = rest.strip()
    return Instruction(word, rest, flags)


def _stages(found: list[Instruction], arguments: Mapping[str, str]) -> Iterator[Stage]:
    starts = [n for n, each in enumerate(found) if each.word == "FROM"]
    for start, end in zip(starts, [*starts[1:], len(found)], strict=True):
        base, _, name = found[start].rest.partition(" AS ")
        yield Stage(filled(base.strip(), arguments), name.strip(), tuple(found[start + 1 : end]))

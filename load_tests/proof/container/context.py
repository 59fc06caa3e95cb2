"""The build context: the files of the checkout that .dockerignore lets through."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


class NotInContext(Exception):
    """A path that COPY names and the context does not have."""


@dataclass(frozen=True, slots=True)
class Context:
    """`folder` as docker would send it. `rules`: the lines of .dockerignore; the last match wins."""

    folder: Path
    rules: tuple[str, ...]

    @classmethod
    def of(cls, folder: Path, ignore_file: Path) -> Context:
        """With the rules of a file."""
        lines = (line.strip() for line in ignore_file.read_text(encoding="utf-8").splitlines())
        return cls(folder, tuple(line for line in lines if line and not line.startswith("#")))

    def has(self, path: str) -> bool:
        """Whether a file of the folder, by its relative path, belongs to the context."""
        is_in = True
        for rule in self.rules:
            if re.fullmatch(_pattern(rule.removeprefix("!")), path):
                is_in = rule.startswith("!")
        return is_in

    def files(self, path: str) -> Iterator[str]:
        """A file, or all files below a folder, in order. Raises NotInContext where there are none."""
        start = self.folder / path
        found = [start] if start.is_file() else sorted(start.rglob("*"))
        names = [str(each.relative_to(self.folder)) for each in found if each.is_file()]
        if not (kept := [name for name in names if self.has(name)]):
            raise NotInContext(f"{path} is not in the build context")
        yield from kept


def _pattern(rule: str) -> str:
    """A rule names a path and all below it; `**` stands for any number of folders."""
    parts = []
    for part in rule.strip("/").split("/"):
        if part == "**":
            parts.append("(?:[^/]+/)*")
        else:
            parts.append(re.escape(part).replace(r"\*", "[^/]*").replace(r"\?", "[^/]") + "/")
    return f"{''.join(parts).removesuffix('/')}(?:/.*)?"

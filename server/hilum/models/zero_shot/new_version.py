"""A new version of a zero-shot release: the same two towers, and other prompts."""

from __future__ import annotations

import re
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hilum.errors import ConfigurationError
from hilum.models.build import artefact, export
from hilum.models.formats import identity, safetensors
from hilum.models.manifest import label_names, manifest
from hilum.models.manifest.labels import LabelTable
from hilum.models.manifest.manifest import Manifest
from hilum.models.manifest.prompts import PromptsTable
from hilum.models.zero_shot import prompt_set, prompts_file
from hilum.models.zero_shot.prompt_set import PromptSet
from hilum.store.archive.directory_sync import sync_file_system
from hilum.toml import toml_text

_WEIGHTS: Final = "weights.safetensors"
_OF_NUMBERS: Final = ("operating_points", "calibration", "golden", "quantisation")
"""Tables that belong to the numbers of a version, and so to its prompts."""
_OPEN: Final = re.compile(r"#\s*EDIT\b")
_MEANING: Final = {"concept", "private", "text"}


@dataclass(frozen=True, slots=True)
class PromptsRequest:
    """The person's choices. None: the next version, the tokenizer beside the release."""

    prompts: Path
    version: str | None = None
    tokenizer: Path | None = None
    weights_dir: Path | None = None


@dataclass(frozen=True, slots=True)
class NewPrompts:
    """The new folder, its numbers of findings and prompts, and the tables that were left out."""

    folder: Path
    findings: int
    prompts: int
    left_out: tuple[str, ...]


def with_prompts(read: Manifest, request: PromptsRequest, manifests_dir: Path) -> NewPrompts:
    """Make `<name>@<version>` below `manifests_dir`.

    Raises ConfigurationError, and leaves nothing.
    """
    kept = read.table.prompts
    if kept is None:
        raise ConfigurationError(
            [f"{read.release.id}: its task is {read.release.task}; only zero_shot has prompts"]
        )
    folder = manifests_dir / f"{read.release.name}@{request.version or _next(read)}"
    if folder.exists():
        raise ConfigurationError([f"{folder} is there already: take another --version"])
    made = _prompt_set(read, kept, request)
    with tempfile.TemporaryDirectory(dir=manifests_dir, prefix=".prompts-") as scratch:
        made_in = Path(scratch, folder.name)
        made_in.mkdir()
        left_out = _write(read, made, made_in, request.weights_dir)
        sync_file_system(made_in)
        made_in.replace(folder)
    count = sum(len(pair.positive) + len(pair.negative) for pair in made.pairs)
    return NewPrompts(folder, len(made.pairs), count, left_out)


def _next(read: Manifest) -> str:
    version = read.release.version
    if not version.isdecimal():
        raise ConfigurationError(
            [f"{read.release.id}: say with --version what follows version {version}"]
        )
    return str(int(version) + 1)


def _prompt_set(read: Manifest, kept: PromptsTable, request: PromptsRequest) -> PromptSet:
    findings = prompts_file.read(request.prompts)
    path = prompt_set.pinned(read, kept.text_tower)
    vocabulary = request.tokenizer or read.path.parent / kept.tokenizer.file
    return prompt_set.make(
        findings, safetensors.read(path), vocabulary, kept.tokenizer.sha256, path.name
    )


def _write(
    read: Manifest, made: PromptSet, folder: Path, weights_dir: Path | None
) -> tuple[str, ...]:
    """Write the files, check that the release can be built, and name the tables left out."""
    towers = safetensors.read(artefact.find_weights(read, weights_dir))
    weights = folder / _WEIGHTS
    safetensors.write(weights, {**towers, **made.embeddings})
    old = tomllib.loads(read.text)
    content = {
        **{name: value for name, value in old.items() if name not in _OF_NUMBERS},
        "version": folder.name.partition("@")[2],
        "labels": _labels(read, made),
        "weights": {"file": _WEIGHTS, "sha256": identity.file_sha256(weights)},
        "prompts": made.write(folder),
    }
    path = folder / manifest.FILE_NAME
    path.write_text(_heading(read) + toml_text(content), encoding="utf-8")
    export.network(manifest.read(path), weights)
    return tuple(name for name in _OF_NUMBERS if name in old)


def _heading(read: Manifest) -> str:
    """Return the first lines; the open questions of the old version go along."""
    open_lines = [line.strip() for line in read.text.splitlines() if _OPEN.search(line)]
    return (
        f"# Made by `hilum models prompts` from {read.release.id}. Other prompts, other scores:\n"
        "# find operating points, calibration and golden cases anew.\n"
        + "".join(f"# EDIT, as in {read.release.id}: {line}\n" for line in open_lines)
    )


def _labels(read: Manifest, made: PromptSet) -> Sequence[Mapping[str, Any]]:
    """Return a label for each pair: that of the old version where it has the finding."""
    assert read.table.prompts is not None
    old = {
        label_names.plain(pair.finding): label
        for pair, label in zip(read.table.prompts.pairs, read.table.labels, strict=True)
    }
    return [
        {
            **_meaning(old.get(label_names.plain(pair.finding)), pair.finding, index),
            "operating_point": "none",
        }
        for index, pair in enumerate(made.pairs)
    ]


def _meaning(known: LabelTable | None, finding: str, index: int) -> dict[str, Any]:
    said = {} if known is None else known.model_dump(include=_MEANING, exclude_none=True)
    return said or _new_label(finding, index)


def _new_label(finding: str, index: int) -> dict[str, Any]:
    if concept := label_names.concept_of(finding):
        return {"concept": concept}
    return {"private": label_names.private_code(finding, index), "text": finding}

"""From a checkpoint to a release folder.

`<name>@<version>/` has manifest.toml and weights.safetensors. It is written whole or not at all.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from hilum.errors import ConfigurationError
from hilum.models.build import export
from hilum.models.formats import identity, pickled, safetensors
from hilum.models.importing import download, draft, locked_process, published
from hilum.models.importing.kinds import KINDS, ImportRequest
from hilum.models.manifest import manifest
from hilum.store.archive.directory_sync import sync_file_system
from hilum_preprocessing.spec.fields import nearest


@dataclass(frozen=True, slots=True)
class Imported:
    """The folder, and the lines of its manifest that a person has to check."""

    folder: Path
    to_edit: tuple[str, ...]


def import_release(
    kind: str, request: ImportRequest, name: str, version: str, out: Path
) -> Imported:
    """Make `out/<name>@<version>/`.

    Raises ConfigurationError, and leaves nothing.
    """
    if kind not in KINDS:
        raise ConfigurationError([f"unknown kind {kind!r}{nearest(kind, (*KINDS, 'onnx'))}"])
    target = out / f"{name}@{version}"
    if target.exists():
        raise ConfigurationError([f"{target} is there already: take another version, or remove it"])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".importing-") as scratch:
        folder = Path(scratch, target.name)
        folder.mkdir()
        drafted = KINDS[kind](request, read_tensors(request.source, Path(scratch)))
        written = _write(drafted, name, version, folder)
        sync_file_system(folder)
        folder.replace(target)
    return Imported(target, _open_lines(written))


def _open_lines(text: str) -> tuple[str, ...]:
    """Return the lines of a manifest that a person has to check."""
    lines = [line for line in text.splitlines() if not line.startswith("# Written by")]
    return tuple(line for line in lines if "EDIT" in line)


def checkpoint(source: str, sha256: str | None, scratch: Path, *, is_fetched: bool) -> Path:
    """Return the file of this name, or torchxrayvision's release of it, fetched into `scratch`.

    Raises ConfigurationError.
    """
    if is_fetched != (sha256 is not None):
        raise ConfigurationError(
            ["--download and --sha256 go together: what nobody vouches for is not fetched"]
        )
    if sha256 is None:
        return Path(source)
    release = published.named(source, Path(source))
    destination = scratch / release.file
    download.fetch(release.address, sha256, destination)
    return destination


def read_tensors(source: Path, scratch: Path) -> dict[str, Tensor]:
    """Return the tensors by their authors' names.

    A pickle is read in a process of its own. Raises ConfigurationError.
    """
    if not source.is_file():
        raise ConfigurationError([f"{source}: no such file"])
    if not pickled.is_pickle(source):
        return safetensors.read(source)
    converted = scratch / "converted.safetensors"
    locked_process.to_safetensors(source, converted)
    return safetensors.read(converted)


def _write(drafted: draft.ImportedDraft, name: str, version: str, folder: Path) -> str:
    """Write the files and check that the release can be built.

    The manifest must be valid, and the network must take the weights.
    """
    weights = folder / draft.WEIGHTS
    safetensors.write(weights, drafted.tensors)
    prompts = drafted.prompts.write(folder) if drafted.prompts else None
    text = draft.text(drafted, name, version, identity.file_sha256(weights), prompts)
    path = folder / manifest.FILE_NAME
    path.write_text(text, encoding="utf-8")
    export.network(manifest.read(path), weights)
    return text

"""The prompts of a release as files beside its manifest, and as the manifest's table."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from hilum.errors import ConfigurationError
from hilum.models.formats import identity, safetensors
from hilum.models.manifest.manifest import Manifest
from hilum.models.manifest.prompts import PinnedFileTable, PromptPairTable, pairs_sha256
from hilum.models.zero_shot import clip_bpe, embeddings
from hilum.models.zero_shot.prompts_file import FindingPrompts

TEXT_TOWER: Final = "text.safetensors"
VOCABULARY: Final = "vocabulary.bpe"


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts with their tokens and embeddings, and the two files that made them."""

    pairs: Sequence[PromptPairTable]
    embeddings: Mapping[str, Tensor]
    text_tower: Mapping[str, Tensor]
    vocabulary: Path

    def write(self, folder: Path) -> dict[str, Any]:
        """Write the text tower and the vocabulary; return the content of the table `prompts`."""
        safetensors.write(folder / TEXT_TOWER, self.text_tower)
        shutil.copyfile(self.vocabulary, folder / VOCABULARY)
        pairs = [pair.model_dump(mode="json") for pair in self.pairs]
        return {
            "rule": "pair_softmax",
            "tokenizer": _pinned(folder / VOCABULARY),
            "text_tower": _pinned(folder / TEXT_TOWER),
            "sha256": pairs_sha256(pairs),
            "pairs": pairs,
        }


def _pinned(path: Path) -> dict[str, str]:
    return {"file": path.name, "sha256": identity.file_sha256(path)}


def pinned(read: Manifest, table: PinnedFileTable) -> Path:
    """Return the path of a file beside the manifest, as the manifest says.

    Raises ConfigurationError: it is missing, or another one.
    """
    path = read.path.parent / table.file
    if not path.is_file():
        problem = f"{table.file} (sha256 {table.sha256}) is not beside the manifest"
        raise ConfigurationError([f"{read.release.id}: {problem}"])
    if (found := identity.file_sha256(path)) != table.sha256:
        raise ConfigurationError(
            [f"{path} has sha256 {found}, the manifest {table.sha256}: bring that file"]
        )
    return path


def make(
    findings: Sequence[FindingPrompts],
    text_tower: Mapping[str, Tensor],
    vocabulary: Path,
    sha256: str,
    origin: str,
) -> PromptSet:
    """Return the prompts, embedded by this text tower. `sha256`: of the vocabulary.

    Raises ConfigurationError: half a tower, another tokenizer, a prompt longer than the context.
    """
    tower = embeddings.text_tower(text_tower, origin)
    tokenizer = clip_bpe.read(vocabulary, sha256, tower.shape.vocabulary)
    pairs = embeddings.tokenised(findings, tokenizer, tower.shape.context)
    return PromptSet(pairs, embeddings.embedded(pairs, tower), text_tower, vocabulary)

"""A CheXzero of small towers: its checkpoint, its vocabulary, and the release of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from hilum.models.formats import identity
from hilum.models.importing import release_folder
from hilum.models.importing.request import ImportRequest
from hilum.models.manifest import manifest
from hilum.models.manifest.manifest import Manifest
from hilum.models.manifest.prompts import PromptTable
from tests.support.models.clip import checkpoint, image_forward, text_forward, write_vocabulary

PROMPTS = """
findings = [
  "Pneumothorax",
  { label = "Edema", positive = ["edema", "a lot of {finding}"] },
  { label = "Rib plate", positive = ["metal"], negative = ["no metal", "bone"] },
]
"""


@dataclass(frozen=True)
class SmallChexzero:
    """The files that a person has, and the tensors in them."""

    folder: Path
    tensors: dict[str, Tensor]

    @property
    def checkpoint(self) -> Path:
        return self.folder / "best.pt"

    @property
    def vocabulary(self) -> Path:
        return self.folder / "vocabulary.txt.gz"

    @property
    def prompts(self) -> Path:
        return self.folder / "prompts.toml"

    def request(self, **changes: object) -> ImportRequest:
        """What a person asks for who does everything right."""
        usual = {
            "source": self.checkpoint,
            "prompts": self.prompts,
            "tokenizer": self.vocabulary,
            "tokenizer_sha256": identity.file_sha256(self.vocabulary),
        }
        return ImportRequest(**{**usual, **changes})  # type: ignore[arg-type]  # by name

    def imported(self, out: Path) -> Manifest:
        """The release cx@1 in this folder."""
        made = release_folder.import_release("chexzero", self.request(), "cx", "1", out)
        return manifest.read(made.folder / manifest.FILE_NAME)

    def cosines(self, read: Manifest, images: np.ndarray) -> tuple[Tensor, Tensor]:
        """Cosines of images on the wire with the positive and the negative prompts.

        By torch's own layers, from the checkpoint and the tokens of the manifest.
        """
        mean, std = (101.48761, 83.43944)
        pixels = (torch.from_numpy(images).float().expand(-1, 3, -1, -1) - mean) / std
        found = image_forward(pixels, self.tensors)
        assert read.table.prompts is not None
        pairs = read.table.prompts.pairs
        positive = torch.stack([self.embedded(pair.positive) for pair in pairs])
        negative = torch.stack([self.embedded(pair.negative) for pair in pairs])
        return found @ positive.T, found @ negative.T

    def embedded(self, prompts: tuple[PromptTable, ...]) -> Tensor:
        rows = [text_forward(torch.tensor(prompt.tokens), self.tensors) for prompt in prompts]
        return functional.normalize(torch.cat(rows).mean(0), dim=0)


def small_chexzero(folder: Path) -> SmallChexzero:
    """Write the files as a person has them."""
    folder.mkdir(parents=True, exist_ok=True)
    made = SmallChexzero(folder, checkpoint())
    torch.save(made.tensors, made.checkpoint)
    write_vocabulary(made.vocabulary)
    made.prompts.write_text(PROMPTS)
    return made

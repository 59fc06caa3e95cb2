"""The check of a zero-shot release: its embeddings must come from its words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hilum.errors import ConfigurationError
from hilum.models.build import artefact
from hilum.models.facts import Fact, FactVerdict, Places
from hilum.models.manifest.manifest import Manifest
from hilum.models.manifest.prompts import PromptsTable

if TYPE_CHECKING:
    from hilum.models.zero_shot.prompts_file import FindingPrompts

_ALLOWED: Final = 1e-5  # of a number of an embedding: one tower in float32 on two machines


def prompt_facts(read: Manifest, places: Places) -> Iterator[Fact]:
    """Yield whether text, tokens and embeddings belong together; nothing without prompts."""
    prompts = read.table.prompts
    if prompts is None:
        return
    files = (prompts.tokenizer.file, prompts.text_tower.file)
    missing = [name for name in files if not (read.path.parent / name).is_file()]
    if missing:
        absent = f"{' and '.join(missing)} not here; only `hilum models prompts` reads them"
        yield FactVerdict.NOTE, f"prompts: {absent}"
        return
    worst = _largest_difference(read, prompts, places)
    said = f"prompts: the text tower's embeddings are {worst:.2g} off those of the weights"
    yield (FactVerdict.OK if worst <= _ALLOWED else FactVerdict.PROBLEM), said


def _largest_difference(read: Manifest, prompts: PromptsTable, places: Places) -> float:
    """Return how far the weights' embeddings are from those that the text tower gives now.

    Raises ConfigurationError where a file or a token is another one, or embeddings are missing.
    """
    from hilum.models.formats import safetensors  # noqa: PLC0415 - torch
    from hilum.models.zero_shot import clip_bpe, embeddings, prompt_set  # noqa: PLC0415 - torch

    path = prompt_set.pinned(read, prompts.text_tower)
    vocabulary = prompt_set.pinned(read, prompts.tokenizer)
    tower = embeddings.text_tower(safetensors.read(path), path.name)
    tokenizer = clip_bpe.read(vocabulary, prompts.tokenizer.sha256, tower.shape.vocabulary)
    if embeddings.tokenised(_findings(prompts), tokenizer, tower.shape.context) != prompts.pairs:
        raise ConfigurationError(["prompts: the tokenizer gives other tokens than those here"])
    weights = safetensors.read(artefact.find_weights(read, places.weights_dir))
    found = embeddings.embedded(prompts.pairs, tower)
    for name, tensor in found.items():
        if name not in weights or weights[name].shape != tensor.shape:
            problem = f"prompts: the weights have no {name} of {tuple(tensor.shape)}"
            raise ConfigurationError([problem])
    return max(float((tensor - weights[name]).abs().max()) for name, tensor in found.items())


def _findings(prompts: PromptsTable) -> list[FindingPrompts]:
    from hilum.models.zero_shot.prompts_file import FindingPrompts  # noqa: PLC0415 - torch

    return [
        FindingPrompts(
            pair.finding,
            tuple(prompt.text for prompt in pair.positive),
            tuple(prompt.text for prompt in pair.negative),
        )
        for pair in prompts.pairs
    ]

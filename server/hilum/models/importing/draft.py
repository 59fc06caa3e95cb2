"""The text of a manifest for an imported network.

It is whole and valid, with `# EDIT` where only a person can know the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from hilum.models.zero_shot.prompt_set import PromptSet
from hilum.toml import quoted, toml_text

WEIGHTS = "weights.safetensors"


@dataclass(frozen=True, slots=True)
class ImportedDraft:
    """The results of an importer.

    Lines are TOML; `options` and `operating_points` are keys with TOML values.
    """

    tensors: Mapping[str, Tensor]
    architecture: str
    activation: str
    label_lines: Sequence[str]
    input_lines: Sequence[str]
    manufacturer: str
    licence: str
    source: str
    citation: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    operating_points: Mapping[str, str] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    max_batch: int = 16
    prompts: PromptSet | None = None
    tolerance: float | None = None


def text(
    draft: ImportedDraft,
    name: str,
    version: str,
    sha256: str,
    prompts: Mapping[str, Any] | None = None,
) -> str:
    """Return a whole manifest.toml.

    `prompts`: the content of that table, for a zero-shot release.
    """
    lines = "\n".join(_lines(draft, name, version, sha256)) + "\n"
    return lines if prompts is None else lines + toml_text({"prompts": prompts})


def _lines(draft: ImportedDraft, name: str, version: str, sha256: str) -> Iterator[str]:
    yield from _head(draft, name, version)
    yield "\n# In the order of the outputs."
    yield from ("labels = [", *draft.label_lines, "]")
    yield (
        f'\n[model]\narchitecture = "{draft.architecture}"\nactivation ='
        f' "{draft.activation}"\nmax_batch = {draft.max_batch}'
    )
    yield from _table("model.options", draft.options)
    yield f'\n[weights]\nfile = "{WEIGHTS}"\nsha256 = "{sha256}"'
    yield from ("\n[input]", *draft.input_lines)
    yield "# EDIT: whom the network may read, for instance"
    yield '# population = { minimum_age_years = 18, cites = "its authors trained it on adults" }'
    yield from _table("operating_points", draft.operating_points)
    yield '\n[engine]\nname = "openvino"\nprecision = "f32"'
    if draft.tolerance is not None:
        yield f"tolerance = {draft.tolerance:g} # of a logit; its usual size is near 0.1"
    yield (
        '\n[study]\naggregation = "max" # EDIT: max, mean or first_frontal: how images become a'
        " study"
    )


def _head(draft: ImportedDraft, name: str, version: str) -> Iterator[str]:
    yield (
        "# Written by `hilum models import`. Look at every line that says EDIT, then `hilum models"
        " check` and `hilum models build`."
    )
    yield from (f"# {remark}" for remark in draft.remarks)
    yield "format = 1"
    yield f"name = {quoted(name)}"
    yield f"version = {quoted(version)}"
    if draft.prompts is not None:
        yield 'task = "zero_shot"'
    yield (
        f"manufacturer = {quoted(draft.manufacturer)} # EDIT: who stands behind the weights; in"
        " every report"
    )
    yield (
        'intended_use = "Research. Not for clinical use." # EDIT: for what and for whom; in every'
        " report"
    )
    yield f"licence = {quoted(draft.licence)} # EDIT: of the weights"
    yield f"source = {quoted(draft.source)}"
    if draft.citation:
        yield f"citation = {quoted(draft.citation)}"


def _table(name: str, values: Mapping[str, str]) -> Iterator[str]:
    if values:
        yield f"\n[{name}]"
        yield from (f"{key} = {value}" for key, value in values.items())

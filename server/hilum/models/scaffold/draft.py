"""`hilum models new`: the beginning of a release, from an ONNX file.

Facts of the file are filled in. A guess is written with its reason. Lines that only a person knows
are marked EDIT.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import onnx
from pydantic import TypeAdapter, ValidationError

from hilum.errors import ConfigurationError
from hilum.models.formats import identity
from hilum.models.manifest import label_names, manifest, messages
from hilum.models.manifest.labels import ReleaseName, ReleaseVersion
from hilum.models.onnx import file as onnx_file
from hilum.models.onnx import output_activation
from hilum.models.onnx.contract import Tensor
from hilum.models.scaffold import text as draft_text

_USUAL_SIZE: Final = 224


@dataclass(frozen=True, slots=True)
class GraphFacts:
    """The facts in an ONNX file.

    `size`: height and width, None where any is possible. `ending`: the activation that its output
    comes out of.

    `choices`: all possible outputs, with their lengths; `is_guessed`: several of them fit equally
    well.
    """

    file: str
    sha256: str
    opset: int
    input: str
    channels: int
    size: tuple[int | None, int | None]
    output: str
    outputs: int
    choices: Mapping[str, int]
    is_guessed: bool
    ending: output_activation.Ending | None
    cam: str | None
    is_quantised: bool
    labels: label_names.Named | None

    @property
    def height_and_width(self) -> tuple[int, int]:
        """Height and width in the file, else the most common ones."""
        height, width = self.size
        return height or _USUAL_SIZE, width or _USUAL_SIZE


@dataclass(frozen=True, slots=True)
class Draft:
    """A manifest that waits for its author."""

    release_id: str
    manifest: Path
    edits: int


def draft(
    file: Path, name: str | None, version: str, labels: str | None, manifests_dir: Path
) -> Draft:
    """Write `<manifests_dir>/<name>@<version>/` with a manifest and a copy of the file.

    Raises ConfigurationError and writes nothing.
    """
    facts = read_facts(file, labels)
    name = name or _name(file)
    folder = _free_folder(manifests_dir, name, version)
    text = draft_text.write(facts, name, version)
    folder.mkdir(parents=True)
    shutil.copyfile(file, folder / facts.file)
    path = folder / manifest.FILE_NAME
    path.write_text(text, encoding="utf-8")
    edits = sum(messages.EDIT in line for line in text.splitlines()[draft_text.HEAD_LINES :])
    return Draft(folder.name, path, edits)


def _free_folder(manifests_dir: Path, name: str, version: str) -> Path:
    if problems := [
        *_misspelt("--name", name, ReleaseName),
        *_misspelt("--version", version, ReleaseVersion),
    ]:
        raise ConfigurationError(problems)
    folder = manifests_dir / f"{name}@{version}"
    if folder.exists():
        raise ConfigurationError(
            [f"{folder} exists: take another --name or --version, or delete it"]
        )
    return folder


def _misspelt(option: str, value: str, kind: Any) -> list[str]:  # noqa: ANN401 - an annotated type
    """Return the problems of a name, before a folder is made with it."""
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        return [f"{option} {value}: {item['msg']}" for item in error.errors()]
    return []


def read_facts(file: Path, labels: str | None) -> GraphFacts:
    """Return the facts in an ONNX file.

    Raises ConfigurationError with every reason why the network cannot be served.
    """
    model = _servable(file)
    input_name, (_, (_, channels, height, width)) = next(iter(onnx_file.inputs_of(model).items()))
    assert channels is not None
    outputs = onnx_file.outputs_of(model)
    choices = {
        name: sizes[1] for name, (_, sizes) in outputs.items() if len(sizes) == 2 and sizes[1]
    }
    metadata = onnx_file.metadata(model)
    output, *others = label_names.fitting(labels, metadata, choices)
    count = choices[output]
    return GraphFacts(
        file=re.sub(r"[^\w.+-]", "_", file.name),
        sha256=identity.file_sha256(file),
        opset=_opset(model),
        input=input_name,
        channels=channels,
        size=(height, width),
        output=output,
        outputs=count,
        choices=choices,
        is_guessed=bool(others),
        ending=output_activation.ending(model, output),
        cam=_maps(outputs, count),
        is_quantised=onnx_file.is_quantised(model),
        labels=label_names.named(labels, metadata, count),
    )


def _servable(file: Path) -> onnx.ModelProto:
    if not file.is_file():
        raise ConfigurationError([f"{file}: no such file"])
    model = onnx_file.read(file)
    problems = [
        *_input_problems(onnx_file.inputs_of(model)),
        *_output_problems(onnx_file.outputs_of(model)),
    ]
    if problems:
        raise ConfigurationError([f"{file}: {problem}" for problem in problems])
    return model


def _opset(model: onnx.ModelProto) -> int:
    return next((each.version for each in model.opset_import if each.domain in {"", "ai.onnx"}), 0)


def _maps(outputs: Mapping[str, Tensor], count: int) -> str | None:
    return next(
        (name for name, (_, sizes) in outputs.items() if len(sizes) == 4 and sizes[1] == count),
        None,
    )


def _input_problems(inputs: dict[str, Tensor]) -> list[str]:
    if len(inputs) != 1:
        return [f"it has {len(inputs)} inputs ({', '.join(inputs)}); one image goes in"]
    name, (kind, sizes) = next(iter(inputs.items()))
    if len(sizes) == 4 and sizes[1] not in {1, 3} and sizes[3] in {1, 3}:
        return [f"input {name} is {sizes}, channels last: export it channels first, (N, C, H, W)"]
    if len(sizes) != 4 or sizes[1] not in {1, 3}:
        return [f"input {name} is {sizes}; an image is (N, C, H, W) with one channel or three"]
    return list(_image_problems(name, kind, sizes[0]))


def _image_problems(name: str, kind: int, batch: int | None) -> Iterator[str]:
    if kind != onnx.TensorProto.FLOAT:
        shown = onnx.TensorProto.DataType.Name(kind).lower()
        yield f"input {name} is {shown}: export it with float32 inputs"
    if batch is not None:
        yield (
            f"input {name} takes batches of {batch} only: export it with a dynamic batch"
            " (torch.onnx: dynamic_shapes)"
        )


def _output_problems(outputs: dict[str, Tensor]) -> list[str]:
    shown = ", ".join(f"{name} {sizes}" for name, (_, sizes) in outputs.items())
    if not any(len(sizes) == 2 and sizes[1] for _, sizes in outputs.values()):
        return [f"its outputs are {shown}; one of them must be (N, labels), of known length"]
    return []


def _name(file: Path) -> str:
    """Return a release name: small letters, digits and _, a letter first."""
    name = re.sub(r"[^a-z0-9]+", "_", file.stem.lower()).strip("_")[:40].strip("_")
    return name if re.match(r"[a-z]", name) else f"model_{name}"[:40].rstrip("_")

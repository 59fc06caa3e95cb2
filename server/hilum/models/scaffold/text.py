"""The text of a drafted manifest.

Each function writes one part, each line with the reason for its value.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hilum.models.manifest import label_names, terminology
from hilum.toml import inline, quoted
from hilum_preprocessing import RECIPES
from hilum_preprocessing.spec.input_spec import InputSpec

if TYPE_CHECKING:
    from hilum.models.scaffold.draft import GraphFacts

HEAD_LINES: Final = 3
# (channels, side) → the recipe that most networks of this form were trained with.
_LIKELY: Final = {
    (1, 224): "torchxrayvision_224",
    (1, 512): "torchxrayvision_512",
    (3, 224): "chexnet_nih_224",
    (3, 320): "chexpert_320",
    (3, 448): "biovil_448",
    (3, 512): "jfhealthcare_512",
    (3, 896): "medgemma_896",
}
_WIDTH: Final = 118


def write(facts: GraphFacts, name: str, version: str) -> str:
    """Return the whole file."""
    parts = (
        _head(facts, name, version),
        _labels(facts),
        _model(facts),
        _weights(facts),
        _input(facts),
        _engine(facts),
        _later(),
    )
    return "\n".join(line for part in parts for line in (*part, ""))


def _head(facts: GraphFacts, name: str, version: str) -> Iterator[str]:
    height, width = facts.size
    given = label_names.printable(facts.input)
    answer = label_names.printable(facts.output)
    yield f"# Begun by `hilum models new` from {facts.file}: opset {facts.opset},"
    yield (
        f"# {given} (N, {facts.channels}, {height or 'any'}, {width or 'any'}) → {answer} (N,"
        f" {facts.outputs})."
    )
    yield (
        "# Lines with EDIT are yours: no file says these things. docs/models/manifest.md explains"
        " every field."
    )
    yield "format = 1"
    yield f"name = {quoted(name)}"
    yield f"version = {quoted(version)}"
    yield 'manufacturer = "EDIT: who stands behind the weights"'
    yield 'intended_use = "EDIT: for what and for whom; what is known about how good it is"'
    yield 'licence = "EDIT: of the weights"'
    yield 'source = "EDIT: where somebody else finds this very file"'


def _labels(facts: GraphFacts) -> Iterator[str]:
    if facts.labels is None:
        yield (
            "# What each output means, in their order: a concept of docs/models/terminology.md, or"
            " a private code and its text."
        )
    else:
        yield from _comment(f"In the order of the outputs, from {facts.labels.origin}.")
    yield (
        '# "none": scored, never decided. Put numbers where you have them, and say below where they'
        " come from."
    )
    yield "labels = ["
    names = facts.labels.names if facts.labels else (None,) * facts.outputs
    yield from (
        f"  {_label(name, index)}, # {index}{f': {name}' if name else ''}"
        for index, name in enumerate(names)
    )
    yield "]"


def _label(name: str | None, index: int) -> str:
    if name is None:
        return (
            f'{{ private = "OUTPUT_{index}", text = "EDIT: what output {index} means",'
            ' operating_point = "none" }'
        )
    if not name:
        return "{ is_masked = true }"
    concept = label_names.concept_of(name)
    if concept is None:
        code = label_names.private_code(name, index)
        return (
            f'{{ private = {quoted(code)}, text = {quoted(name[:64])}, operating_point = "none" }}'
        )
    if not terminology.load().concepts[concept].is_assertable:
        return f"{{ concept = {quoted(concept)} }}"
    return f'{{ concept = {quoted(concept)}, operating_point = "none" }}'


def _model(facts: GraphFacts) -> Iterator[str]:
    yield "[model]"
    yield 'architecture = "onnx"'
    if facts.ending and facts.ending.logits is None:
        yield (
            f'activation = "none" # its scores come out of a {facts.ending.activation} already; see'
            " weights.output"
        )
    elif facts.ending:
        yield (
            f'activation = "{facts.ending.activation}" # the last operator of the network; see'
            " weights.output"
        )
    else:
        yield (
            'activation = "sigmoid" # EDIT: a guess. "softmax" where exactly one label is true for'
            ' an image, "none" for other numbers'
        )
    yield "max_batch = 16"


def _weights(facts: GraphFacts) -> Iterator[str]:
    yield "[weights]"
    yield f"file = {quoted(facts.file)}"
    yield f'sha256 = "{facts.sha256}"'
    yield f"input = {quoted(facts.input)}"
    yield from _output(facts)
    if facts.cam:
        yield (
            f"# cam = {quoted(facts.cam)} # EDIT: remove the first # if these are class activation"
            " maps: mean of a map + bias = logit"
        )


def _output(facts: GraphFacts) -> Iterator[str]:
    if len(facts.choices) > 1:
        yield from _comment(_choices(facts))
    answer = label_names.printable(facts.output)
    ended = facts.ending
    if ended and ended.logits:
        yield (
            f"# {answer} is a {ended.activation} already; this is the tensor before it, so that"
            " logits are logits."
        )
    elif ended:
        yield from _comment(
            f"{answer} is a {ended.activation} already, and no single tensor holds the logits"
            " before it: its scores are taken as they are."
            f" Exported without that {ended.activation}, it would have logits, which a"
            " temperature or Platt's method need."
        )
    yield f"output = {quoted((ended and ended.logits) or facts.output)}"


def _choices(facts: GraphFacts) -> str:
    shown = ", ".join(
        f"{label_names.printable(name)} (N, {length})" for name, length in facts.choices.items()
    )
    guess = "EDIT: a guess; " if facts.is_guessed else ""
    return f"{guess}its outputs are {shown}; {label_names.printable(facts.output)} is taken."


def _input(facts: GraphFacts) -> Iterator[str]:
    height, width = facts.height_and_width
    fitting = [name for name in RECIPES if _fits(name, facts)]
    likely = _LIKELY.get((facts.channels, height))
    chosen = likely if likely in fitting else next(iter(fitting), None)
    if None in facts.size:
        yield f"# The network takes any size; {height} x {width} is a guess."
    yield "[input]"
    if chosen is None:
        yield from _own_input(facts)
        return
    yield (
        f'recipe = "{chosen}" # EDIT: a guess by form ({facts.channels} x {height} x {width});'
        " which one was it trained with?"
    )
    yield from (line for name in fitting for line in _comment(f"{name}: {RECIPES[name]['cites']}"))
    yield '# population = { minimum_age_years = 18, cites = "its authors trained it on adults" }'


def _fits(recipe: str, facts: GraphFacts) -> bool:
    spec = InputSpec.from_mapping({"recipe": recipe})
    return spec.model_channels == facts.channels and spec.wire_shape[1:] == facts.height_and_width


def _own_input(facts: GraphFacts) -> Iterator[str]:
    """Yield an input of one's own where no published recipe has this form.

    The picture is squashed to 8 bits. The statistics are those of most networks of photographs.
    """
    height, width = facts.height_and_width
    mean, std = (
        ([123.675, 116.28, 103.53], [58.395, 57.12, 57.375])
        if facts.channels == 3
        else ([127.5], [127.5])
    )
    size = {"height": height, "width": width}
    resize = {"op": "resize", **size, "kernel": "pil_bilinear_aa", "compute": "uint8_rounded"}
    yield (
        f'cites = "EDIT: no recipe is {facts.channels} x {height} x {width}; correct these steps'
        ' and say where they are written down"'
    )
    yield (
        "intensity ="
        f" {inline([{'op': 'maxval', 'of': 'bits'}, {'op': 'to_uint8', 'mode': 'round'}])}"
    )
    yield f"geometry = {inline([resize])}"
    yield f"target = {inline({**size, 'dtype': 'uint8'})}"
    yield f"normalise = {inline({'mean': mean, 'std': std, 'channels': facts.channels})}"
    yield 'views = "frontal_only"'


def _engine(facts: GraphFacts) -> Iterator[str]:
    yield "[engine]"
    if facts.is_quantised:
        yield 'name = "onnxruntime"'
        yield 'precision = "int8" # the network is quantised'
        yield (
            'optimisation = "disabled" # fused int8 kernels depend on the CPU: without fusion two'
            " hosts give the same numbers"
        )
    else:
        yield 'name = "openvino" # on CPUs twice as fast as onnxruntime'
        yield 'precision = "f32"'


def _later() -> Iterator[str]:
    yield "# For later, without the #:"
    yield "# [operating_points] # required with the first number"
    yield '# measured_on = "…"'
    yield '# criterion = "…"'
    yield "#"
    yield "# [calibration] # without it no number is called a probability"
    yield '# method = "temperature"'
    yield "# temperature = 1.5"
    yield '# measured_on = "…"'
    yield "#"
    yield "# [[golden]] # an image with an answer that you know: proved at each build and each load"
    yield '# file = "case.dcm"'
    yield '# sha256 = "…"'
    yield "# scores = { pneumothorax = 0.93 }"
    yield "# tolerance = 0.005"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_long_words=False
    )

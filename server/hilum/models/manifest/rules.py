"""Rules that span tables of a manifest, broken although every field by itself is right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from hilum.models.formats import pickled
from hilum.models.manifest import prompts, terminology
from hilum.models.manifest.labels import CalibrationTable, GoldenTable, LabelTable
from hilum.models.manifest.tables import ManifestTable, ModelTable

STRIDES: Final[Mapping[str, int]] = {
    "clip_vit": 1,
    "densenet121": 32,
    "resnet50": 32,
    "vit": 1,
    "vit_b16": 16,
    "onnx": 1,
}
"""Known architectures, and the number that the input's size must be a multiple of.

For `vit` it is the patch. For `clip_vit` it is the patch, too, which its weights say.
"""
_POOLS: Final = frozenset({"densenet121", "resnet50"})
_PICKLES: Final = (".pth", ".pt", ".pth.tar", ".ckpt", ".pkl", ".bin")
Nearest = Callable[[str, Iterable[str]], str]


def stride(model: ModelTable) -> int:
    """Return the number that height and width must be multiples of."""
    return model.options.patch if model.architecture == "vit" else STRIDES[model.architecture]


def has_cam(table: ManifestTable) -> bool:
    """Whether `cam` is served: as the manifest has it, else where it is exact."""
    return _can_have_cam(table) if table.model.cam is None else table.model.cam


def problems(table: ManifestTable, folder: str, nearest: Nearest) -> Iterator[str]:
    """Yield every problem; `nearest` ends a message about an unknown name."""
    release_id = f"{table.name}@{table.version}"
    if folder != release_id:
        yield f"the folder is {folder!r}, but the release is {release_id}: rename one"
    yield from _weights_problems(table)
    yield from _prompt_problems(table)
    yield from _name_problems(table, nearest)
    for index, label in enumerate(table.labels):
        yield from (f"labels.{index}{problem}" for problem in _decision_problems(label, table))
    yield from _origin_problems(table)
    if table.calibration is not None:
        yield from _calibration_problems(table.calibration, table)
    for index, golden in enumerate(table.golden):
        yield from (f"golden.{index}.{problem}" for problem in _golden_problems(golden, table))


def _origin_problems(table: ManifestTable) -> Iterator[str]:
    has_point = any(isinstance(label.operating_point, float) for label in table.labels)
    if table.operating_points is None and has_point:
        yield (
            "operating_points: missing; say where the operating points come from: measured_on and"
            " criterion"
        )


def _weights_problems(table: ManifestTable) -> Iterator[str]:
    architecture = table.model.architecture
    weights = table.weights
    yield from (f"weights: {problem}" for problem in _file_problems(architecture, weights.files))
    yield from (f"weights.members: {name} stands twice" for name in _twice(weights.member_names))
    if architecture == "onnx" and not weights.is_trained:
        yield "weights: an onnx network cannot be made from a seed; give file and sha256"
    if table.engine.precision == "int8" and architecture != "onnx":
        yield "engine.precision: int8 needs an onnx file that was quantised"
    if table.model.cam and not _can_have_cam(table):
        yield f"model.cam: no exact map here: {_why_no_cam(table)}"
    if architecture != "vit" and table.model.options.model_fields_set:
        yield "model.options: these belong to the architecture vit"


def _prompt_problems(table: ManifestTable) -> Iterator[str]:
    is_made_for_prompts = table.model.architecture in prompts.MAKERS
    if table.prompts is None:
        if is_made_for_prompts or table.task == "zero_shot":
            yield "prompts: missing; `hilum models import` writes them for a zero-shot release"
        return
    if not is_made_for_prompts:
        known = ", ".join(sorted(prompts.MAKERS))
        yield f"prompts: {table.model.architecture} takes none, only {known}"
    if table.task != "zero_shot":
        yield 'task: a release with prompts is "zero_shot"'
    if not table.weights.is_trained or table.weights.members:
        yield "weights: a zero-shot release has one file of weights: no seed, no members"
    if table.model.activation != "sigmoid":
        yield f"model.activation: the rule {table.prompts.rule} is the sigmoid of the logit"
    yield from (f"prompts.{each}" for each in prompts.problems(table.prompts, table.labels))


def _file_problems(architecture: str, files: Iterable[str]) -> Iterator[str]:
    suffix = ".onnx" if architecture == "onnx" else ".safetensors"
    for file in files:
        if file.endswith(_PICKLES):
            yield f"{file} is {pickled.ADVICE}"
        elif not file.endswith(suffix):
            yield f"{architecture} takes {suffix}, got {file}"


def _can_have_cam(table: ManifestTable) -> bool:
    return not _why_no_cam(table)


def _why_no_cam(table: ManifestTable) -> str:
    """Return why maps are not exact; empty where they are.

    A map is exact where its mean and a bias give the logit (Zhou et al., CVPR 2016).
    """
    architecture = table.model.architecture
    if table.weights.rule == "mean_score":
        return "a mean of scores is not linear; the rule mean_logit would be"
    if architecture == "onnx":
        return "" if table.weights.cam else "name the network's own output in weights.cam"
    if architecture == "vit" and (table.model.options.pooling, table.model.options.norm) == (
        "gap",
        "tokens",
    ):
        return ""
    return (
        "" if architecture in _POOLS else f"{architecture} has no linear head on a global average"
    )


def _name_problems(table: ManifestTable, nearest: Nearest) -> Iterator[str]:
    codes = terminology.load()
    keys = [label.key(index) for index, label in enumerate(table.labels)]
    yield from (f"labels: {key} stands twice" for key in _twice(keys))
    taken = _private_codes(codes)
    for index, label in enumerate(table.labels):
        if label.concept and label.concept not in codes.concepts:
            hint = _meant(label.concept, codes, nearest)
            yield f"labels.{index}.concept: unknown {label.concept!r}{hint}"
        if label.private and (label.private in taken or keys[index] in codes.concepts):
            yield (
                f"labels.{index}.private: {label.private} is taken by"
                " docs/models/terminology.md; name its concept, or take another"
            )


def _private_codes(codes: terminology.Terminology) -> set[str]:
    """Return the values of the private codes that the table of concepts has."""
    return {
        concept.code.value
        for concept in codes.concepts.values()
        if concept.code.scheme == terminology.PRIVATE_SCHEME
    }


def _meant(name: str, codes: terminology.Terminology, nearest: Nearest) -> str:
    meant = codes.meant_by(name)
    return f"; a public label, its concept is {meant!r}" if meant else nearest(name, codes.concepts)


def _twice(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


def _decision_problems(label: LabelTable, table: ManifestTable) -> Iterator[str]:
    point = label.operating_point
    concept = terminology.load().concepts.get(label.concept or "")
    is_assertable = concept is None or concept.is_assertable
    if label.rescaled_at is not None and table.model.activation != "sigmoid":
        yield ".rescaled_at: goes with the activation sigmoid"
    if isinstance(point, float):
        if not is_assertable:
            yield f": {label.concept} must have no operating point: nothing may assert it"
        yield from _point_problems(point, table)
    elif point is None and table.weights.is_trained and is_assertable and not label.is_masked:
        yield (
            '.operating_point: missing; give one, or "none" for a label that is scored and never'
            " decided, or is_masked = true"
        )


def _point_problems(point: float, table: ManifestTable) -> Iterator[str]:
    activation = table.model.activation
    if not table.weights.is_trained:
        yield ": untrained weights decide nothing; remove the operating point"
    if activation != "none" and not 0 < point < 1:
        yield f".operating_point: {point} is no {activation} score: those lie between 0 and 1"


def _calibration_problems(given: CalibrationTable, table: ManifestTable) -> Iterator[str]:
    if not table.weights.is_trained:
        yield "calibration: untrained weights cannot be calibrated"
    if given.method == "temperature" and table.model.activation == "none":
        yield "calibration: a temperature needs the activation sigmoid or softmax"
    slopes = set(given.labels or {})
    points = set(given.points or {})
    names = {label.key(index) for index, label in enumerate(table.labels)}
    for field, named in (("labels", slopes), ("points", points)):
        yield from (
            f"calibration.{field}: {name} is no label of this release"
            for name in sorted(named - names)
        )
    if given.method == "platt" and given.a is None and (without := _shown(table) - slopes):
        yield f"calibration.labels: no a and b for {', '.join(sorted(without))}"
    if given.method == "isotonic" and (without := _shown(table) - points):
        yield f"calibration.points: none for {', '.join(sorted(without))}"


def _shown(table: ManifestTable) -> set[str]:
    return {label.key(index) for index, label in enumerate(table.labels) if not label.is_masked}


def _golden_problems(golden: GoldenTable, table: ManifestTable) -> Iterator[str]:
    name, expected = (
        ("logits", golden.logits) if golden.logits is not None else ("scores", golden.scores)
    )
    keys = {label.key(index) for index, label in enumerate(table.labels)}
    if isinstance(expected, Mapping):
        yield from (
            f"{name}: {key} is no label of this release" for key in sorted(set(expected) - keys)
        )
        if not expected:
            yield f"{name}: empty; a case without an answer proves nothing"
    elif expected is not None and len(expected) != len(table.labels):
        yield f"{name}: {len(expected)} numbers, but the release has {len(table.labels)} labels"

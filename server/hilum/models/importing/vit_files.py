"""The configuration files beside a ViT's weights.

They are config.json and preprocessor_config.json of Hugging Face, or timm's config.json.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hilum.errors import ConfigurationError

_PIL_KERNELS = {1: "pil_lanczos", 2: "pil_bilinear_aa", 3: "pil_bicubic_aa"}  # PIL.Image.Resampling
_NAMED_KERNELS = {
    "lanczos": "pil_lanczos",
    "bilinear": "pil_bilinear_aa",
    "bicubic": "pil_bicubic_aa",
}
_ACTIVATIONS = {"multi_label_classification": "sigmoid", "single_label_classification": "softmax"}


@dataclass(frozen=True, slots=True)
class SideFiles:
    """The values of the files; empty where they give none.

    `mean` and `std` are on grey levels of 0..255.
    """

    labels: tuple[str, ...] = ()
    activation: str | None = None
    heads: int | None = None
    epsilon: float | None = None
    pooling: str | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    kernel: str = "pil_bilinear_aa"
    short_side: int | None = None


def read(folder: Path) -> SideFiles:
    """Read those of the two files that exist.

    Raises ConfigurationError where one asks for another network, or for a step that no recipe has.
    """
    config = _table(folder / "config.json")
    processor = _table(folder / "preprocessor_config.json")
    try:
        if "pretrained_cfg" in config or "global_pool" in config:
            return _timm(config)
        return _hugging_face(config, processor)
    except (
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
        ZeroDivisionError,
    ) as error:
        what = "config.json or preprocessor_config.json is not as timm or Hugging Face write it"
        raise ConfigurationError(
            [f"{folder}: {what}: {error}; remove it and say --labels and --recipe"]
        ) from error


def _table(path: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except ValueError as error:
        raise ConfigurationError([f"{path}: not valid JSON: {error}"]) from error
    if not isinstance(content, dict):
        raise ConfigurationError([f"{path}: holds no table"])
    return content


def _hugging_face(config: Mapping[str, Any], processor: Mapping[str, Any]) -> SideFiles:
    for field, known in (("model_type", "vit"), ("hidden_act", "gelu")):
        if (found := config.get(field, known)) != known:
            problem = f"{field} is {found!r}, only {known} is known; export the network to ONNX"
            raise ConfigurationError([f"config.json: {problem}"])
    if processor.get("do_center_crop"):
        advice = "give --recipe with one that crops as it does"
        raise ConfigurationError([f"preprocessor_config.json: do_center_crop; {advice}"])
    mean, std = _on_grey_levels(processor)
    return SideFiles(
        labels=_in_order(config.get("id2label", {})),
        activation=_ACTIVATIONS.get(str(config.get("problem_type"))),
        heads=config.get("num_attention_heads"),
        epsilon=float(config.get("layer_norm_eps", 1e-12)),
        pooling="cls",
        mean=mean,
        std=std,
        kernel=_PIL_KERNELS.get(processor.get("resample", 2), "pil_bilinear_aa"),
    )


def _on_grey_levels(processor: Mapping[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and std of a grey level x: (x * factor - mean) / std as (x - mean') / std'.

    Some processors do not rescale, some do not normalise.
    """
    if not processor:
        return (), ()
    rescales = processor.get("do_rescale", True)
    factor = float(processor.get("rescale_factor", 1 / 255)) if rescales else 1.0
    if not processor.get("do_normalize", True):
        return (0.0 / factor,), (1.0 / factor,)
    mean, std = (processor.get(name, [0.5] * 3) for name in ("image_mean", "image_std"))
    return tuple(float(value) / factor for value in mean), tuple(
        float(value) / factor for value in std
    )


def _timm(config: Mapping[str, Any]) -> SideFiles:
    """Return timm's evaluation from `pretrained_cfg`.

    The short side goes to size / crop_pct, then the middle is cut out.
    """
    images = config.get("pretrained_cfg", config)
    size = images.get("input_size", (3, 224, 224))[-1]
    share = float(images.get("crop_pct") or 1.0)
    return SideFiles(
        labels=tuple(config.get("label_names") or images.get("label_names") or ()),
        pooling=_timm_pooling(config.get("global_pool", "token")),
        mean=tuple(255.0 * value for value in images.get("mean", ())),
        std=tuple(255.0 * value for value in images.get("std", ())),
        kernel=_NAMED_KERNELS.get(images.get("interpolation", "bicubic"), "pil_bicubic_aa"),
        short_side=int(size / share),
    )


def _timm_pooling(pool: str) -> str:
    pooling = {"token": "cls", "avg": "gap"}.get(pool)
    if pooling is None:
        known = "only token and avg are known; export the network to ONNX"
        raise ConfigurationError([f"config.json: global_pool is {pool!r}, {known}"])
    return pooling


def _in_order(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(str(labels[key]) for key in sorted(labels, key=int))


def input_lines(side_files: SideFiles, side: int, channels: int) -> Sequence[str]:
    """Return a whole InputSpec.

    The displayed picture in 8 bits is resampled, then (x - mean) / std is in the graph.
    """
    resize = f'kernel = "{side_files.kernel}", compute = "uint8_rounded"'
    if side_files.short_side is None:
        geometry = [f'{{ op = "resize", height = {side}, width = {side}, {resize} }}']
    else:
        geometry = [
            (
                f'{{ op = "resize_side", side = "short", size = {side_files.short_side}, rounding ='
                f' "int", {resize} }}'
            ),
            f'{{ op = "centre_crop", size = {side}, offset = "half_gap" }}',
        ]
    return (
        (
            "# EDIT: the picture that the network was trained on: here the object's first window,"
            " in 8 bits"
        ),
        'views = "frontal_only"',
        (
            'source = { modality_lut = "apply", voi = "first_window", missing_voi = "identity",'
            ' monochrome1 = "invert" }'
        ),
        'intensity = [{ op = "maxval", of = "bits" }, { op = "to_uint8", mode = "round" }]',
        f"geometry = [{', '.join(geometry)}]",
        f'target = {{ height = {side}, width = {side}, dtype = "uint8" }}',
        (
            f"normalise = {{ mean = {_list(side_files.mean[:channels])}, std ="
            f" {_list(side_files.std[:channels])}, channels = {channels} }}"
        ),
    )


def _list(values: Sequence[float]) -> str:
    return f"[{', '.join(f'{value:.9g}' for value in values)}]"

"""The TensorRT profile: files for the serving container, and checks of the plan built there.

A plan belongs to one GPU type and one TensorRT, so it is built where it is served.
`deploy/tensorrt/build_plans.py` takes `request.json`, builds, and compares with the logits recorded
here. It leaves `1/model.plan` with its record `1/plan.json`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from hilum.models.formats import identity, triton_model
from hilum.models.known_answers import canary
from hilum.models.manifest.manifest import Manifest
from hilum.models.manifest.served import Served, shape_ranges

Array = np.ndarray[Any, np.dtype[Any]]
REQUEST: Final = "request.json"
PLAN: Final = "1/model.plan"
PLAN_RECORD: Final = "1/plan.json"
_BUILD_PLANS: Final = "run deploy/tensorrt/build_plans.py in the container that serves it"
_ARTEFACT: Final = "1/model.onnx"
_HALF: Final = "half.onnx"
_IMAGES: Final = 4


def write_plan_request(tree: Path, manifest: Manifest, served: Served) -> str:
    """Write `half.onnx`, cases and `request.json` into the tree.

    Returns a sentence about the effect of half precision on the logits. ONNX Runtime computes in
    float32 between the casts on a CPU, so that is a lower bound.
    """
    # Build tools, not needed to check a tree.
    from hilum.models.build.half_precision import (  # noqa: PLC0415
        write_half,
    )

    write_half(tree / _ARTEFACT, tree / _HALF, manifest.spec.model_channels)
    images = [canary.known_image(manifest.spec, number) for number in range(_IMAGES)]
    images += [np.load(path, allow_pickle=False) for path in sorted(tree.glob("golden_*.npy"))]
    wanted, half = (_logits(tree / file, manifest, images) for file in (_ARTEFACT, _HALF))
    request = _request(tree, manifest, served, _cases(tree, images, wanted))
    (tree / REQUEST).write_text(json.dumps(request, indent=1) + "\n", encoding="utf-8")
    return _effect(float(np.abs(half - wanted).max()), canary.tolerance(manifest.engine))


def _effect(apart: float, allowed: float) -> str:
    verdict = (
        "plans may be fp16"
        if apart <= allowed
        else "plans will be fp32, unless engine.tolerance allows more"
    )
    return (
        f"weights in half precision move logits by {apart:.2g} or more, {allowed:g} is allowed:"
        f" {verdict}; the GPU's own numbers decide"
    )


def has_plan(tree: Path) -> bool:
    """Whether a plan was built, for any GPU."""
    return (tree / PLAN).is_file()


def plan_problems(tree: Path) -> Iterator[str]:
    """Yield each reason why this tree's plan must not be loaded.

    Only reasons that are visible without its GPU are found.
    """
    request = identity.read_record(tree / REQUEST)
    record = identity.read_record(tree / PLAN_RECORD)
    if "onnx" not in request:
        yield (
            f"{tree.name}: {REQUEST} is gone or damaged: build the release for the tensorrt profile"
            " again"
        )
    elif not has_plan(tree):
        yield f"{tree.name}: has no plan yet: {_BUILD_PLANS}"
    elif record.get("onnx_sha256") != request["onnx"]["fp32"]["sha256"]:
        yield f"{tree.name}: its plan was built from another ONNX file: {_BUILD_PLANS}"
    elif record.get("plan_sha256") != identity.file_sha256(tree / PLAN):
        yield f"{tree.name}: its plan is not the one that was checked: {_BUILD_PLANS}"


def _logits(file: Path, manifest: Manifest, images: list[Array]) -> Array:
    run = triton_model.open_engine(file, "onnxruntime", "f32", manifest.engine.optimisation)
    return np.concatenate([run(image)["logits"] for image in images])


def _cases(tree: Path, images: list[Array], logits: Array) -> list[Mapping[str, Any]]:
    """Write the images as bytes, row by row, little endian as on the machines that have GPUs."""
    (tree / "cases").mkdir()
    entries: list[Mapping[str, Any]] = []
    for number, (image, row) in enumerate(zip(images, logits, strict=True)):
        file = f"cases/{number}.bin"
        (tree / file).write_bytes(
            np.ascontiguousarray(image).astype(image.dtype.newbyteorder("<")).tobytes()
        )
        entries.append({"file": file, "logits": [float(value) for value in row]})
    return entries


def _request(
    tree: Path, manifest: Manifest, served: Served, cases: list[Mapping[str, Any]]
) -> dict[str, Any]:
    files = {"fp32": _ARTEFACT, "fp16": _HALF}
    return {
        "format": 1,
        "release": manifest.release.id,
        "triton_name": served.triton_name,
        "onnx": {
            kind: {"file": file, "sha256": identity.file_sha256(tree / file)}
            for kind, file in files.items()
        },
        "optimization_profile": shape_ranges(served),
        "tolerance": canary.tolerance(manifest.engine),
        "cases": cases,
    }

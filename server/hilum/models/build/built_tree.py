"""A built tree compared with its manifest and with its record.

People copy, edit and partly delete trees.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hilum.models.build import build, profile_checks, tensorrt
from hilum.models.formats import identity, triton_model
from hilum.models.manifest.manifest import Manifest
from hilum.models.manifest.served import Served, served

_BUILD_AGAIN: Final = "delete the folder and build the release again"


def problems(manifest: Manifest, tree: Path, profile: str) -> Iterator[str]:
    """Yield each reason why Triton must not load this tree; a missing plan is not one of them."""
    record = build.read_record(tree)
    artefact = tree / "1/model.onnx"
    if not artefact.is_file() or identity.file_sha256(artefact) != record.get("onnx_sha256"):
        yield f"{tree}: 1/model.onnx is not the file that was built: {_BUILD_AGAIN}"
        return
    said = served(manifest, record.get("cam_grid"), str(record.get("accelerator", "none")))
    yield from _config_problems(tree, said)
    yield from profile_checks.check_onnx(artefact, said)
    if profile == "embedded" and not _is_same(tree / "1/model.py", Path(triton_model.__file__)):
        yield f"{tree}: 1/model.py is not this Hilum's: {_BUILD_AGAIN}"
    if profile == "tensorrt":
        yield from profile_checks.check_shape_ranges(record.get("optimization_profile", {}), said)
        yield from tensorrt.plan_problems(tree) if tensorrt.has_plan(tree) else ()


def _config_problems(tree: Path, said: Served) -> Iterator[str]:
    try:
        text = (tree / "config.pbtxt").read_text(encoding="utf-8")
    except OSError as error:
        yield f"{tree}: config.pbtxt: {error.strerror}"
        return
    yield from profile_checks.check(text, said)


def _is_same(one: Path, other: Path) -> bool:
    return one.is_file() and one.read_bytes() == other.read_bytes()

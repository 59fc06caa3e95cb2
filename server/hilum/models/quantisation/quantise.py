"""A release in int8, made from another one.

It is accepted only when its scores are within the limits of that release's manifest.

A report is written in either case: `<new release>.quantisation.json` and `.md` in the folder of
manifests. A refused release leaves nothing else.
"""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from hilum.errors import ConfigurationError
from hilum.models.build import artefact, build
from hilum.models.formats import identity
from hilum.models.known_answers.acceptance import Judgement, judge
from hilum.models.known_answers.image_folder import Array, Cases, Images, read_cases, read_folder
from hilum.models.manifest import manifest
from hilum.models.manifest.manifest import Manifest
from hilum.models.onnx.input_normalisation import INPUT
from hilum.models.quantisation import report as quantisation_report
from hilum.models.quantisation.network import quantise_network
from hilum.toml import toml_text

_WEIGHTS: Final = "model_int8.onnx"
# Of a logit between two CPUs: float32 sums of the last layer over features that may differ by a
# step.
_TOLERANCE: Final = 0.1
FEWEST_IMAGES: Final = 16
# Without cases, each fourth image is used for judgement and not for calibration.
_HELD_OUT: Final = 4


@dataclass(frozen=True, slots=True)
class QuantisationRequest:
    """The new release and the images to make it from.

    `cases` None: scores alone are compared, on images held out from the calibration.
    """

    version: str
    calibration: Path
    cases: Path | None
    weights_dir: Path | None


@dataclass(frozen=True, slots=True)
class QuantisationResult:
    """The judgement and the path of the report."""

    release_id: str
    judgement: Judgement
    report: Path


def quantise(
    read: Manifest, order: QuantisationRequest, manifests_dir: Path, built_dir: Path
) -> QuantisationResult:
    """Make `<name>@<version>` below `manifests_dir` if it passes.

    Raises ConfigurationError when nothing could be judged.
    """
    folder = manifests_dir / f"{read.release.name}@{order.version}"
    if problems := list(_obstacles(read, folder)):
        raise ConfigurationError([f"{read.release.id}: {problem}" for problem in problems])
    images, judges = _divided(read, order)
    with tempfile.TemporaryDirectory(dir=manifests_dir, prefix=".quantising-") as scratch:
        made_in = Path(scratch, folder.name)
        before = _artefact(read, built_dir, Path(scratch), order.weights_dir)
        made = _make(read, order, before, images.tensors, made_in)
        after = Path(scratch, "int8.onnx")
        artefact.make(made, after, None)
        judgement = _judged(read, made, (before, after), judges)
        report = quantisation_report.write(
            manifests_dir / f"{folder.name}.quantisation",
            _facts(read, made, images, judges, (before, after)),
            judgement,
        )
        if judgement.is_accepted:
            made_in.replace(folder)
    return QuantisationResult(folder.name, judgement, report)


def _obstacles(read: Manifest, folder: Path) -> Iterator[str]:
    if read.table.quantisation is None:
        yield (
            "its manifest has no [quantisation] table: say how far scores may move"
            " (maximum_score_difference)"
        )
    if not read.release.is_trained:
        yield "untrained weights: there is no score to be kept"
    if read.table.prompts is not None:
        yield "a zero-shot release: its logits are too near one another for int8"
    if read.release.members:
        yield "an ensemble: quantise its members, and make an ensemble of those"
    if read.engine.precision != "f32":
        yield f"its precision is {read.engine.precision}: int8 is made from f32"
    if folder.exists():
        yield f"{folder} exists: take another --version, or remove that release"


def _divided(read: Manifest, order: QuantisationRequest) -> tuple[Images, Cases]:
    """Return images that calibrate and cases that judge; none is both."""
    images = read_folder(read, order.calibration)
    if order.cases is None:
        judged = np.arange(len(images.files)) % _HELD_OUT == _HELD_OUT - 1
        cases = Cases(_chosen(images, judged), {})
        images = _chosen(images, ~judged)
    else:
        cases = read_cases(read, order.cases)
    if (count := len(images.files)) < FEWEST_IMAGES:
        problem = f"{count} images to calibrate with; {FEWEST_IMAGES} at least"
        raise ConfigurationError([f"{order.calibration}: {problem}", *images.skipped[:3]])
    if both := _in_both(images, cases.images):
        problem = f"{len(both)} cases were calibrated with, {both[0]} first"
        raise ConfigurationError([f"{problem}: a network is not judged by what made it"])
    return images, cases


def _in_both(images: Images, judges: Images) -> list[str]:
    """Return the names of the judging images that are also among the calibrating ones."""
    seen = {image.tobytes() for image in images.tensors}
    return [
        file.name
        for file, image in zip(judges.files, judges.tensors, strict=True)
        if image.tobytes() in seen
    ]


def _chosen(images: Images, mask: Array) -> Images:
    files = tuple(file for file, is_chosen in zip(images.files, mask, strict=True) if is_chosen)
    return Images(files, images.tensors[mask], images.skipped)


def _artefact(read: Manifest, built_dir: Path, scratch: Path, weights_dir: Path | None) -> Path:
    """Return the artefact of record of the release: as built, else made."""
    trees = [
        build.tree_of(read.release, built_dir, profile)
        for profile in build.PROFILES
        if build.is_built(read.release, built_dir, profile)
    ]
    if trees:
        return trees[0] / "1/model.onnx"
    made = scratch / "before.onnx"
    artefact.make(read, made, weights_dir)
    return made


def _make(
    read: Manifest, order: QuantisationRequest, before: Path, images: Array, folder: Path
) -> Manifest:
    """Make the new release's folder: network and manifest."""
    folder.mkdir()
    quantise_network(before, read, images, folder / _WEIGHTS)
    text = _manifest_text(
        read,
        order.version,
        identity.file_sha256(folder / _WEIGHTS),
        f"{folder.name}.quantisation.md",
    )
    (folder / manifest.FILE_NAME).write_text(text, encoding="utf-8")
    return manifest.read(folder / manifest.FILE_NAME)


def _judged(read: Manifest, made: Manifest, files: tuple[Path, Path], judges: Cases) -> Judgement:
    assert read.table.quantisation is not None
    before, after = (
        _logits(file, one, judges.images.tensors)
        for file, one in zip(files, (read, made), strict=True)
    )
    return judge(before, after, judges.truth or None, read.release, read.table.quantisation)


def _logits(file: Path, read: Manifest, images: Array) -> Array:
    """Return the logits of the reference engine, in the precision of the file."""
    run = artefact.reference_engine(read, file)
    return np.concatenate(
        [run(images[start : start + 1])["logits"] for start in range(len(images))]
    )


def _facts(
    read: Manifest, made: Manifest, images: Images, judges: Cases, files: tuple[Path, Path]
) -> Mapping[str, Any]:
    assert read.table.quantisation is not None
    return {
        "release": read.release.id,
        "quantised_release": made.release.id,
        "onnx_sha256": {
            name: identity.file_sha256(file)
            for name, file in zip(("before", "after"), files, strict=True)
        },
        "size_bytes": {
            name: file.stat().st_size for name, file in zip(("before", "after"), files, strict=True)
        },
        "calibration_images": len(images.files),
        "skipped_images": len(images.skipped),
        "is_auc_compared": bool(judges.truth),
        "limits": read.table.quantisation.model_dump(),
    }


def _manifest_text(read: Manifest, version: str, weights_sha256: str, report: str) -> str:
    """Return the whole file; `report` is named in its first line."""
    heading = (
        f"# Made by `hilum models quantise` from {read.release.id}; {report} says how it was"
        " judged.\n"
    )
    return heading + toml_text(_content(read, version, weights_sha256))


def _content(read: Manifest, version: str, weights_sha256: str) -> dict[str, Any]:
    """Return the old content with other weights, engine and version.

    Golden cases are removed: their numbers are the old network's.
    """
    old = tomllib.loads(read.path.read_text(encoding="utf-8"))
    kept = {name: value for name, value in old.items() if name not in ("golden", "quantisation")}
    model = {
        "architecture": "onnx",
        "activation": read.release.activation,
        "max_batch": read.release.max_batch,
    }
    return {
        **kept,
        "version": version,
        "source": f"Quantised to int8 from {read.release.id}. {read.release.source}"[:1024],
        "model": model,
        "weights": {"file": _WEIGHTS, "sha256": weights_sha256, "input": INPUT, "output": "logits"},
        "engine": {
            "name": "onnxruntime",
            "precision": "int8",
            "optimisation": "all",
            "tolerance": _TOLERANCE,
        },
    }

"""The artefact of record, `model.onnx`, and the proofs that it passes before it may be served.

The artefact must depend on its input, and the serving engine must agree with it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from hilum import missing_extra
from hilum.errors import ConfigurationError
from hilum.models.formats import identity, pickled, triton_model
from hilum.models.known_answers import canary, exact_maps, tolerance_advice
from hilum.models.manifest.manifest import Manifest

Array = np.ndarray[Any, np.dtype[Any]]
_IMAGES: Final = 3  # images on which the bias of maps is measured
_REPEATED: Final = (
    1e-4  # of a logit: one engine in float32, alone and in a batch; mostly the bits are the same
)


def make(manifest: Manifest, destination: Path, weights_dir: Path | None) -> None:
    """Write `destination` from the seed, the brought weights or the members in the manifest."""
    if manifest.weights.members:
        from hilum.models.networks import ensemble  # noqa: PLC0415 - build tools, not needed to serve

        ensemble.make(manifest, destination, lambda member, file: make(member, file, weights_dir))
        return
    weights = None if manifest.weights.file is None else find_weights(manifest, weights_dir)
    if manifest.release.architecture == "onnx":
        from hilum.models.onnx import external  # noqa: PLC0415 - build tools, not needed to serve

        assert weights is not None
        external.graft(manifest, weights, destination)
    else:
        from hilum.models.build import export  # noqa: PLC0415 - torch

        export.export(manifest, weights, destination)


def find_weights(manifest: Manifest, weights_dir: Path | None) -> Path:
    """Return the weights file that the user brought, with its digest checked.

    Raises ConfigurationError, which says where to put which file.
    """
    release = manifest.release
    sha256 = manifest.weights.sha256
    path = _find_file(manifest, weights_dir)
    if (found := identity.file_sha256(path)) != sha256:
        raise _refused(
            release.id,
            f"{path} has sha256 {found}, the manifest {sha256}: bring that file, or make a release"
            " for this one",
        )
    if pickled.is_pickle(path):
        raise _refused(release.id, f"{path} is {pickled.advice(path)}")
    return path


def _find_file(manifest: Manifest, weights_dir: Path | None) -> Path:
    release = manifest.release
    name = manifest.weights.file
    assert name is not None
    folders = [folder for folder in (weights_dir, manifest.path.parent) if folder is not None]
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if path is None:
        file = f"{name} (sha256 {manifest.weights.sha256})"
        where = " or ".join(map(str, folders))
        advice = f"Put {file} into {where}, or name its folder with --weights"
        raise _refused(release.id, f"no weights. {advice}. Source: {release.source}")
    return path


def reference(manifest: Manifest, artefact: Path) -> dict[str, Array]:
    """Return the outputs of ONNX Runtime for the canary, in the precision of the file.

    They are `logits` and perhaps `cam`.
    """
    run = reference_engine(manifest, artefact)
    image = canary.canary_image(manifest.spec)
    outputs = dict(run(image))
    logits = outputs["logits"]
    if not np.isfinite(logits).all():
        problem = "the canary's logits are not finite; the weights are damaged"
        raise _refused(manifest.release.id, problem)
    constant_image = np.full_like(image, image.flat[0])
    batch = np.concatenate([constant_image, image, canary.known_image(manifest.spec, 1)])
    constant, among_others, _ = run(batch)["logits"]
    _require_own_answer(manifest, logits, among_others)
    _require_seen_image(manifest, logits, constant)
    return outputs


def _require_seen_image(manifest: Manifest, logits: Array, constant: Array) -> None:
    """Raise ConfigurationError where an image of one grey level has nearly the same logits."""
    engine = manifest.engine
    apart = float(np.abs(logits - constant).max())
    if apart < tolerance_advice.LEAST_DISTANCE * canary.tolerance(engine):
        raise _refused(manifest.release.id, tolerance_advice.smaller(apart, engine))


def _require_own_answer(manifest: Manifest, alone: Array, among_others: Array) -> None:
    """Raise ConfigurationError where the canary's logits depend on the rest of its batch."""
    engine = manifest.engine
    differs = float(np.abs(among_others - alone).max())
    is_exact = engine.precision == "f32" and engine.tolerance is None
    allowed = (
        _REPEATED * max(1.0, float(np.abs(alone).max())) if is_exact else canary.tolerance(engine)
    )
    if not differs <= allowed:
        cause = "an image's answer depends on its neighbours in the batch, or on chance"
        off = (
            f"the canary's differs by {differs:.2g} between alone and in a batch, {allowed:.2g} is"
            " allowed"
        )
        raise _refused(
            manifest.release.id,
            f"{cause}: {off}; export the network after net.eval(), without dropout",
        )


def cam_bias(manifest: Manifest, artefact: Path) -> list[float] | None:
    """Return the number added to the mean of each map to make its logit; None without maps.

    Raises ConfigurationError where maps are not exact.
    """
    if not manifest.release.has_cam:
        return None
    images = [canary.known_image(manifest.spec, number) for number in range(_IMAGES)]
    outputs = reference_engine(manifest, artefact)(np.concatenate(images))
    allowed = canary.tolerance(manifest.engine)
    try:
        bias = exact_maps.bias(outputs["logits"], outputs.get("cam"), allowed)
    except ConfigurationError as error:
        raise _refused(manifest.release.id, error.problems[0]) from error
    return [float(value) for value in bias]


def require_engine_parity(manifest: Manifest, artefact: Path, expected: Array) -> None:
    """Raise ConfigurationError where the engine's logits differ from the artefact's."""
    run = serving_engine(manifest, artefact)
    worst = float(np.abs(run(canary.canary_image(manifest.spec))["logits"] - expected).max())
    if not worst <= canary.tolerance(manifest.engine):
        raise _refused(manifest.release.id, tolerance_advice.larger(worst, manifest.engine))


def reference_engine(manifest: Manifest, artefact: Path) -> triton_model.Engine:
    """Return ONNX Runtime, the reference, in the precision that the release pins."""
    engine = manifest.engine
    return triton_model.open_engine(artefact, "onnxruntime", engine.precision, engine.optimisation)


def serving_engine(manifest: Manifest, artefact: Path) -> triton_model.Engine:
    """Return the engine that the release pins.

    Raises ConfigurationError where it is not installed or cannot take the artefact.
    """
    engine = manifest.engine
    try:
        return triton_model.open_engine(
            artefact, engine.name, engine.precision, engine.optimisation
        )
    except (RuntimeError, ImportError) as error:
        problem = f"engine {engine.name}: {missing_extra.in_words(error)}"
        raise _refused(manifest.release.id, problem) from error


def _refused(release_id: str, problem: str) -> ConfigurationError:
    return ConfigurationError([f"{release_id}: {problem}"])

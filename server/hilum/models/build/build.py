"""One command from manifests to Triton model trees.

`<built>/<profile>/<triton name>/{config.pbtxt, 1/…, build.json}`.

A tree appears whole or not at all, and only after its engine has given the reference's logits for
the canary. Nothing is downloaded.
"""

from __future__ import annotations

import json
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from hilum.domain import Release
from hilum.errors import ConfigurationError
from hilum.models.build import artefact, precision_speed
from hilum.models.build.artefact import Array
from hilum.models.formats import identity, triton_model
from hilum.models.known_answers import canary, golden
from hilum.models.manifest import catalogue
from hilum.models.manifest.manifest import Manifest
from hilum.store.archive.directory_sync import sync_file_system, sync_folder

PROFILES: Final = ("embedded", "onnxruntime", "tensorrt")
ACCELERATORS: Final = ("none", "cuda", "tensorrt", "tensorrt_fp16")
_RECORD: Final = "build.json"
_SPEED: Final = "cpu_milliseconds_an_image"
Progress = Callable[[str], None]


def build(
    release_ids: Iterable[str],
    manifests_dir: Path,
    built_dir: Path,
    profile: str = "embedded",
    weights_dir: Path | None = None,
    progress: Progress = print,
    accelerator: str = "none",
) -> None:
    """Build each tree that is not up to date.

    `weights_dir`: folder of brought weights, searched beside each manifest's own folder.
    `accelerator`: of the onnxruntime profile.

    Raises ConfigurationError: unknown release or profile, weights missing or other than in the
    manifest, parity failed.
    """
    _require_known("profile", profile, PROFILES)
    _require_known("accelerator", accelerator, ACCELERATORS)
    order = _Order(profile, built_dir, weights_dir, accelerator)
    wanted = tuple(release_ids)
    manifests = catalogue.load_manifests(manifests_dir, wanted)
    for manifest in catalogue.choose(manifests, wanted).values():
        release = manifest.release
        if _is_up_to_date(release, order):
            progress(f"{release.id}: {profile} is up to date")
            continue
        with _whole_tree(built_dir, profile, release.triton_name) as tree:
            _make(manifest, tree, order, progress)
        progress(f"{release.id}: {profile} built in {tree_of(release, built_dir, profile)}")


def _require_known(kind: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise ConfigurationError([f"unknown {kind} {name!r}; known: {', '.join(known)}"])


def tree_of(release: Release, built_dir: Path, profile: str = "embedded") -> Path:
    """Return the folder of a release's built tree."""
    return built_dir / profile / release.triton_name


def is_built(release: Release, built_dir: Path, profile: str = "embedded") -> bool:
    """Whether a tree is there and was made from this manifest by this builder."""
    return bool(
        read_record(tree_of(release, built_dir, profile)).get("build_key") == release.build_key
    )


def read_record(tree: Path) -> dict[str, Any]:
    """Return a tree's `build.json`; empty where it is gone or damaged."""
    return identity.read_record(tree / _RECORD)


def _is_up_to_date(release: Release, order: _Order) -> bool:
    record = read_record(tree_of(release, order.built_dir, order.profile))
    return (
        record.get("build_key") == release.build_key
        and str(record.get("accelerator", "none")) == order.accelerator
    )


@dataclass(frozen=True, slots=True)
class _Order:
    """One tree to make: its release, its profile and its folders."""

    profile: str
    built_dir: Path
    weights_dir: Path | None
    accelerator: str


def _make(manifest: Manifest, tree: Path, order: _Order, progress: Progress) -> None:
    release = manifest.release
    onnx_file = tree / "1/model.onnx"
    onnx_file.parent.mkdir(parents=True)
    _write_artefact(manifest, onnx_file, order, progress)
    progress(f"{release.id}: comparing engines on the canary")
    outputs = artefact.reference(manifest, onnx_file)
    if order.profile == "embedded":
        shutil.copyfile(triton_model.__file__, tree / "1/model.py")
        artefact.require_engine_parity(manifest, onnx_file, outputs["logits"])
    record = _record(manifest, onnx_file, outputs["logits"])
    record["canary"]["cam_bias"] = artefact.cam_bias(manifest, onnx_file)
    record[golden.RECORD] = _proved_goldens(manifest, tree, order.weights_dir, order.profile)
    record |= _configured(manifest, tree, order, outputs, progress)
    record |= _timed(manifest, onnx_file, order.profile, progress)
    (tree / _RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _write_artefact(manifest: Manifest, onnx_file: Path, order: _Order, progress: Progress) -> None:
    release = manifest.release
    if made := _made_for_another_profile(release, order.built_dir):
        shutil.copyfile(made, onnx_file)
        return
    weights = "" if release.is_trained else " with UNTRAINED weights"
    progress(f"{release.id}: writing ONNX{weights} (up to a minute)")
    artefact.make(manifest, onnx_file, order.weights_dir)


def _timed(manifest: Manifest, onnx_file: Path, profile: str, progress: Progress) -> dict[str, Any]:
    """Return the time of an image in bf16 and in f32, where the release pins bf16 for its speed.

    Some CPUs that have bf16 are slower with it.
    """
    release = manifest.release
    engine = manifest.engine
    if profile != "embedded" or (engine.name, engine.precision) != ("openvino", "bf16"):
        return {}
    found = precision_speed.measure(onnx_file, canary.canary_image(manifest.spec))
    if slow := precision_speed.advice(engine.precision, found):
        progress(f"{release.id}: {slow}")
    return {_SPEED: found}


def speed_advice(release: Release, tree: Path) -> str | None:
    """Return the advice recorded in this tree where another precision was faster."""
    return precision_speed.advice(release.precision, read_record(tree).get(_SPEED, {}))


def _proved_goldens(
    manifest: Manifest, tree: Path, weights_dir: Path | None, profile: str
) -> list[dict[str, Any]]:
    """Return the artefact's logits for the golden cases.

    Both the artefact and the engine that serves here must give the known answers.
    """
    known = golden.cases(manifest, weights_dir)
    if not known:
        return []
    onnx_file = tree / "1/model.onnx"
    reference = artefact.reference_engine(manifest, onnx_file)
    answers = golden.prove(manifest, known, reference, "onnxruntime, the reference")
    name = manifest.engine.name
    if profile == "embedded" and name != "onnxruntime":
        golden.prove(manifest, known, artefact.serving_engine(manifest, onnx_file), name)
    return golden.record(tree, manifest, known, answers)


def _made_for_another_profile(release: Release, built_dir: Path) -> Path | None:
    """Return the artefact of a tree made for another profile, or None.

    All profiles serve one artefact. One that has changed since it was built is not copied.
    """
    trees = [
        tree_of(release, built_dir, profile)
        for profile in PROFILES
        if is_built(release, built_dir, profile)
    ]
    return next((tree / "1/model.onnx" for tree in trees if _is_as_built(tree)), None)


def _is_as_built(tree: Path) -> bool:
    onnx_file = tree / "1/model.onnx"
    return onnx_file.is_file() and identity.file_sha256(onnx_file) == read_record(tree).get(
        "onnx_sha256"
    )


def _configured(
    manifest: Manifest, tree: Path, order: _Order, outputs: Mapping[str, Array], progress: Progress
) -> dict[str, Any]:
    """Write `config.pbtxt` and, for TensorRT, the request for a plan.

    Returns the profile's entries of `build.json`.
    """
    # Triton's schema brings grpc, and a reader of the catalogue needs none.
    from hilum.models.build import profile_checks, profiles, tensorrt  # noqa: PLC0415
    from hilum.models.manifest.served import served, shape_ranges  # noqa: PLC0415

    grid = [int(size) for size in outputs["cam"].shape[2:]] if manifest.release.has_cam else None
    said = served(manifest, grid, order.accelerator)
    (tree / "config.pbtxt").write_text(profiles.render(said, order.profile), encoding="utf-8")
    if problems := list(profile_checks.check_onnx(tree / "1/model.onnx", said)):
        raise ConfigurationError(problems)
    facts = {"accelerator": order.accelerator, "cam_grid": grid}
    if order.profile != "tensorrt":
        return facts
    progress(f"{manifest.release.id}: {tensorrt.write_plan_request(tree, manifest, said)}")
    return {**facts, "optimization_profile": shape_ranges(said)}


def _record(manifest: Manifest, onnx_file: Path, logits: Array) -> dict[str, Any]:
    tools = {name: _version(name) for name in ("torch", "onnx", "onnxruntime", "openvino")}
    return {
        "release": manifest.release.id,
        "build_key": manifest.release.build_key,
        "onnx_sha256": identity.file_sha256(onnx_file),
        "preprocessing_version": manifest.spec.version,
        "tools": {"python": platform.python_version(), **tools},
        "canary": {
            "logits": [float(value) for value in logits[0]],
            "tolerance": canary.tolerance(manifest.engine),
        },
    }


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@contextmanager
def _whole_tree(built_dir: Path, profile: str, name: str) -> Iterator[Path]:
    """Yield a scratch folder that becomes `<built>/<profile>/<name>` if nothing was raised.

    The folder is made durable and replaces an older tree.
    """
    target = built_dir / profile / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=built_dir, prefix=".building-") as scratch:
        tree = Path(scratch, "tree")
        tree.mkdir()
        yield tree
        sync_file_system(tree)  # a power cut must not leave half a tree that passes for a whole one
        if target.exists():
            target.replace(Path(scratch, "old"))
        tree.replace(target)
        sync_folder(target.parent)

"""One command from manifests to Triton model trees: `<built>/<profile>/<triton name>/{config.pbtxt, 1/…, build.json}`.

A tree appears whole or not at all, and only after its engine has given the reference's logits for the canary. Nothing is downloaded.
"""

from __future__ import annotations

import json
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from hilum.domain import Release
from hilum.errors import ConfigurationError
from hilum.models import artefact, canary, catalogue, embedded_model, identity
from hilum.models.artefact import Array
from hilum.models.manifest import Manifest

PROFILES: Final = ("embedded", "onnxruntime")
_RECORD: Final = "build.json"
Progress = Callable[[str], None]


def build(
    release_ids: Iterable[str],
    manifests_dir: Path,
    built_dir: Path,
    profile: str = "embedded",
    weights_dir: Path | None = None,
    progress: Progress = print,
) -> None:
    """Build what is not up to date. `weights_dir`: where brought weights lie, beside each manifest's own folder.

    Raises ConfigurationError: unknown release or profile, weights missing or other than the manifest says, parity failed.
    """
    if profile not in PROFILES:
        raise ConfigurationError([f"unknown profile {profile!r}; known: {', '.join(PROFILES)}"])
    for manifest in catalogue.choose(catalogue.load_manifests(manifests_dir), release_ids).values():
        if is_built(manifest.release, built_dir, profile):
            progress(f"{manifest.release.id}: {profile} is up to date")
            continue
        with _made_whole(built_dir, profile, manifest.release.triton_name) as tree:
            _make(manifest, tree, built_dir, profile, weights_dir, progress)
        progress(f"{manifest.release.id}: {profile} built in {tree_of(manifest.release, built_dir, profile)}")


def tree_of(release: Release, built_dir: Path, profile: str = "embedded") -> Path:
    """Folder of a release's built tree."""
    return built_dir / profile / release.triton_name


def is_built(release: Release, built_dir: Path, profile: str = "embedded") -> bool:
    """Whether a tree is there and was made from this manifest by this builder."""
    try:
        record = json.loads((tree_of(release, built_dir, profile) / _RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(record.get("build_key") == release.build_key)


def _make(manifest: Manifest, tree: Path, built_dir: Path, profile: str, weights_dir: Path | None, progress: Progress) -> None:
    release, onnx_file = manifest.release, tree / "1/model.onnx"
    onnx_file.parent.mkdir(parents=True)
    if made := _made_for_another_profile(release, built_dir):
        shutil.copyfile(made, onnx_file)
    else:
        progress(f"{release.id}: writing ONNX{'' if release.is_trained else ' with UNTRAINED weights'} (up to a minute)")
        artefact.make(manifest, onnx_file, weights_dir)
    progress(f"{release.id}: comparing engines on the canary")
    outputs = artefact.reference(manifest, onnx_file)
    (tree / "config.pbtxt").write_text(_config(manifest, profile, outputs), encoding="utf-8")
    if profile == "embedded":
        shutil.copyfile(embedded_model.__file__, tree / "1/model.py")
        artefact.require_engine_parity(manifest, onnx_file, outputs["logits"])
    (tree / _RECORD).write_text(json.dumps(_record(manifest, onnx_file, outputs["logits"]), indent=1) + "\n", encoding="utf-8")


def _made_for_another_profile(release: Release, built_dir: Path) -> Path | None:
    """All profiles serve one artefact."""
    made = (tree_of(release, built_dir, profile) / "1/model.onnx" for profile in PROFILES if is_built(release, built_dir, profile))
    return next((path for path in made if path.is_file()), None)


def _config(manifest: Manifest, profile: str, outputs: dict[str, Array]) -> str:
    from hilum.models import profiles  # noqa: PLC0415 - Triton's schema brings grpc; a reader of the catalogue needs none

    release, (_, height, width) = manifest.release, manifest.spec.wire_shape
    grid = outputs["cam"].shape[2:] if release.has_cam else None
    served = profiles.Served(
        triton_name=release.triton_name,
        wire_type=manifest.spec.wire_dtype,
        height=height,
        width=width,
        outputs=len(release.labels),
        cam_grid=(grid[0], grid[1]) if grid else None,
        max_batch=release.max_batch,
        engine=release.engine,
        precision=release.precision,
        optimisation=manifest.engine.optimisation,
    )
    return profiles.render(served, profile)


def _record(manifest: Manifest, onnx_file: Path, logits: Array) -> dict[str, Any]:
    tools = {name: _version(name) for name in ("torch", "onnx", "onnxruntime", "openvino")}
    return {
        "release": manifest.release.id,
        "build_key": manifest.release.build_key,
        "onnx_sha256": identity.file_sha256(onnx_file),
        "preprocessing_version": manifest.spec.version,
        "tools": {"python": platform.python_version(), **tools},
        "canary": {"logits": [float(value) for value in logits[0]], "tolerance": canary.tolerance(manifest.engine)},
    }


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@contextmanager
def _made_whole(built_dir: Path, profile: str, name: str) -> Iterator[Path]:
    """A scratch folder that becomes `<built>/<profile>/<name>` if nothing was raised; an older tree gives way."""
    target = built_dir / profile / name
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=built_dir, prefix=".building-") as scratch:
        tree = Path(scratch, "tree")
        tree.mkdir()
        yield tree
        if target.exists():
            target.replace(Path(scratch, "old"))
        tree.replace(target)

"""What there is and what state it is in, for `hilum models list` and `hilum check`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hilum.models import build, catalogue
from hilum.models.manifest import Manifest


@dataclass(frozen=True, slots=True)
class ReleaseLine:
    """One release for people: `built` names its up-to-date profiles, `weights` where they come from."""

    id: str
    architecture: str
    weights: str
    engine: str
    input: str
    labels: int
    is_calibrated: bool
    built: tuple[str, ...]
    intended_use: str
    licence: str


def describe(manifests_dir: Path, built_dir: Path) -> list[ReleaseLine]:
    """All releases by name. Raises ConfigurationError with every problem of every manifest."""
    return [_line(each, built_dir) for each in catalogue.load_manifests(manifests_dir).values()]


def _line(manifest: Manifest, built_dir: Path) -> ReleaseLine:
    release, weights = manifest.release, manifest.weights
    return ReleaseLine(
        id=release.id,
        architecture=release.architecture,
        weights=f"UNTRAINED (seed {weights.seed})" if weights.file is None else f"{weights.file} (sha256 {release.weights_sha256[:12]}…)",
        engine=f"{release.engine} {release.precision}",
        input=str(release.input_spec.get("recipe", manifest.spec.version)),
        labels=len(release.labels),
        is_calibrated=release.calibration is not None,
        built=tuple(profile for profile in build.PROFILES if build.is_built(release, built_dir, profile)),
        intended_use=release.intended_use,
        licence=release.licence,
    )

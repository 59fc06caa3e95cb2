"""`hilum prepare`: what a release's model sees of one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from hilum.analyse.preparing import prepare_for_releases
from hilum.analyse.worker import NotReady, Request
from hilum.domain import Reason
from hilum.errors import ConfigurationError
from hilum.models.catalogue import load_catalogue
from hilum.settings import Settings


def prepare_file(settings: Settings, file: Path, release_id: str, out: Path, png: Path | None) -> dict[str, Any]:
    """The outcome as JSON: `prepared` with facts about the tensor written to `out`, or `not_analysed` with the reason."""
    catalogue = load_catalogue(settings.manifests_dir)
    if release_id not in catalogue:
        raise ConfigurationError([f"--release {release_id}: no such manifest; known: {', '.join(sorted(catalogue))}"])
    if not file.is_file():
        raise ConfigurationError([f"{file}: no such file"])
    spec = catalogue[release_id].input_spec
    answer = prepare_for_releases(Request(file, {release_id: spec}, settings.analyse.maximum_pixels, settings.analyse.device))[release_id]
    common = {"file": str(file), "release": release_id}
    if isinstance(answer, NotReady):
        return {
            **common,
            "outcome": "not_analysed",
            "reason": answer.reason,
            "meaning": Reason(answer.reason).meaning,
            "detail": answer.detail,
        }
    np.save(out, answer.tensor)
    if png is not None:
        Image.fromarray(_picture(answer.tensor)).save(png)
    values = answer.tensor.astype(np.float64)
    return {
        **common,
        "outcome": "prepared",
        "view": answer.view,
        "flags": list(answer.flags),
        "preprocessing_version": answer.preprocessing_version,
        "shape": list(answer.tensor.shape),
        "dtype": str(answer.tensor.dtype),
        "minimum": float(values.min()),
        "maximum": float(values.max()),
        "mean": round(float(values.mean()), 4),
        "tensor": str(out),
        "png": None if png is None else str(png),
    }


def _picture(tensor: np.ndarray[Any, np.dtype[Any]]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """(C, H, W) → (H, W) uint8 of the first channel, its own range stretched to 0..255."""
    plane = tensor[0].astype(np.float64)
    low, high = plane.min(), plane.max()
    stretched = (plane - low) / max(high - low, 1e-12) * 255
    return np.asarray(stretched.round(), np.uint8)

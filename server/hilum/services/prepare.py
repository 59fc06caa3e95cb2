"""`hilum prepare`: the input that a release's model gets from one file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import numpy as np
from PIL import Image

from hilum.analyse.decode.prepare import prepare_for_releases
from hilum.analyse.decode.worker import DecodeRequest, NotReady
from hilum.domain import REASONS
from hilum.errors import ConfigurationError
from hilum.models.manifest.catalogue import load_catalogue
from hilum.retrieve.files.picture_object import PictureRefused, picture_object
from hilum.settings import Settings
from hilum_preprocessing import InputSpec, read_file
from hilum_preprocessing.explain import explain
from hilum_preprocessing.header.body_parts import SiteWords
from hilum_preprocessing.pictures.image_input import BEGINNING_BYTES, is_picture_file

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """Files to write: the wire tensor for NumPy, its picture, and a picture of each step."""

    out: Path | None
    png: Path | None
    explain: Path | None


def prepare_file(
    settings: Settings, file: Path, release_id: str, wanted: PrepareRequest
) -> dict[str, Any]:
    """Return the outcome as JSON.

    It is `prepared` with facts about the tensor, or `not_analysed` with the reason.
    """
    spec = _input_spec(settings, release_id)
    if not file.is_file():
        raise ConfigurationError([f"{file}: no such file"])
    common = {"file": str(file), "release": release_id}
    try:
        with _object_of(file, settings.analyse.maximum_pixels) as path:
            return {**common, **_prepared(settings, path, release_id, spec, wanted)}
    except PictureRefused as error:
        if error.cause is None:
            raise
        return {**common, **_not_analysed(error.cause.reason.value, error.cause.detail)}


@contextmanager
def _object_of(file: Path, maximum_pixels: int) -> Iterator[Path]:
    """The DICOM file, or the object of a PNG or JPEG file, which is deleted at the end."""
    with file.open("rb") as opened:
        beginning = opened.read(BEGINNING_BYTES)
    if not is_picture_file(beginning):
        yield file
        return
    with TemporaryDirectory(prefix="hilum-prepare-") as folder:
        path = Path(folder, "picture.dcm")
        uids = [f"2.25.{uuid4().int}" for _ in range(3)]
        content = picture_object(file.read_bytes(), *uids, maximum_pixels=maximum_pixels)
        path.write_bytes(content)
        yield path


def _prepared(
    settings: Settings,
    file: Path,
    release_id: str,
    spec: Mapping[str, Any],
    wanted: PrepareRequest,
) -> dict[str, Any]:
    answer = prepare_for_releases(_request(settings, file, release_id, spec))[release_id]
    if isinstance(answer, NotReady):
        return _not_analysed(answer.reason, answer.detail)
    site = SiteWords.of(*settings.guard.site_words)
    _write(wanted, answer.tensor, file, spec, site)
    return {
        "outcome": "prepared",
        "view": answer.view,
        "flags": list(answer.flags),
        "preprocessing_version": answer.preprocessing_version,
        **_facts(answer.tensor),
        **{name: None if path is None else str(path) for name, path in _paths(wanted)},
    }


def _request(
    settings: Settings, file: Path, release_id: str, spec: Mapping[str, Any]
) -> DecodeRequest:
    guard = settings.guard
    return DecodeRequest(
        file,
        {release_id: spec},
        settings.analyse.maximum_pixels,
        settings.analyse.device,
        pixel_limits=guard.limits,
        refused_flags=guard.refuses,
        refused_together=guard.refuses_together,
        site_words=guard.site_words,
    )


def _not_analysed(reason: str, detail: str) -> dict[str, Any]:
    return {
        "outcome": "not_analysed",
        "reason": reason,
        "meaning": REASONS[reason].meaning,
        "detail": detail,
    }


def _input_spec(settings: Settings, release_id: str) -> Mapping[str, Any]:
    """Return the release's input specification. Raises ConfigurationError if there is none."""
    catalogue = load_catalogue(settings.manifests_dir, [release_id])
    if release_id not in catalogue:
        raise ConfigurationError(
            [f"--release {release_id}: no such manifest; known: {', '.join(sorted(catalogue))}"]
        )
    return catalogue[release_id].input_spec


def _facts(tensor: Array) -> dict[str, Any]:
    """Return shape, type and range of a tensor as JSON."""
    values = tensor.astype(np.float64)
    return {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype),
        "minimum": float(values.min()),
        "maximum": float(values.max()),
        "mean": round(float(values.mean()), 4),
    }


def _paths(wanted: PrepareRequest) -> Iterator[tuple[str, Path | None]]:
    yield from (("tensor", wanted.out), ("png", wanted.png), ("explained", wanted.explain))


def _write(
    wanted: PrepareRequest, tensor: Array, file: Path, spec: Mapping[str, Any], site: SiteWords
) -> None:
    if wanted.out is not None:
        np.save(wanted.out, tensor)
    if wanted.png is not None:
        Image.fromarray(_picture(tensor)).save(wanted.png)
    if wanted.explain is not None:
        explain(read_file(file), InputSpec.from_mapping(spec), site=site).save(wanted.explain)


def _picture(tensor: Array) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return (H, W) uint8 of the first channel of (C, H, W), its own range stretched to 0..255."""
    plane = tensor[0].astype(np.float64)
    low = plane.min()
    high = plane.max()
    stretched = (plane - low) / max(high - low, 1e-12) * 255
    return np.asarray(stretched.round(), np.uint8)

"""One image as a release receives it.

It is prepared from a DICOM file, or is a wire tensor of `hilum prepare`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hilum.errors import ConfigurationError
from hilum.models.known_answers.canary import NUMPY_TYPES, Array
from hilum.models.manifest.manifest import Manifest


def wire_image(manifest: Manifest, path: Path, title: str) -> Array:
    """Return (1, 1, H, W) in the wire dtype.

    Raises OSError, and ConfigurationError, which calls the image `title`.
    """
    return (_prepared if path.suffix == ".dcm" else _stored)(manifest, path, title)[None]


def _prepared(manifest: Manifest, path: Path, title: str) -> Array:
    from hilum_preprocessing import NotAnalysable, read_file  # noqa: PLC0415 - a reader of recorded cases needs no codec
    from hilum_preprocessing.prepare import prepare  # noqa: PLC0415 - torch

    try:
        tensor: Array = prepare(read_file(path), manifest.spec).tensor.numpy()
    except NotAnalysable as error:
        raise ConfigurationError(
            [f"{manifest.release.id}: {title} would not be analysed: {error}"]
        ) from error
    return tensor


def read_tensor(path: Path) -> Array:
    """Return the one tensor of a .npy file; no archive of several, no pickle.

    Raises OSError, ValueError.
    """
    with path.open("rb") as source:
        tensor: Array = np.lib.format.read_array(source, allow_pickle=False)
    return tensor


def _stored(manifest: Manifest, path: Path, title: str) -> Array:
    spec = manifest.spec
    release = manifest.release
    wanted = tuple(spec.wire_shape)
    kind = np.dtype(NUMPY_TYPES[spec.wire_dtype])
    try:
        tensor = read_tensor(path)
    except ValueError as error:
        raise ConfigurationError(
            [f"{release.id}: {title} is no NumPy file of numbers: {error}"]
        ) from error
    if tensor.shape != wanted or tensor.dtype != kind:
        problem = f"{title} is {tensor.dtype} {tensor.shape}, the wire tensor is {kind} {wanted}"
        raise ConfigurationError(
            [f"{release.id}: {problem}; `hilum prepare --release {release.id}` writes such files"]
        )
    return tensor

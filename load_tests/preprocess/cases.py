"""What `make bench-preprocess` compares.

The authors' code path beside ours, on the same object, in the same process.

The pictures are synthetic, of 12 bits (8 for JPEG Baseline), and compress about as radiographs do.
`plain` is torchxrayvision's
read_xray_dcm; `shown` is its VinDr loader, which applies modality LUT and window before the same
crop and resize; rows with the name of a recipe are that recipe, up to its grey levels. All take
`Dataset.pixel_array` as it comes:
pydicom chooses the decoder. `fastest` is
`shown` with the quickest plug-in picked by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom import dcmread
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate
from pydicom.uid import UID, ExplicitVRLittleEndian
from skimage.transform import resize as skimage_resize

from hilum_preprocessing import InputSpec, StoredValues, decoding_for, prepare_stored, read_file
from load_tests.bench import authors
from load_tests.preprocess.syntaxes import SYNTAXES, Syntax
from testing.phantoms import phantom

Array = NDArray[Any]
Tensorway = Callable[[], Array]

_SKIMAGE: Callable[..., Any] = skimage_resize
_GRAIN = 8.0  # of 4095
_REDUCED_GOAL = 15.0
_PLAIN = "torchxrayvision_224"
_SHOWN = "torchxrayvision_vindr_224"


@dataclass(frozen=True, slots=True)
class Case:
    """`theirs` and `ours` give (height, width) on ±1024.

    `goal`: how many times faster, None where nobody set one.

    `codec`: our decoder and nothing else, into memory that is there: nothing that uses it can be faster. `decoder`: the Transfer Syntax, and
    the plug-in of pydicom that decodes for them; None where none is needed.
    """

    name: str
    theirs: Tensorway
    ours: Tensorway
    goal: float | None = None
    codec: Tensorway | None = None
    decoder: tuple[UID, str] | None = None


def cases(folder: Path, size: tuple[int, int], square: int) -> list[Case]:
    """All of them, with their files in `folder`.

    `size` (rows, columns) of the files, `square` the side where decoding is left out.
    """
    return [*_without_decoding(square), *_with_decoding(folder, size)]


def picture(rows: int, columns: int, bits: int = 12) -> Array:
    """Stored values of a phantom, blurred and with blurred grain as a detector makes them.

    Lossless codecs leave a third.
    """
    drawn = phantom.make_instance(1, rows=rows, columns=columns).pixel_array.astype(np.float32)
    grain = _blurred(np.random.default_rng(0).normal(0, 1, drawn.shape).astype(np.float32))
    seen = _blurred(drawn) + grain * np.float32(_GRAIN / grain.std())
    stored: Array = (np.clip(seen, 0, 4095) / (4095 / (2**bits - 1))).astype(
        np.uint8 if bits == 8 else np.uint16
    )
    return stored


def _blurred(image: Array) -> Array:
    for axis in (0, 1):
        image = (np.roll(image, 1, axis) + 2 * image + np.roll(image, -1, axis)) / 4
    return image


def _without_decoding(square: int) -> list[Case]:
    array = picture(square, square)
    stored = StoredValues(array, 12, is_signed=False, is_monochrome1=False)
    return [
        Case(
            f"decoding excluded, to {side}",
            partial(_resized, array, side),
            partial(_prepared, stored, _spec(f"torchxrayvision_{side}")),
            goal,
        )
        for side, goal in ((224, 30.0), (512, 19.0))
    ]


def _resized(array: Array, side: int) -> Array:
    """utils.normalize, XRayCenterCrop, XRayResizer."""
    cropped = authors.centre_crop(authors.normalize(array, 4095))
    resized: Array = _SKIMAGE(
        cropped[None], (1, side, side), mode="constant", preserve_range=True
    ).astype(np.float32)[0]
    return resized


def _prepared(stored: StoredValues, spec: InputSpec) -> Array:
    tensor: Array = prepare_stored(stored, spec)[0].numpy()
    return tensor


def _with_decoding(folder: Path, size: tuple[int, int]) -> list[Case]:
    found = []
    for name, syntax in SYNTAXES.items():
        path, encoded = _file(folder, syntax, size)
        decoder = (syntax.uid, syntax.chosen) if syntax.chosen else None
        codec = (
            partial(syntax.decode, encoded, out=syntax.decode(encoded).copy())
            if syntax.decode
            else None
        )
        shown = partial(_read, path, "", authors.vindr)
        ours = partial(_ours, path, _spec(_SHOWN))
        found.append(Case(f"{name}, shown", shown, ours, syntax.goal, codec, decoder))
        if syntax.fastest:
            by_hand = partial(_read, path, syntax.fastest, authors.vindr)
            found.append(
                Case(
                    f"{name}, shown, fastest",
                    by_hand,
                    ours,
                    None,
                    codec,
                    (syntax.uid, syntax.fastest),
                )
            )
        plain = partial(_read, path, "", authors.read_xray_dcm)
        found.append(
            Case(f"{name}, plain", plain, partial(_ours, path, _spec(_PLAIN)), None, codec, decoder)
        )
        if not syntax.encode:
            found += [
                Case(
                    f"{name}, {recipe}",
                    partial(_grey, path, way),
                    partial(_ours_grey, path, _spec(recipe)),
                )
                for recipe, way in _GREY
            ]
    # The last one is JPEG 2000.
    return [
        *found,
        Case(
            f"{name}, shown, reduced",
            shown,
            partial(_ours, path, _reducing_spec()),
            _REDUCED_GOAL,
            None,
            decoder,
        ),
    ]


def _spec(recipe: str) -> InputSpec:
    return InputSpec.from_mapping({"recipe": recipe})


def _reducing_spec() -> InputSpec:
    """`shown` for pictures of 12 bits.

    What the recipe reads off the picture's maximum stands here as a number.
    """
    fields = _spec(_SHOWN).to_mapping()
    source = {**fields["source"], "allow_reduced_decode": "auto", "monochrome1_about": "nominal"}
    maxval = [{"op": "maxval", "of": 4096}, {"op": "clamp", "low": 0, "high": 1}]
    return InputSpec.from_mapping(
        {**fields, "source": source, "intensity": [*maxval, *fields["intensity"][1:]]}
    )


def _file(folder: Path, syntax: Syntax, size: tuple[int, int]) -> tuple[Path, bytes]:
    """The file, and the codestream within it."""
    highest = 2**syntax.bits - 1
    dataset = phantom.make_instance(1, rows=8, columns=8, bits=syntax.bits, modality="CR")
    array = picture(*size, syntax.bits)
    dataset.Rows, dataset.Columns = array.shape
    dataset.BitsAllocated = 8 * array.itemsize
    dataset.BitsStored = syntax.bits
    dataset.HighBit = syntax.bits - 1
    dataset.RescaleSlope = "1"
    dataset.RescaleIntercept = "0"
    dataset.RescaleType = "US"
    dataset.WindowCenter = str(highest // 2)
    dataset.WindowWidth = str(highest * 3 // 4)
    dataset.file_meta.TransferSyntaxUID = syntax.uid
    encoded = syntax.encode(array) if syntax.encode else array.tobytes()
    _put_pixels(dataset, encoded, is_encapsulated=syntax.encode is not None)
    return phantom.save(dataset, folder / f"{syntax.uid}.dcm"), encoded


def _put_pixels(dataset: Dataset, encoded: bytes, *, is_encapsulated: bool) -> None:
    if not is_encapsulated:
        dataset.add_new("PixelData", "OW", encoded)
        return
    dataset.add_new("PixelData", "OB", encapsulate([encoded]))
    dataset["PixelData"].is_undefined_length = True  # PS3.5 A.4


def _read(path: Path, plugin: str, read: Callable[[Dataset], Array]) -> Array:
    dataset = dcmread(path)
    if plugin:
        dataset.pixel_array_options(decoding_plugin=plugin)
    return np.asarray(authors.torchxrayvision(dataset, 224, read)[0])


def _chexpert(dataset: Dataset) -> Array:
    """PXS_preprocessing.py, then Resize((320, 320))."""
    return authors.pillow_resize(authors.chexpert_jpg(dataset), 320, 320, authors.BILINEAR)


def _vit(dataset: Dataset) -> Array:
    """What a general vision model is shown, then its image processor's resize."""
    return authors.pillow_resize(authors.shown_uint8(dataset), 224, 224, authors.BILINEAR)


_GREY = (("chexpert_320", _chexpert), ("vit_imagenet_224", _vit))


def _grey(path: Path, way: Callable[[Dataset], Array]) -> Array:
    """Grey levels 0 to 255, before ToTensor and Normalize."""
    return way(dcmread(path)).astype(np.float32)


def _ours_grey(path: Path, spec: InputSpec) -> Array:
    return _ours(path, spec).astype(np.float32)


def _ours(path: Path, spec: InputSpec) -> Array:
    dataset = read_file(path)
    return _prepared(decoding_for(dataset, spec).of(dataset), spec)


def little_endian(folder: Path) -> Tensorway:
    """From the little endian file of `cases` to the tensor, as ours goes."""
    return partial(_ours, folder / f"{ExplicitVRLittleEndian}.dcm", _spec(_PLAIN))

"""What the authors of published models do to a PNG or JPEG file, written down once more.

Nothing of `hilum_preprocessing` is used here. Each function takes the bytes of a file and gives the
network's input, as those of `authors` do of a data set. Raises ValueError for what the authors
refuse.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from skimage.io import imread

from load_tests.bench.authors import (
    BICUBIC,
    BILINEAR,
    HALF,
    IMAGENET,
    biovil_picture,
    by_skimage,
    by_wrapper,
    chexnet_picture,
    chexzero_picture,
    clip_resize,
    imagenet_of_1024,
    jfhealthcare_picture,
    mira,
    nih_bicubic_picture,
    normalize,
    over_512,
    squashed_picture,
)

Array = NDArray[Any]
PictureAuthor = Callable[[bytes], Array]

# --- readers
# ------------------------------------------------------------------------------------------------


def first_channel(data: bytes) -> Array:
    """skimage.io.imread; of several channels the first, as utils.load_image takes it."""
    image: Array = imread(io.BytesIO(data))
    return image[:, :, 0] if image.ndim > 2 else image


def load_image(data: bytes) -> Array:
    """utils.load_image (maxval 255), or PC_Dataset (maxval 65535) of 16 bits."""
    image = first_channel(data)
    return normalize(image, 65535 if image.dtype == np.uint16 else 255)


def rsna(data: bytes) -> Array:
    """datasets.RSNA_Pneumonia_Dataset with its extension .jpg."""
    return normalize(first_channel(data), 255)


def vindr(data: bytes) -> Array:
    """datasets.VinBrain_Dataset, which reads DICOM alone: its steps without LUT and window."""
    image = first_channel(data)
    return normalize(image, 256 if image.max() < 256 else 65536)


def by_opencv(data: bytes) -> Array:
    """cv2.imread(path, 0); CheXzero reads three channels, which are equal. 16 bits: the high byte."""
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_GRAYSCALE)
    if image is None:
        raise ValueError("no picture")
    return np.asarray(image)


def by_pillow(data: bytes) -> Array:
    """Image.open(path).convert("L").

    Of 16 bits Pillow makes 255 of all that is more: no model was trained on that. The nominal range
    stands here in its place.
    """
    with Image.open(io.BytesIO(data)) as image:
        if image.mode.startswith("I"):
            return np.rint(np.asarray(image, np.float64) / 65535 * 255).astype(np.uint8)
        return np.asarray(image.convert("L"))


# --- readers and the operations behind them
# ------------------------------------------------------------------------------------------------


def torchxrayvision(data: bytes, side: int, read: PictureAuthor = load_image) -> Array:
    """XRayCenterCrop, then XRayResizer."""
    return by_skimage(read(data), side)


def wrapped(data: bytes, side: int, forward: Callable[[Array], Array]) -> Array:
    """The models that torchxrayvision wraps."""
    return by_wrapper(load_image(data), side, forward)


def jfhealthcare(data: bytes) -> Array:
    """data/dataset.py: cv2.imread(path, 0), then data/utils.py."""
    return jfhealthcare_picture(by_opencv(data))


def chexpert(data: bytes) -> Array:
    """The consumer's transforms."""
    return squashed_picture(by_opencv(data), 320, BILINEAR, IMAGENET)


def chexzero_320(data: bytes) -> Array:
    """data_process.img_to_hdf5, which preprocess_padchest.py calls for 16 bits, too."""
    return chexzero_picture(by_opencv(data))


def chexzero_224(data: bytes) -> Array:
    """With pretrained CLIP."""
    return clip_resize(chexzero_320(data))


def biovil(data: bytes) -> Array:
    """hi-ml image/data/io.py load_image: skimage.io.imread, remap_to_uint8. Gray files."""
    return biovil_picture(first_channel(data))


def chexnet(data: bytes) -> Array:
    """Image.open, Resize(256), CenterCrop(224)."""
    return chexnet_picture(by_pillow(data))


def nih_bicubic(data: bytes) -> Array:
    """convert("L").resize((224, 224))."""
    return nih_bicubic_picture(by_pillow(data))


def squashed(
    data: bytes, side: int, kernel: Image.Resampling, moments: tuple[Array, Array]
) -> Array:
    """An image processor."""
    return squashed_picture(by_pillow(data), side, kernel, moments)


PICTURE_AUTHORS: Mapping[str, PictureAuthor] = {
    "torchxrayvision_224": partial(torchxrayvision, side=224),
    "torchxrayvision_512": partial(torchxrayvision, side=512),
    "torchxrayvision_rsna_224": partial(torchxrayvision, side=224, read=rsna),
    "torchxrayvision_vindr_224": partial(torchxrayvision, side=224, read=vindr),
    "torchxrayvision_chexpert_320": partial(wrapped, side=320, forward=over_512),
    "torchxrayvision_jfhealthcare_512": partial(wrapped, side=512, forward=over_512),
    "torchxrayvision_riken_320": partial(wrapped, side=320, forward=imagenet_of_1024),
    "torchxrayvision_emory_hiti_320": partial(wrapped, side=320, forward=imagenet_of_1024),
    "torchxrayvision_xinario_224": partial(wrapped, side=224, forward=imagenet_of_1024),
    "torchxrayvision_chestx_det_512": partial(wrapped, side=512, forward=imagenet_of_1024),
    "torchxrayvision_mira_224": partial(wrapped, side=224, forward=mira),
    "chexpert_320": chexpert,
    "mimic_cxr_jpg_320": chexpert,
    "jfhealthcare_512": jfhealthcare,
    "chexzero_320": chexzero_320,
    "chexzero_224": chexzero_224,
    "biovil_448": biovil,
    "chexnet_nih_224": partial(squashed, side=224, kernel=BILINEAR, moments=IMAGENET),
    "chexnet_nih_256_224": chexnet,
    "nih_pil_bicubic_224": nih_bicubic,
    "vit_imagenet_half_224": partial(squashed, side=224, kernel=BILINEAR, moments=HALF),
    "vit_imagenet_224": partial(squashed, side=224, kernel=BILINEAR, moments=IMAGENET),
    "medgemma_896": partial(squashed, side=896, kernel=BILINEAR, moments=HALF),
    "medsiglip_448": partial(squashed, side=448, kernel=BICUBIC, moments=HALF),
}

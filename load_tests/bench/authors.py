"""What the authors of published models do to a radiograph, written down once more with pydicom, numpy, scikit-image, OpenCV and Pillow.

Nothing of `hilum_preprocessing` is used here: this is what its recipes are compared with. Each
function takes a data set and gives the network's input, (channels, height, width) float64, after
mean and standard deviation. Raises ValueError for what the authors refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from pydicom.dataset import Dataset
from pydicom.pixels.processing import apply_modality_lut, apply_voi_lut, apply_windowing
from skimage.transform import resize as skimage_resize

Array = NDArray[Any]
Author = Callable[[Dataset], Array]

BILINEAR = Image.Resampling.BILINEAR
BICUBIC = Image.Resampling.BICUBIC
LANCZOS = Image.Resampling.LANCZOS
IMAGENET = (np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225]))
HALF = (np.full(3, 0.5), np.full(3, 0.5))


def is_monochrome1(dataset: Dataset) -> bool:
    """As every one of them asks it."""
    return str(dataset.PhotometricInterpretation) == "MONOCHROME1"


# --- torchxrayvision 1.5.7
# ------------------------------------------------------------------------------------------------


def normalize(image: Array, maxval: float) -> Array:
    """utils.normalize."""
    if image.max() > maxval:
        raise ValueError("max image value higher than expected bound")
    return (2 * (image.astype(np.float32) / np.float32(maxval)) - 1.0) * 1024


def read_xray_dcm(dataset: Dataset) -> Array:
    """utils.read_xray_dcm: no VOI, MONOCHROME1 from the largest possible value."""
    largest = 2**dataset.BitsStored - 1
    data = dataset.pixel_array
    return normalize(largest - data if is_monochrome1(dataset) else data, largest)


def rsna(dataset: Dataset) -> Array:
    """datasets.RSNA_Pneumonia_Dataset."""
    return normalize(dataset.pixel_array, 255)


def vindr(dataset: Dataset) -> Array:
    """datasets.VinBrain_Dataset."""
    image = apply_windowing(apply_modality_lut(dataset.pixel_array, dataset), dataset)
    bits = 8 if image.max() < 256 else int(dataset.BitsStored)
    # The authors write -1, which numpy 2 refuses beside unsigned integers; the numbers are the same.
    return normalize(-1.0 * image + 2.0**bits if is_monochrome1(dataset) else image, 2.0**bits)


def centre_crop(image: Array) -> Array:
    """datasets.XRayCenterCrop."""
    rows, columns = image.shape
    side = min(rows, columns)
    top = rows // 2 - side // 2
    left = columns // 2 - side // 2
    return image[top : top + side, left : left + side]


def torchxrayvision(
    dataset: Dataset, side: int, read: Callable[[Dataset], Array] = read_xray_dcm
) -> Array:
    """XRayCenterCrop, then XRayResizer with its engine skimage."""
    return by_skimage(read(dataset), side)


def by_skimage(image: Array, side: int) -> Array:
    """The two transforms of an image within [-1024, 1024]."""
    cropped = centre_crop(image).astype(np.float64)
    resized: Array = skimage_resize(
        cropped[None], (1, side, side), mode="constant", preserve_range=True
    )  # type: ignore[no-untyped-call]  # it has no types
    return resized


def wrapped(dataset: Dataset, side: int, forward: Callable[[Array], Array]) -> Array:
    """XRayCenterCrop, utils.fix_resolution within the model, and the first lines of its forward."""
    return by_wrapper(read_xray_dcm(dataset), side, forward)


def by_wrapper(image: Array, side: int, forward: Callable[[Array], Array]) -> Array:
    """The same of an image within [-1024, 1024]."""
    batch = torch.from_numpy(centre_crop(image).astype(np.float64))[None, None].repeat(1, 3, 1, 1)
    if batch.shape[2] != side:
        batch = torch.nn.functional.interpolate(
            batch, size=(side, side), mode="bilinear", antialias=True
        )
    return forward(batch[0].numpy())


def over_512(image: Array) -> Array:
    """baseline_models.chexpert, baseline_models.jfhealthcare: now between [-2, 2]."""
    return image / 512


def imagenet_of_1024(image: Array) -> Array:
    """baseline_models.riken, emory_hiti, xinario, chestx_det: [0, 1], then ImageNet."""
    return normalised((image + 1024) / 2048, *IMAGENET)


def mira(image: Array) -> Array:
    """baseline_models.mira: 0 to 255."""
    return (image + 1024) / 2048 * 255


# --- 8-bit pictures
# -------------------------------------------------------------------------------------------------------


def normalised(image: Array, mean: Array, std: Array) -> Array:
    """(H, W) or (3, H, W) to (3, H, W): ToTensor has been there, Normalize is this."""
    channels = np.broadcast_to(image, (3, *image.shape[-2:])).astype(np.float64)
    result: Array = (channels - mean[:, None, None]) / std[:, None, None]
    return result


def pillow_resize(picture: Array, height: int, width: int, kernel: Image.Resampling) -> Array:
    """Image.resize of a picture in mode L. In two calls.

    Columns first, as every Pillow did before 13.
    """
    image = Image.fromarray(picture)
    return np.asarray(
        image.resize((width, picture.shape[0]), kernel).resize((width, height), kernel)
    )


def torchvision_resize(picture: Array, size: int) -> Array:
    """transforms.Resize(int) of a PIL image: the shorter side."""
    height, width = picture.shape
    if height < width:
        return pillow_resize(picture, size, int(size * width / height), BILINEAR)
    return pillow_resize(picture, int(size * height / width), size, BILINEAR)


def torchvision_crop(picture: Array, size: int) -> Array:
    """transforms.CenterCrop."""
    top, left = (round((length - size) / 2.0) for length in picture.shape)
    return picture[top : top + size, left : left + size]


def chexpert_jpg(dataset: Dataset) -> Array:
    """PXS_preprocessing.py: what the authors of CheXpert (and MIMIC-CXR-JPG) made of a DICOM object, before JPEG."""
    image = dataset.pixel_array.astype(float)
    image = image - image.min()
    image = (image / image.max() * 255).astype(np.uint8)
    if is_monochrome1(dataset):
        image = cv2.bitwise_not(image)
    equalised: Array = cv2.equalizeHist(image)
    return equalised


def nominal_uint8(dataset: Dataset) -> Array:
    """The 8-bit picture that NIH recipes are given: the nominal range as 0..255."""
    low = -(2 ** (dataset.BitsStored - 1)) if dataset.PixelRepresentation else 0
    part = (dataset.pixel_array.astype(np.float64) - low) / (2**dataset.BitsStored - 1)
    whole: Array = np.rint((1 - part if is_monochrome1(dataset) else part) * 255).astype(np.uint8)
    return whole


def shown_uint8(dataset: Dataset) -> Array:
    """The 8-bit picture that general vision models are given.

    Modality LUT, first window, polarity, 0..255.
    """
    modality = apply_modality_lut(dataset.pixel_array, dataset).astype(np.float64)
    low, high = output_range(dataset)
    shown = apply_voi_lut(modality, dataset, index=0)
    part = (shown - low) / (high - low)
    whole: Array = np.rint((1 - part if is_monochrome1(dataset) else part) * 255).astype(np.uint8)
    return whole


def output_range(dataset: Dataset) -> tuple[float, float]:
    """Ends of what apply_windowing can give, which is the nominal range after the modality LUT."""
    bits = dataset.BitsStored
    low = -(2 ** (bits - 1)) if dataset.PixelRepresentation else 0
    slope, intercept = (
        float(dataset.get(name, default))
        for name, default in (("RescaleSlope", 1), ("RescaleIntercept", 0))
    )
    return low * slope + intercept, (low + 2**bits - 1) * slope + intercept


def chexpert(dataset: Dataset) -> Array:
    """The consumer's transforms: Resize((320, 320)), ToTensor, Normalize."""
    return squashed_picture(chexpert_jpg(dataset), 320, BILINEAR, IMAGENET)


def jfhealthcare(dataset: Dataset) -> Array:
    """data/utils.py transform with config/example.json, on a file of CheXpert."""
    return jfhealthcare_picture(chexpert_jpg(dataset))


def jfhealthcare_picture(picture: Array) -> Array:
    """The same of a picture that data/dataset.py has read."""
    image = cv2.equalizeHist(picture)
    image = cv2.cvtColor(cv2.GaussianBlur(image, (3, 3), 0), cv2.COLOR_GRAY2RGB)
    rows, columns, _ = image.shape
    if rows >= columns:
        height = 512
        width = round(512 / (rows * 1.0 / columns))
    else:
        height = round(512 / (columns * 1.0 / rows))
        width = 512
    image = cv2.resize(image, dsize=(width, height), interpolation=cv2.INTER_LINEAR)
    image = np.pad(
        image, ((0, 512 - height), (0, 512 - width), (0, 0)), mode="constant", constant_values=128.0
    )
    result: Array = (
        ((image.astype(np.float32) - 128.0) / 64.0).transpose((2, 0, 1)).astype(np.float64)
    )
    return result


def chexzero_320(dataset: Dataset) -> Array:
    """data_process.preprocess, then Normalize."""
    return chexzero_picture(chexpert_jpg(dataset))


def chexzero_picture(picture: Array) -> Array:
    """The same of a picture that data_process.img_to_hdf5 has read."""
    rows, columns = picture.shape
    ratio = float(320) / max(rows, columns)
    height = int(rows * ratio)
    width = int(columns * ratio)
    canvas = Image.new("L", (320, 320))
    canvas.paste(
        Image.fromarray(pillow_resize(picture, height, width, LANCZOS)),
        ((320 - width) // 2, (320 - height) // 2),
    )
    return normalised(np.asarray(canvas, np.float64), np.full(3, 101.48761), np.full(3, 83.43944))


def chexzero_224(dataset: Dataset) -> Array:
    """zero_shot.make with pretrained CLIP.

    Resize(224, BICUBIC) of the normalised tensor, as torchvision 0.11 does it.
    """
    return clip_resize(chexzero_320(dataset))


def clip_resize(normalised_image: Array) -> Array:
    """The second resize alone."""
    image = torch.from_numpy(normalised_image.astype(np.float32))[None]
    resized: Array = (
        torch.nn.functional.interpolate(
            image, size=(224, 224), mode="bicubic", align_corners=False
        )[0]
        .double()
        .numpy()
    )
    return resized


def biovil(dataset: Dataset) -> Array:
    """hi-ml: remap_to_uint8 of the pixel array, Resize(512), CenterCrop(448), ToTensor, ExpandChannels."""
    return biovil_picture(dataset.pixel_array)


def biovil_picture(array: Array) -> Array:
    """The same of an array that skimage.io.imread or read_dicom has read."""
    image = array.astype(float)
    image -= image.min()
    image /= image.max()
    picture = torchvision_crop(torchvision_resize((image * 255).astype(np.uint8), 512), 448)
    return np.repeat(picture[None] / 255.0, 3, axis=0)


def chexnet(dataset: Dataset) -> Array:
    """Resize(256), CenterCrop(224), ToTensor, Normalize."""
    return chexnet_picture(nominal_uint8(dataset))


def chexnet_picture(picture: Array) -> Array:
    """The same of an 8-bit picture."""
    return normalised(torchvision_crop(torchvision_resize(picture, 256), 224) / 255, *IMAGENET)


def nih_bicubic(dataset: Dataset) -> Array:
    """convert("L").resize((224, 224)), one channel."""
    return nih_bicubic_picture(nominal_uint8(dataset))


def nih_bicubic_picture(picture: Array) -> Array:
    """The same of an 8-bit picture."""
    return (pillow_resize(picture, 224, 224, BICUBIC)[None] / 255 - 0.485) / 0.229


def squashed(
    dataset: Dataset,
    side: int,
    kernel: Image.Resampling,
    moments: tuple[Array, Array],
    read: Callable[[Dataset], Array],
) -> Array:
    """An image processor: resize to a square, rescale by 1/255, normalise."""
    return squashed_picture(read(dataset), side, kernel, moments)


def squashed_picture(
    picture: Array, side: int, kernel: Image.Resampling, moments: tuple[Array, Array]
) -> Array:
    """The same of an 8-bit picture."""
    return normalised(pillow_resize(picture, side, side, kernel) / 255, *moments)


AUTHORS: Mapping[str, Author] = {
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
    "chexnet_nih_224": partial(
        squashed, side=224, kernel=BILINEAR, moments=IMAGENET, read=nominal_uint8
    ),
    "chexnet_nih_256_224": chexnet,
    "nih_pil_bicubic_224": nih_bicubic,
    "vit_imagenet_half_224": partial(
        squashed, side=224, kernel=BILINEAR, moments=HALF, read=shown_uint8
    ),
    "vit_imagenet_224": partial(
        squashed, side=224, kernel=BILINEAR, moments=IMAGENET, read=shown_uint8
    ),
    "medgemma_896": partial(squashed, side=896, kernel=BILINEAR, moments=HALF, read=shown_uint8),
    "medsiglip_448": partial(squashed, side=448, kernel=BICUBIC, moments=HALF, read=shown_uint8),
}

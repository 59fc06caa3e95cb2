"""Published preprocessing by name.

Serving follows the training of a model, not the display of a viewer. Torch-free.

Each recipe cites its source. Sizes of a wrong choice, on one image in 8-bit levels at 224: a missed
inversion 121, a wrong scale 159, squash instead of centre crop 38, no antialiasing 6, another
antialiased kernel below 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Recipe = Mapping[str, Any]

_TO_UNIT: Final[Recipe] = {"op": "maxval", "of": "bits"}
_TO_1024: Final[Recipe] = {"op": "scale", "multiply": 2048, "add": -1024}
_ROUNDED_UINT8: Final = ({"op": "maxval", "of": "bits"}, {"op": "to_uint8", "mode": "round"})
_AS_IT_IS: Final[Recipe] = {"modality_lut": "ignore", "voi": "none", "monochrome1": "invert"}
_AS_SHOWN: Final[Recipe] = {
    "modality_lut": "apply",
    "voi": "first_window",
    "missing_voi": "identity",
    "monochrome1": "invert",
}

_IMAGENET_MEAN: Final = (0.485, 0.456, 0.406)
_IMAGENET_STD: Final = (0.229, 0.224, 0.225)
_IMAGENET_ON_255: Final[Recipe] = {
    "mean": [255 * mean for mean in _IMAGENET_MEAN],
    "std": [255 * std for std in _IMAGENET_STD],
    "channels": 3,
}
_HALF_ON_255: Final[Recipe] = {"mean": 127.5, "std": 127.5, "channels": 3}
# (x + 1024) / 2048, then mean and standard deviation of ImageNet.
_IMAGENET_ON_1024: Final[Recipe] = {
    "mean": [2048 * mean - 1024 for mean in _IMAGENET_MEAN],
    "std": [2048 * std for std in _IMAGENET_STD],
    "channels": 3,
}

# How CheXpert's and MIMIC-CXR's DICOM objects became the published JPEG files; their compression
# (quality 95) is left out.
_JPG_SOURCE: Final[Recipe] = {
    "modality_lut": "ignore",
    "voi": "none",
    "monochrome1": "invert_after_uint8",
    "padding": "keep",
}
_JPG_INTENSITY: Final = (
    {"op": "minmax"},
    {"op": "to_uint8", "mode": "truncate"},
    {"op": "equalize_hist"},
)
_JPG_CITES: Final = (
    "PXS_preprocessing.py of QTIM-Lab's PXS-score: min-max, truncation, bitwise_not of MONOCHROME1,"
    " cv2.equalizeHist"
)


def _square(side: int, dtype: str) -> Recipe:
    return {"height": side, "width": side, "dtype": dtype}


def _squash(side: int, kernel: str, compute: str = "uint8_rounded") -> Recipe:
    return {"op": "resize", "height": side, "width": side, "kernel": kernel, "compute": compute}


def _torchxrayvision(side: int, **changes: Any) -> Recipe:  # noqa: ANN401 - fields of any type
    """(1, side, side) fp16 in [-1024, 1024].

    Rescale and windows are ignored, MONOCHROME1 is 2^BitsStored - 1 - x.
    """
    recipe = {
        "cites": (
            "torchxrayvision 1.5.7: utils.read_xray_dcm, utils.normalize, datasets.XRayCenterCrop,"
            f" datasets.XRayResizer({side})"
        ),
        "source": _AS_IT_IS,
        "intensity": [_TO_UNIT, _TO_1024],
        "geometry": [
            {"op": "centre_crop", "size": "min"},
            {**_squash(side, "skimage", "float"), "clip_to_input": True},
        ],
        "target": _square(side, "fp16"),
        "normalise": {"mean": 0.0, "std": 1.0, "channels": 1},
        "views": "frontal_only",
    }
    return {**recipe, **changes}


def _torchxrayvision_wrapper(name: str, side: int, normalise: Recipe) -> Recipe:
    """(1, side, side) fp16 in [-1024, 1024].

    The crop of the library, then the resize that the wrapped model does by itself.
    """
    return _torchxrayvision(
        side,
        cites=(
            "torchxrayvision 1.5.7: utils.read_xray_dcm, datasets.XRayCenterCrop,"
            f" utils.fix_resolution({side}), baseline_models.{name}"
        ),
        geometry=[{"op": "centre_crop", "size": "min"}, _squash(side, "torch_aa", "float")],
        normalise=normalise,
    )


def _eight_bits(
    # As above.
    side: int,
    geometry: list[Recipe],
    normalise: Recipe,
    cites: str,
    **changes: Any,  # noqa: ANN401
) -> Recipe:
    """(1, side, side) uint8; other depths are brought to 8 bits by their nominal range."""
    recipe = {
        "cites": cites,
        "source": _AS_IT_IS,
        "intensity": list(_ROUNDED_UINT8),
        "geometry": geometry,
        "target": _square(side, "uint8"),
        "normalise": normalise,
        "views": "frontal_only",
    }
    return {**recipe, **changes}


def _jpg(
    # As above.
    side: int,
    geometry: list[Recipe],
    normalise: Recipe,
    cites: str,
    **changes: Any,  # noqa: ANN401
) -> Recipe:
    """(1, side, side) uint8 from the grey levels of CheXpert's and MIMIC-CXR-JPG's files."""
    intensity = changes.pop("intensity", list(_JPG_INTENSITY))
    return _eight_bits(
        side,
        geometry,
        normalise,
        f"{_JPG_CITES}; {cites}",
        source=_JPG_SOURCE,
        intensity=intensity,
        **changes,
    )


_CHEXZERO_320: Final = (
    {
        "op": "resize_side",
        "side": "long",
        "size": 320,
        "rounding": "int_of_ratio",
        "kernel": "pil_lanczos",
        "compute": "uint8_rounded",
    },
    {"op": "pad", "value": 0, "to": 320},
)
_CHEXZERO: Final[Recipe] = {"mean": 101.48761, "std": 83.43944, "channels": 3}
_CONSUMER_320: Final = "the consumer's usual 320x320, PIL bilinear, mean and std of ImageNet"

RECIPES: Final[Mapping[str, Recipe]] = {
    "torchxrayvision_224": _torchxrayvision(224),
    "torchxrayvision_512": _torchxrayvision(512),
    # The data set's own loader: pixel_array of an 8-bit JPEG as it is. It ignores Photometric
    # Interpretation.
    "torchxrayvision_rsna_224": _torchxrayvision(
        224,
        cites=(
            "torchxrayvision 1.5.7: datasets.RSNA_Pneumonia_Dataset (maxval 255), XRayCenterCrop,"
            " XRayResizer(224)"
        ),
        source={**_AS_IT_IS, "monochrome1": "ignore"},
        intensity=[{"op": "maxval", "of": 255, "outside": "reject"}, _TO_1024],
    ),
    # Its loader takes 2^b where others take 2^b - 1, and 256 where all values are below it.
    "torchxrayvision_vindr_224": _torchxrayvision(
        224,
        cites=(
            "torchxrayvision 1.5.7: datasets.VinBrain_Dataset (modality LUT, apply_windowing, 2^b -"
            " x), XRayCenterCrop, XRayResizer(224)"
        ),
        source={
            **_AS_SHOWN,
            "voi_prefer": "window_only",
            "window_output": "modality_range",
            "monochrome1_about": "two_to_bits",
        },
        intensity=[{"op": "maxval", "of": "two_to_bits", "outside": "reject"}, _TO_1024],
    ),
    "torchxrayvision_chexpert_320": _torchxrayvision_wrapper(
        "chexpert", 320, {"mean": 0.0, "std": 512.0, "channels": 3}
    ),
    "torchxrayvision_jfhealthcare_512": _torchxrayvision_wrapper(
        "jfhealthcare", 512, {"mean": 0.0, "std": 512.0, "channels": 3}
    ),
    "torchxrayvision_riken_320": _torchxrayvision_wrapper("riken", 320, _IMAGENET_ON_1024),
    "torchxrayvision_emory_hiti_320": _torchxrayvision_wrapper(
        "emory_hiti", 320, _IMAGENET_ON_1024
    ),
    "torchxrayvision_xinario_224": _torchxrayvision_wrapper("xinario", 224, _IMAGENET_ON_1024),
    "torchxrayvision_chestx_det_512": _torchxrayvision_wrapper(
        "chestx_det", 512, _IMAGENET_ON_1024
    ),
    "torchxrayvision_mira_224": _torchxrayvision_wrapper(
        "mira", 224, {"mean": -1024.0, "std": 2048 / 255, "channels": 3}
    ),
    "chexpert_320": _jpg(
        320, [_squash(320, "pil_bilinear_aa")], _IMAGENET_ON_255, f"CheXpert; {_CONSUMER_320}"
    ),
    "mimic_cxr_jpg_320": _jpg(
        320,
        [_squash(320, "pil_bilinear_aa")],
        _IMAGENET_ON_255,
        f"MIMIC-CXR-JPG on PhysioNet; {_CONSUMER_320}",
    ),
    # Trained on CheXpert's files, so their histogram is equalised twice.
    "jfhealthcare_512": _jpg(
        512,
        [
            {"op": "blur", "size": 3},
            {
                "op": "resize_side",
                "side": "long",
                "size": 512,
                "rounding": "round",
                "kernel": "cv2_linear",
                "compute": "uint8_once",
            },
            {"op": "pad", "value": 128, "place": "bottom_right", "to": 512},
        ],
        {"mean": 128.0, "std": 64.0, "channels": 3},
        "jfhealthcare Chexpert, data/utils.py and config/example.json",
        intensity=[*_JPG_INTENSITY, {"op": "equalize_hist"}],
    ),
    "chexzero_320": _jpg(
        320,
        list(_CHEXZERO_320),
        _CHEXZERO,
        "CheXzero, data_process.py and zero_shot.py, without CLIP's weights",
    ),
    # Its second resize comes after mean and std, in float: the same as before them, because the
    # weights of a row sum to 1.
    "chexzero_224": _jpg(
        224,
        [*_CHEXZERO_320, _squash(224, "torch_bicubic", "float")],
        _CHEXZERO,
        "CheXzero, data_process.py and zero_shot.py with CLIP's weights; torchvision 0.11: bicubic"
        " without antialiasing",
        target=_square(224, "fp16"),
    ),
    # MONOCHROME1 is not handled by its code, and neither here.
    "biovil_448": _eight_bits(
        448,
        [
            {
                "op": "resize_side",
                "side": "short",
                "size": 512,
                "rounding": "int",
                "kernel": "pil_bilinear_aa",
                "compute": "uint8_rounded",
            },
            {"op": "centre_crop", "size": 448, "offset": "half_gap"},
        ],
        {"mean": 0.0, "std": 255.0, "channels": 3},
        "hi-ml multimodal: image/data/io.py (remap_to_uint8) and transforms.py (Resize 512,"
        " CenterCrop 448)",
        source={
            "modality_lut": "ignore",
            "voi": "none",
            "monochrome1": "ignore",
            "padding": "keep",
        },
        intensity=[{"op": "minmax"}, {"op": "to_uint8", "mode": "truncate"}],
    ),
    "chexnet_nih_224": _eight_bits(
        224,
        [_squash(224, "pil_bilinear_aa")],
        _IMAGENET_ON_255,
        "CheXNet reproductions on NIH PNG: Resize((224, 224)), ImageNet",
    ),
    "chexnet_nih_256_224": _eight_bits(
        224,
        [
            {
                "op": "resize_side",
                "side": "short",
                "size": 256,
                "rounding": "int",
                "kernel": "pil_bilinear_aa",
                "compute": "uint8_rounded",
            },
            {"op": "centre_crop", "size": 224, "offset": "half_gap"},
        ],
        _IMAGENET_ON_255,
        "CheXNet reproductions on NIH PNG (arXiv 1711.05225): Resize(256), CenterCrop(224),"
        " ImageNet mean and std",
    ),
    # Trained on the 8-bit PNG of NIH ChestX-ray14.
    "nih_pil_bicubic_224": _eight_bits(
        224,
        [_squash(224, "pil_bicubic_aa")],
        {"mean": 0.485 * 255, "std": 0.229 * 255, "channels": 1},
        "NIH ChestX-ray14 PNG as Pillow reads them: convert('L').resize((224, 224)), bicubic; (x /"
        " 255 - 0.485) / 0.229",
    ),
    # ViTImageProcessor and its like take a displayable 8-bit picture, so the object's own window
    # makes one.
    "vit_imagenet_half_224": _eight_bits(
        224,
        [_squash(224, "pil_bilinear_aa")],
        _HALF_ON_255,
        "Hugging Face transformers, ViTImageProcessor: resize 224x224 resample 2 (PIL bilinear),"
        " rescale 1/255, mean 0.5, std 0.5",
        source=_AS_SHOWN,
    ),
    "vit_imagenet_224": _eight_bits(
        224,
        [_squash(224, "pil_bilinear_aa")],
        _IMAGENET_ON_255,
        "Hugging Face transformers, ViTImageProcessor with mean and std of ImageNet: resize 224x224"
        " resample 2, rescale 1/255",
        source=_AS_SHOWN,
    ),
    "medgemma_896": _eight_bits(
        896,
        [_squash(896, "pil_bilinear_aa")],
        _HALF_ON_255,
        "Gemma3ImageProcessor of MedGemma: 896x896 resample 2 (PIL bilinear), rescale 1/255, mean"
        " 0.5, std 0.5",
        source=_AS_SHOWN,
        views="any",
    ),
    "medsiglip_448": _eight_bits(
        448,
        [_squash(448, "pil_bicubic_aa")],
        _HALF_ON_255,
        "SiglipImageProcessor of MedSigLIP: 448x448 resample 3 (PIL bicubic), rescale 1/255, mean"
        " 0.5, std 0.5",
        source=_AS_SHOWN,
        views="any",
    ),
}

"""Published preprocessing by name. Serving follows what a model was trained on, not what a viewer would show. Torch-free.

Each recipe cites where it comes from. Sizes of a wrong choice, on one image in 8-bit levels at 224: a missed inversion 121, a
wrong scale 159, squash instead of centre crop 38, no antialiasing 6, another antialiased kernel below 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_PIL_UINT8 = {"op": "resize", "height": 224, "width": 224, "compute": "uint8_rounded"}

RECIPES: Mapping[str, Mapping[str, Any]] = {
    # (1, 224, 224) fp16 in [-1024, 1024]. Rescale and windows are ignored, MONOCHROME1 is 2^BitsStored - 1 - x.
    "torchxrayvision_224": {
        "cites": "torchxrayvision 1.5.7: utils.read_xray_dcm, utils.normalize, datasets.XRayCenterCrop, datasets.XRayResizer(224)",
        "source": {"modality_lut": "ignore", "voi": "none", "monochrome1": "invert"},
        "intensity": [{"op": "maxval", "of": "bits"}, {"op": "scale", "multiply": 2048, "add": -1024}],
        "geometry": [
            {"op": "centre_crop", "size": "min"},
            {"op": "resize", "height": 224, "width": 224, "kernel": "skimage", "clip_to_input": True},
        ],
        "target": {"height": 224, "width": 224, "dtype": "fp16"},
        "normalise": {"mean": 0.0, "std": 1.0, "channels": 1},
        "views": "frontal_only",
    },
    # (1, 224, 224) uint8. ViTImageProcessor takes a displayable 8-bit picture, so the object's own window makes one.
    "vit_imagenet_half_224": {
        "cites": "Hugging Face transformers, ViTImageProcessor: resize 224x224 resample 2 (PIL bilinear), rescale 1/255, mean 0.5, std 0.5",
        "source": {"modality_lut": "apply", "voi": "first_window", "missing_voi": "identity", "monochrome1": "invert"},
        "intensity": [{"op": "maxval", "of": "bits"}, {"op": "to_uint8", "mode": "round"}],
        "geometry": [{**_PIL_UINT8, "kernel": "pil_bilinear_aa"}],
        "target": {"height": 224, "width": 224, "dtype": "uint8"},
        "normalise": {"mean": 127.5, "std": 127.5, "channels": 3},
        "views": "frontal_only",
    },
    # (1, 224, 224) uint8. Trained on the 8-bit PNG of NIH ChestX-ray14; other depths are brought to 8 bits by their nominal range.
    "nih_pil_bicubic_224": {
        "cites": "NIH ChestX-ray14 PNG as Pillow reads them: convert('L').resize((224, 224)), bicubic; (x / 255 - 0.485) / 0.229",
        "source": {"modality_lut": "ignore", "voi": "none", "monochrome1": "invert"},
        "intensity": [{"op": "maxval", "of": "bits"}, {"op": "to_uint8", "mode": "round"}],
        "geometry": [{**_PIL_UINT8, "kernel": "pil_bicubic_aa"}],
        "target": {"height": 224, "width": 224, "dtype": "uint8"},
        "normalise": {"mean": 0.485 * 255, "std": 0.229 * 255, "channels": 1},
        "views": "frontal_only",
    },
}

"""Colour and several frames through the whole path.

What a specification allows reaches the decoder, and nothing else does.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pydicom.dataset import Dataset

from hilum_preprocessing import NotAnalysable, Reason
from hilum_preprocessing.prepare import prepare
from tests.support.objects.radiograph import radiograph, scene, spec

GREY = (scene(120, 100) >> 4).astype(np.uint8)


def colour() -> Dataset:
    dataset = radiograph(
        GREY, SamplesPerPixel=3, PhotometricInterpretation="RGB", PlanarConfiguration=0
    )
    dataset.PixelData = np.dstack([GREY, GREY, GREY]).tobytes()
    return dataset


def frames() -> Dataset:
    dataset = radiograph(GREY, NumberOfFrames="2")
    dataset.PixelData = np.stack([GREY, 255 - GREY]).tobytes()
    return dataset


@pytest.mark.parametrize(
    ("dataset", "allowed", "reason"),
    [
        (colour(), {"rgb": "luma"}, Reason.NOT_MONOCHROME),
        (colour(), {"rgb": "first_channel"}, Reason.NOT_MONOCHROME),
        (frames(), {"frames": "first"}, Reason.MULTI_FRAME),
    ],
)
def test_what_a_specification_allows_is_prepared(dataset, allowed, reason):
    """Traps 22 and 23: refused by default, and one defined picture where a specification takes them."""
    expected = prepare(radiograph(GREY), spec("nih_pil_bicubic_224")).tensor
    assert torch.equal(
        prepare(dataset, spec("nih_pil_bicubic_224", source=allowed)).tensor, expected
    )
    with pytest.raises(NotAnalysable) as refused:
        prepare(dataset, spec("nih_pil_bicubic_224"))
    assert refused.value.reason is reason

"""Several pictures at once, of any shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from hilum_preprocessing.decode import StoredValues
from hilum_preprocessing.prepare import prepare_visible
from hilum_preprocessing.spec.input_spec import InputSpec
from hilum_preprocessing.tensor.upload import on_device
from hilum_preprocessing.tensor.visible import visible


@torch.no_grad()
def prepare_batch(
    pictures: Sequence[StoredValues],
    spec: InputSpec,
    device: str | torch.device = "cpu",
    arithmetic: Literal["float", "fp16"] = "float",
) -> Tensor:
    """(B, 1, height, width) fp16 or uint8 on `device`, B being at least 1.

    Raises NotAnalysable when one of the pictures is.

    Every picture goes through the products that it would go through alone, of its own shape:
    neighbours, position and padding cannot change a bit of it, and no bytes are spent on making
    shapes equal. On a GPU the next picture is uploaded meanwhile.
    """
    parts = [visible(stored, spec) for stored in pictures]
    arrived = on_device(
        (part.within(stored.array) for stored, part in zip(pictures, parts, strict=True)),
        torch.device(device),
    )
    rows = zip(pictures, parts, arrived, strict=True)
    return torch.stack(
        [prepare_visible(stored, part, words, spec, arithmetic) for stored, part, words in rows]
    )

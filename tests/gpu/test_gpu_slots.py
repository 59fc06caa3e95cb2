"""Slots that are registered with CUDA are sent from where they are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hilum.analyse.decode.locked_pages import lock_pages
from hilum.analyse.decode.slots import Area, SlotLease, SlotMemory
from hilum_preprocessing.tensor.upload import on_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def test_what_lies_in_a_slot_is_page_locked_and_arrives():
    slots = SlotMemory(Area(2, 1 << 20))
    assert lock_pages(slots.pages, "cuda:0")
    picture = np.arange(300 * 200, dtype=np.uint16).reshape(300, 200)
    (placed,) = slots.write(SlotLease(1, 7), [picture]) or []
    array = slots.read(SlotLease(1, 7), placed)
    assert torch.from_numpy(array).is_pinned()
    (sent,) = on_device([array], torch.device("cuda"))
    assert (sent.cpu().numpy() == picture).all()

"""The same code on a GPU gives the tensors of the CPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hilum_preprocessing import RECIPES, InputSpec, StoredValues, prepare_stored
from hilum_preprocessing.batch import prepare_batch
from tests.support.objects.radiograph import scene

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

SIZES = [(2500, 2048), (301, 257), (260, 700)]
TXRV = InputSpec.from_mapping({"recipe": "torchxrayvision_224"})


def picture(size: tuple[int, int], bits: int = 12, seed: int = 0) -> StoredValues:
    array = scene(*size, bits, seed).astype(np.uint8 if bits == 8 else np.uint16)
    return StoredValues(array, bits, is_signed=False, is_monochrome1=False)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("size", SIZES)
def test_a_gpu_gives_the_tensor_of_the_cpu(name, size):
    """Trap 38: whole grey levels are equal, fp16 within one step of its own at 1024."""
    given = InputSpec.from_mapping({"recipe": name})
    stored = picture(size, 8 if name == "torchxrayvision_rsna_224" else 12)
    on_cpu, on_gpu = prepare_stored(stored, given), prepare_stored(stored, given, "cuda").cpu()
    assert (on_cpu.float() - on_gpu.float()).abs().max() <= (
        0.0 if given.wire_dtype == "uint8" else 0.5
    )


def test_half_precision_on_a_gpu():
    """Its own error, and that of fp16 on the wire."""
    for size in SIZES:
        exact, half = (
            prepare_stored(picture(size), TXRV),
            prepare_stored(picture(size), TXRV, "cuda", "fp16").cpu(),
        )
        assert (exact.float() - half.float()).abs().max() <= 1.0


@pytest.mark.parametrize("is_locked", [False, True])
def test_a_batch_is_its_images_alone(is_locked):
    """Trap 37, while pictures of other shapes and depths travel on the side stream."""
    pictures = [picture(SIZES[number % 3], 12, number) for number in range(9)]
    if is_locked:
        pictures = [
            StoredValues(locked(item.array), 12, is_signed=False, is_monochrome1=False)
            for item in pictures
        ]
    alone = [prepare_stored(item, TXRV, "cuda") for item in pictures]
    for order in (range(9), [*reversed(range(9))], [4, 4, 0, 8]):
        batch = prepare_batch([pictures[index] for index in order], TXRV, "cuda")
        assert all(
            (batch[place].float() - alone[index].float()).abs().max() <= 1e-3
            for place, index in enumerate(order)
        )


def locked(array: np.ndarray) -> np.ndarray:
    memory = torch.empty(array.shape, dtype=torch.uint16, pin_memory=True).numpy()
    memory[:] = array
    return memory


def test_tf32_is_refused_on_the_gpu():
    """Trap 36."""
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        with pytest.raises(RuntimeError, match="tf32"):
            prepare_stored(picture((301, 257)), TXRV, "cuda")
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False

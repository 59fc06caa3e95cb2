"""The same code on a GPU gives the tensors of the CPU."""

from __future__ import annotations

import pytest
import torch

from hilum_preprocessing import RECIPES, InputSpec, decode, prepare_stored
from tests.support.radiograph import radiograph, scene

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("size", [(2500, 2048), (301, 257)])
def test_a_gpu_gives_the_tensor_of_the_cpu(name, size):
    """Trap 38: whole grey levels are equal, fp16 within one step of its own at 1024."""
    given = InputSpec.from_mapping({"recipe": name})
    stored = decode(radiograph(scene(*size), 12))
    on_cpu, on_gpu = prepare_stored(stored, given), prepare_stored(stored, given, "cuda").cpu()
    assert (on_cpu.float() - on_gpu.float()).abs().max() <= (0.0 if given.is_uint8 else 0.5)


def test_tf32_is_refused_on_the_gpu():
    """Trap 36."""
    stored = decode(radiograph(scene(301, 257), 12))
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        with pytest.raises(RuntimeError, match="tf32"):
            prepare_stored(stored, InputSpec.from_mapping({"recipe": "torchxrayvision_224"}), "cuda")
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False

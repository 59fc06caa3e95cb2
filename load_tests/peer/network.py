"""The peer's two engines for one DenseNet-121.

(B, 1, 224, 224) float32 → scores (B, labels) float32 after the sigmoid.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hilum.models.networks.densenet import DenseNet121
from load_tests.peer.preparation import SIZE

Scores = NDArray[np.float32]
Network = Callable[[NDArray[Any]], Scores]


def in_torch(weights: Path, outputs: int) -> Network:
    """Eager torch in float32, from a state dictionary."""
    network = DenseNet121(1, outputs, SIZE, SIZE)
    network.load_state_dict(torch.load(weights, weights_only=True))
    network.eval()

    def run(batch: NDArray[Any]) -> Scores:
        with torch.inference_mode():
            logits = network.head(network.represent(torch.from_numpy(batch)))
            scores: Scores = torch.sigmoid(logits).numpy()
        return scores

    return run


def in_openvino(onnx: Path, threads: int, precision: str) -> Network:
    """OpenVINO on the CPU in bf16 or f32, from ONNX as torch exports it.

    (B, 1, 224, 224) fp16 → logits.
    """
    import openvino  # noqa: PLC0415 - the plain peer has none

    core = openvino.Core()
    options = {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,  # two processes would be pinned to the same core
    }
    request = core.compile_model(core.read_model(onnx), "CPU", options).create_infer_request()

    def run(batch: NDArray[Any]) -> Scores:
        request.infer({"image": batch.astype(np.float16)})
        scores: Scores = 1 / (1 + np.exp(-request.get_tensor("logits").data))
        return scores

    return run

"""A model that answers at once, so that a request is the way there and back.

Copied into a tree as `1/model.py`, run by Triton's stub.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hilum.models.formats.triton_model import Batch, Engine, refuse_numpy_2
from hilum.models.formats.triton_model import TritonPythonModel as Served


def open_null(outputs: Sequence[Mapping[str, Any]], max_batch: int) -> Engine:
    """Zeros in the shapes and types of config.pbtxt's outputs, `dims` without the batch."""
    types = {"TYPE_FP32": np.float32, "TYPE_FP16": np.float16}
    zeros = {
        item["name"]: np.zeros((max_batch, *map(int, item["dims"])), types[item["data_type"]])
        for item in outputs
    }
    return lambda batch: {name: value[: len(batch)] for name, value in zeros.items()}


class TritonPythonModel(Served):
    """The class that Triton's Python backend looks for: all as served, but the engine."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """No network to load."""
        refuse_numpy_2(np.__version__)
        config = json.loads(args["model_config"])
        self._engine = open_null(config["output"], config["max_batch_size"])


__all__ = ["Batch", "TritonPythonModel", "open_null"]

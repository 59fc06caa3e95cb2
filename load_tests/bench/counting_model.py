"""The embedded model, which counts the CPU of its engine.

Copied into a tree that is measured as `1/model.py`, run by Triton's stub.

The count stands in a file of tritonserver's own folder, as there is no port for metrics. It holds
the engine's calls, with all threads of the stub while one runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from hilum.models.formats.triton_model import Batch
from hilum.models.formats.triton_model import TritonPythonModel as Served

SUFFIX = ".engine_cpu_seconds"


class TritonPythonModel(Served):
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """As served, with a counter around the engine."""
        super().initialize(args)
        self._seconds = 0.0
        self._file = Path(os.environ["TMPDIR"], f"{args['model_name']}{SUFFIX}")
        self._bare = self._engine
        self._engine = self._counted

    def _counted(self, batch: Batch) -> Mapping[str, Batch]:
        began = time.process_time()
        outputs = self._bare(batch)
        self._seconds += time.process_time() - began
        fresh = self._file.with_suffix(".new")
        fresh.write_text(str(self._seconds), encoding="ascii")
        fresh.replace(self._file)
        return outputs

"""The embedded model, which counts the CPU of its engine: copied into a tree that is measured as `1/model.py`, run by Triton's stub.

The metric appears among tritonserver's own. It holds the engine's calls, with all threads of the stub while one runs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from hilum.models.embedded_model import Batch
from hilum.models.embedded_model import TritonPythonModel as Served

METRIC = "hilum_engine_cpu_seconds_total"


class TritonPythonModel(Served):
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """As served, with a counter around the engine."""
        import triton_python_backend_utils as pb_utils  # noqa: PLC0415 - exists only inside the stub

        super().initialize(args)
        self._family = pb_utils.MetricFamily(name=METRIC, description="CPU of the engine.", kind=pb_utils.MetricFamily.COUNTER)
        self._seconds = self._family.Metric(labels={"model": args["model_name"]})
        self._bare, self._engine = self._engine, self._counted

    def _counted(self, batch: Batch) -> Mapping[str, Batch]:
        began = time.process_time()
        outputs = self._bare(batch)
        self._seconds.increment(time.process_time() - began)
        return outputs

"""The Triton model of the embedded profile.

It is copied into every tree as `1/model.py` and run by Triton's Python stub. It imports the
standard library, numpy and the engine, never the rest of Hilum. One instance computes one batch of
all requests of an execute.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

Batch = np.ndarray[Any, np.dtype[Any]]
Engine = Callable[[Batch], Mapping[str, Batch]]
OUTPUTS = frozenset({"logits", "member_logits", "cam"})
_STREAMS = 16  # most images at once: on a machine with more cores, several cores share an image


def refuse_numpy_2(version: str) -> None:
    """Raise RuntimeError under numpy 2, because Triton 2.51's stub was built for numpy 1.

    Under numpy 2 every input reads as a constant and outputs are empty, without an error.
    """
    if int(version.partition(".")[0]) >= 2:
        raise RuntimeError(
            f"numpy {version} in the Python of Triton's stub gives wrong answers silently; on"
            " Hilum's machine: hilum triton install; elsewhere: install numpy 1.26.4 there"
        )


def refuse_missing_precision(precision: str, capabilities: Sequence[str]) -> None:
    """Raise RuntimeError where the release pins bf16 and this CPU has none.

    Otherwise two hosts would give two numbers under one name.
    """
    if precision == "bf16" and "BF16" not in capabilities:
        raise RuntimeError(
            "the release pins precision bf16, which this CPU lacks; make a release with"
            " precision f32"
        )


def open_engine(
    artefact: Path, engine: str, precision: str, optimisation: str, threads: int = 0
) -> Engine:
    """Return a function from an image to its outputs, computed by this engine.

    (B, 1, H, W) → {"logits": (B, L) float32, maybe "member_logits" and "cam"}. `threads` 0: all
    cores that this process may use.

    Raises RuntimeError, here or when it is called, where the engine cannot take the artefact.
    """
    cores = _cores(threads)
    if engine == "openvino":
        return _openvino(artefact, precision, cores)
    if engine == "onnxruntime":
        return _onnxruntime(artefact, optimisation, cores)
    raise RuntimeError(f"engine {engine!r} is neither openvino nor onnxruntime")


def _cores(threads: int) -> int:
    return threads or len(os.sched_getaffinity(0))


def _openvino(artefact: Path, precision: str, threads: int) -> Engine:
    import openvino  # noqa: PLC0415 - the release names its engine; the other one may not be installed

    core = openvino.Core()
    refuse_missing_precision(precision, core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
    # An image is one call, on a core of its own where there are enough. Threads that share each
    # layer would wait for one another at its end, and spin while they do: a fifth more CPU where
    # decoders use the same cores, for the same bits (docs/decisions/streams.md).
    streams = streams_of(threads)
    options = {
        # without it OpenVINO takes bf16 wherever the CPU has it, even for an fp32 model
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": streams,
        "PERFORMANCE_HINT": "THROUGHPUT",
        # decoders and other releases share the cores, and the scheduler knows which one is free
        "ENABLE_CPU_PINNING": False,
    }
    model = core.read_model(artefact)
    model.reshape(
        {"image": [1, *list(model.input("image").partial_shape)[1:]]}
    )  # a known batch saves it another twentieth
    compiled = core.compile_model(model, "CPU", options)
    requests = [compiled.create_infer_request() for _ in range(streams)]
    return lambda batch: images_in_turn(requests, batch)


def streams_of(threads: int) -> int:
    """Return the number of images computed at once.

    Each has as many threads as the others, and the rest is smaller than one image's share.
    """
    each = -(-threads // _STREAMS)
    return threads // each


def images_in_turn(requests: Sequence[Any], batch: Batch) -> Mapping[str, Batch]:
    """Return the outputs of a batch, computed by openvino.InferRequests.

    None of the requests is at work when this function returns or raises.
    """
    answers = list(_in_turn(requests, batch))
    return {name: np.concatenate([answer[name] for answer in answers]) for name in answers[0]}


def _in_turn(requests: Sequence[Any], batch: Batch) -> Iterator[dict[str, Batch]]:
    """Yield the outputs of each image in order.

    At most as many images are computed at once as there are requests.
    """
    busy: deque[Any] = deque()
    try:
        for number in range(len(batch)):
            if len(busy) == len(requests):
                yield _outputs(busy.popleft())
            request = requests[number % len(requests)]
            request.start_async({"image": batch[number : number + 1]})
            busy.append(request)
        while busy:
            yield _outputs(busy.popleft())
    finally:
        for request in busy:  # one image has failed, and the next batch would find these busy
            with suppress(RuntimeError):
                request.wait()


def _outputs(
    # An openvino.InferRequest, which this module may not import.
    request: Any,  # noqa: ANN401
) -> dict[str, Batch]:
    request.wait()
    return {
        name: np.array(value)
        for port, value in request.results.items()
        for name in port.get_names() & OUTPUTS
    }


@contextmanager
def onnxruntime_errors() -> Iterator[None]:
    """Turn ONNX Runtime's exceptions, which have no class in common, into RuntimeError."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state  # noqa: PLC0415 - as above

    of_files = state.InvalidGraph, state.InvalidProtobuf, state.NoSuchFile, state.NoModel
    of_work = (
        state.Fail,
        state.InvalidArgument,
        state.NotImplemented,
        state.RuntimeException,
        state.EngineError,
    )
    try:
        yield
    except (*of_files, *of_work) as error:
        raise RuntimeError(str(error)) from error


def onnxruntime_session(artefact: Path, optimisation: str, threads: int = 0) -> Any:  # noqa: ANN401 - onnxruntime has no types
    """Return an onnxruntime.InferenceSession on the CPU, at the release's graph optimisation level.

    Raises RuntimeError.
    """
    import onnxruntime  # noqa: PLC0415 - as above

    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = {
        "disabled": levels.ORT_DISABLE_ALL,
        "basic": levels.ORT_ENABLE_BASIC,
        "extended": levels.ORT_ENABLE_EXTENDED,
        "all": levels.ORT_ENABLE_ALL,
    }[optimisation]
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors; its warnings list every constant of a quantised graph
    with onnxruntime_errors():
        return onnxruntime.InferenceSession(
            str(artefact), options, providers=["CPUExecutionProvider"]
        )


def _onnxruntime(artefact: Path, optimisation: str, threads: int) -> Engine:
    session = onnxruntime_session(artefact, optimisation, threads)
    names = [output.name for output in session.get_outputs() if output.name in OUTPUTS]

    def run(batch: Batch) -> Mapping[str, Batch]:
        with onnxruntime_errors():
            return dict(zip(names, session.run(names, {"image": batch}), strict=True))

    return run


def split(outputs: Mapping[str, Batch], sizes: Sequence[int]) -> list[dict[str, Batch]]:
    """Return the rows of each request, in order."""
    if len(sizes) == 1:
        return [{name: np.ascontiguousarray(value) for name, value in outputs.items()}]
    edges = np.cumsum(sizes)[:-1]
    parts = {name: np.split(value, edges) for name, value in outputs.items()}
    return [
        {name: np.ascontiguousarray(rows[i]) for name, rows in parts.items()}
        for i in range(len(sizes))
    ]


def _blank_images(tensor: Mapping[str, Any], count: int) -> Batch:
    wire_type = {"TYPE_UINT8": np.uint8, "TYPE_FP16": np.float16}[tensor["data_type"]]
    return np.zeros((count, *(int(size) for size in tensor["dims"])), wire_type)


class TritonPythonModel:
    """The class that Triton's Python backend looks for."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Load the engine that the release pins, and run an image on each of its cores.

        The first calls allocate memory.
        """
        refuse_numpy_2(np.__version__)
        config = json.loads(args["model_config"])
        pinned = {key: value["string_value"] for key, value in config["parameters"].items()}
        folder = Path(args["model_repository"]) / args["model_version"]
        threads = int(pinned["threads"])
        self._engine = open_engine(
            folder / pinned["artefact"],
            pinned["engine"],
            pinned["precision"],
            pinned["optimisation"],
            threads,
        )
        count = min(int(config["max_batch_size"]), streams_of(_cores(threads)))
        self._engine(_blank_images(config["input"][0], count))

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answer one batch made of all requests, whose sizes may differ."""
        import triton_python_backend_utils as pb_utils  # noqa: PLC0415 - exists only inside the stub

        images = [
            pb_utils.get_input_tensor_by_name(request, "image").as_numpy() for request in requests
        ]
        outputs = self._engine(images[0] if len(images) == 1 else np.concatenate(images))
        answers = split(outputs, [len(image) for image in images])
        return [
            pb_utils.InferenceResponse(
                [pb_utils.Tensor(name, rows) for name, rows in answer.items()]
            )
            for answer in answers
        ]

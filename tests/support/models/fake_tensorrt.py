"""Stands for trtexec, nvidia-smi and tritonserver at their command lines.

A plan is the ONNX file itself, and ONNX Runtime runs it.

Options and output are those of trtexec's own source (samples/common). `SPOIL` (a number) is added
to every logit of half-precision plans;
with `NO_HALF` none can be built.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

_MARK = b"fake plan\n"


def stand_ins(folder: Path) -> Path:
    """Make the programs in a new folder, and return it."""
    folder.mkdir()
    for name in ("trtexec", "nvidia-smi", "tritonserver"):
        lines = (
            f"#!{sys.executable}",
            "import sys",
            f"sys.path.insert(0, {str(Path(__file__).parent)!r})",
            f"sys.argv[0] = {name!r}",
            "import fake_tensorrt as fake",
            "sys.exit(fake.main())",
        )
        (folder / name).write_text("\n".join(lines) + "\n")
        (folder / name).chmod(0o755)
    return folder


def main() -> int:
    """By the name under which it was started."""
    return {"nvidia-smi": _gpus, "tritonserver": _server, "trtexec": _trtexec}[
        Path(sys.argv[0]).name
    ]()


def _gpus() -> int:
    return _say(os.environ.get("FAKE_GPUS", "NVIDIA L4, 8.9"))


def _server() -> int:
    return _say(" ".join(sys.argv))


def _trtexec() -> int:
    options = dict(part.removeprefix("--").partition("=")[::2] for part in sys.argv[1:])
    _say(
        f"&&&& RUNNING TensorRT.trtexec [TensorRT v{os.environ.get('FAKE_TENSORRT', '101300')}] #"
        " trtexec"
    )
    if "onnx" in options:
        return _build(options)
    return _run(options) if "loadEngine" in options else 0


def _say(line: str) -> int:
    sys.stdout.write(line + "\n")
    return 0


def _build(options: dict[str, str]) -> int:
    assert "stronglyTyped" in options
    assert "minShapes" in options
    onnx_file = Path(options["onnx"])
    kind = b"half\n" if onnx_file.name == "half.onnx" else b"full\n"
    if kind == b"half\n" and "NO_HALF" in os.environ:
        sys.stderr.write("[E] no implementation for a node in half precision\n")
        return 1
    Path(options["saveEngine"]).write_bytes(_MARK + kind + onnx_file.read_bytes())
    Path(options["timingCacheFile"]).write_bytes(b"timings")
    return 0


def _run(options: dict[str, str]) -> int:
    if "loadInputs" not in options:
        return _say("[11/26/2026-10:00:00] [I] Throughput: 100 qps")
    import numpy as np
    import onnxruntime

    plan = Path(options["loadEngine"]).read_bytes()
    assert plan.startswith(_MARK)
    kind, network = plan[len(_MARK) :].split(b"\n", 1)
    session = onnxruntime.InferenceSession(network, providers=["CPUExecutionProvider"])
    image = session.get_inputs()[0]
    shape = [int(size) for size in options["shapes"].removeprefix("image:").split("x")]
    pixels = np.fromfile(
        options["loadInputs"].removeprefix("image:"),
        np.uint8 if "uint8" in image.type else np.float16,
    ).reshape(shape)
    names = [output.name for output in session.get_outputs()]
    values = dict(zip(names, session.run(names, {"image": pixels}), strict=True))
    if kind == b"half":
        values["logits"] = values["logits"] + float(os.environ.get("SPOIL", "0"))
    said = [_output(name, value) for name, value in values.items()]
    Path(options["exportOutput"]).write_text(
        json.dumps(said).replace("NaN", "nan")
    )  # as C++ spells it
    return 0


def _output(name: str, value: Any) -> dict[str, Any]:
    return {
        "name": name,
        "dimensions": "x".join(map(str, value.shape)),
        "values": [_spelt(each) for each in value.ravel()],
    }


def _spelt(value: float) -> float:
    """In six digits, as trtexec writes them."""
    return float(f"{value:g}")

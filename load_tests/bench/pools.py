"""What average pools before the 1x1 convolutions save.

DenseNet-121 as Hilum builds it beside the same network as torch exports it.

    python -m load_tests.bench.pools [--rounds 12] [--result load_tests/results/bench-pools.json]

One image on one core, in OpenVINO, in turns; CPU seconds of this process. Weights come from the
release's seed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import openvino

from hilum.models.build import export
from hilum.models.formats.triton_model import Batch, Engine, open_engine
from hilum.models.known_answers import canary
from hilum.models.manifest import catalogue
from load_tests.load.measure import Goal, circumstances
from testing.serving import REPOSITORY

_RELEASE: Final = "densenet121_untrained@1"
_MANIFESTS: Final = REPOSITORY / "model_repository"
_RESULT: Final = REPOSITORY / "load_tests/results/bench-pools.json"
_CALLS = 20
_WARM_CALLS = 5
_IMAGES = 20


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 some do not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12, help="(%(default)s)")
    parser.add_argument("--result", type=Path, default=_RESULT, help="(%(default)s)")
    options = parser.parse_args(arguments)
    before = circumstances()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for precision in _precisions():
            pair = _pair(Path(folder), precision)
            rows.append(_measured(pair, precision, options.rounds))
    found = [
        Goal(
            f"CPU as torch exports it / as built, {row['precision']}",
            row["ratio"],
            "times",
            1.0,
            at_most=False,
        )
        for row in rows
    ]
    found.append(
        Goal(
            "largest difference of a logit, f32",
            rows[0]["largest_logit_difference"],
            "",
            export.PARITY,
        )
    )
    for goal in found:
        print(f"{'holds ' if goal.holds else 'BROKEN'} {goal.name}: {goal.value:.3g}")
    said = {
        "what": "CPU ms an image, one core, in turns",
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **before,
    }
    text = json.dumps({**said, "rows": rows, "goals": [goal.as_json() for goal in found]}, indent=1)
    options.result.write_text(text + "\n", encoding="utf-8")
    return 0 if all(goal.holds for goal in found) else 1


def _precisions() -> list[str]:
    has_bf16 = "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    return ["f32", "bf16"] if has_bf16 else ["f32"]


def _pair(folder: Path, precision: str) -> tuple[Engine, Engine]:
    """As torch exports it, and as built."""
    manifest = catalogue.load_manifests(_MANIFESTS, (_RELEASE,))[_RELEASE]
    exported = folder / "exported.onnx"
    built = folder / "built.onnx"
    if not built.exists():
        export.export_as_torch_does(manifest, exported)
        export.export(manifest, None, built)
    first, second = (
        open_engine(path, "openvino", precision, "all", 1) for path in (exported, built)
    )
    return first, second


def _measured(pair: tuple[Engine, Engine], precision: str, rounds: int) -> dict[str, Any]:
    spec = catalogue.load_manifests(_MANIFESTS, (_RELEASE,))[_RELEASE].spec
    images = [canary.known_image(spec, number) for number in range(_IMAGES)]
    differences = [
        float(np.abs(pair[0](image)["logits"] - pair[1](image)["logits"]).max()) for image in images
    ]
    taken = [[_cpu_ms(engine, images[0]) for engine in pair] for _ in range(rounds)]
    return {
        "precision": precision,
        "cpu_ms": {
            name: [turn[place] for turn in taken]
            for place, name in enumerate(("exported", "built"))
        },
        "ratio": statistics.median(exported / built for exported, built in taken),
        "largest_logit_difference": max(differences),
    }


def _cpu_ms(engine: Engine, image: Batch) -> float:
    for _ in range(_WARM_CALLS):
        engine(image)
    began = time.process_time()
    for _ in range(_CALLS):
        engine(image)
    return 1000 * (time.process_time() - began) / _CALLS


if __name__ == "__main__":
    sys.exit(main())

"""A small network, images and cases with the truth, for tests of quantisation."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hilum.models.formats.identity import file_sha256
from hilum.models.manifest import catalogue
from hilum.models.quantisation.quantise import QuantisationRequest, QuantisationResult, quantise
from testing.tiny_release import SIZE, TINY_LABELS, tiny_manifest, write_release
from tests.support.models.releases import pictures

LIMITS = "\n[quantisation]\nmaximum_score_difference = {}\nmaximum_auc_drop = 0.02\n"
CHANNELS = 8


def _network(path: Path, outlier: float = 1.0) -> Path:
    """Two convolutions, pooling, a head.

    One channel `outlier` times as wide as the rest ruins the range of the activations.
    """
    draws = np.random.default_rng(3)
    first = draws.normal(0, 1, (CHANNELS, 1, 5, 5)).astype(np.float32)
    first[0] *= outlier
    head = draws.normal(0, 2, (CHANNELS, len(TINY_LABELS))).astype(np.float32)
    head[0] /= outlier
    nodes = [
        helper.make_node("Conv", ["input", "first"], ["wide"], pads=[2] * 4),
        helper.make_node("Relu", ["wide"], ["kept"]),
        helper.make_node("Conv", ["kept", "second"], ["mixed"], group=CHANNELS, pads=[1] * 4),
        (
            helper.make_node("Sigmoid", ["mixed"], ["bent"])
            if outlier == 1
            else helper.make_node("Identity", ["mixed"], ["bent"])
        ),
        helper.make_node("GlobalAveragePool", ["bent"], ["means"]),
        helper.make_node("Flatten", ["means"], ["features"]),
        helper.make_node("Gemm", ["features", "head"], ["output"]),
    ]
    second = np.full((CHANNELS, 1, 3, 3), 1 / 9, np.float32)
    constants = [
        numpy_helper.from_array(value, name)
        for name, value in (("first", first), ("second", second), ("head", head))
    ]
    image = helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 1, SIZE, SIZE])
    logits = helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", len(TINY_LABELS)])
    graph = helper.make_graph(nodes, "small", [image], [logits], constants)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return path


def _images(count: int, seed: int) -> Any:
    """Noise from dark to bright, so that images differ by more than a quantisation step."""
    levels = np.random.default_rng(seed).permutation(np.linspace(0.1, 1, count))
    return (pictures(count, seed) * levels[:, None, None, None]).astype(np.uint8)


class Place:
    """A release to be quantised, images to calibrate with, and cases whose truth is what the float network says."""

    def __init__(
        self, folder: Path, limit: float = 0.05, outlier: float = 1.0, table: bool = True
    ) -> None:
        self.manifests, self.built, self.calibration = (
            folder / "manifests",
            folder / "built",
            folder / "calibration",
        )
        network = _network(folder / "tiny.onnx", outlier)
        text = tiny_manifest(file_sha256(network)) + (LIMITS.format(limit) if table else "")
        write_release(self.manifests, text, network)
        self.calibration.mkdir()
        for number, image in enumerate(_images(24, seed=1)):
            np.save(self.calibration / f"{number}.npy", image)
        self.cases = self._cases(folder / "cases", network)

    def _cases(self, folder: Path, network: Path) -> Path:
        import onnxruntime

        folder.mkdir()
        images = _images(40, seed=9)
        (logits,) = onnxruntime.InferenceSession(network).run(
            None, {"input": images.astype(np.float32) / 255}
        )
        low, high = np.percentile(logits, [35, 65], axis=0)
        truth = np.where(
            logits > high, "1", np.where(logits < low, "0", "")
        )  # nobody said anything about those between
        with (folder / "cases.csv").open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["file", *TINY_LABELS])
            for number, (image, row) in enumerate(zip(images, truth, strict=True)):
                np.save(folder / f"{number}.npy", image)
                rows.writerow([f"{number}.npy", *row])
        return folder / "cases.csv"

    def quantise(self, **changes: Any) -> QuantisationResult:
        read = catalogue.load_manifests(self.manifests)["tiny@1"]
        order = QuantisationRequest(
            **{
                "version": "1.int8",
                "calibration": self.calibration,
                "cases": self.cases,
                "weights_dir": None,
                **changes,
            }
        )
        return quantise(read, order, self.manifests, self.built)

    def left(self) -> list[str]:
        return sorted(path.name for path in self.manifests.iterdir())

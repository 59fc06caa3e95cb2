"""What an image and a study cost, as the committed result files have it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

RESULTS: Final = Path(__file__).resolve().parents[1] / "results"
NETWORKS: Final = {"densenet121": "DenseNet-121", "vit_b16": "ViT-B/16"}
SYNTAXES: Final = {
    "little_endian": "Explicit VR Little Endian, shown",
    "jpeg_lossless": "JPEG Lossless SV1, shown",
    "htj2k": "HTJ2K lossless, shown",
    "jpeg_ls": "JPEG-LS lossless, shown",
    "jpeg_2000": "JPEG 2000 lossless, shown",
}
_ENGINE: Final = "openvino f32"
_CONDITION: Final = "10 MB 8/s"
_LISTENER: Final = "dx, 16 at once, PDU 128 KiB"


@dataclass(frozen=True, slots=True)
class MeasuredCost:
    """A figure, its unit, and the file in load_tests/results that has it."""

    value: float
    unit: str
    what: str
    file: str


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """All that the plan is made of.

    CPU in milliseconds of one core of the machine in the file. `model_cpu` by network and `decode`
    by Transfer Syntax are of an image.
    """

    image_mb: MeasuredCost
    cpu: MeasuredCost
    model_cpu: Mapping[str, MeasuredCost]
    decode: Mapping[str, MeasuredCost]
    listener: MeasuredCost
    ledger_rows: MeasuredCost
    ledger_kb: MeasuredCost
    report_kb: MeasuredCost
    json_kb: MeasuredCost
    delivery: MeasuredCost
    campaign: MeasuredCost

    def all(self) -> Iterator[MeasuredCost]:
        """Yield each figure, for the table of sources."""
        for field in fields(self):
            value = getattr(self, field.name)
            yield from value.values() if isinstance(value, Mapping) else (value,)


def read(results: Path = RESULTS) -> MeasuredCosts:
    """Return the figures of these files. Raises OSError or KeyError where one is missing."""
    rows = _read(results, "bench-rows.json")
    tables = rows["tables"].values()
    documents = rows["documents"]
    study = f"ledger of a study of two images, {rows['database']}"
    return MeasuredCosts(
        image_mb=_image_mb(results),
        cpu=_cpu(results),
        model_cpu={name: _model_cpu(results, name) for name in NETWORKS},
        decode={name: _decode(results, name) for name in SYNTAXES},
        listener=_listener(results),
        ledger_rows=_of_rows(sum(table["rows"] for table in tables), "rows", study),
        ledger_kb=_of_rows(sum(table["bytes"] for table in tables) / 1000, "kB", study),
        report_kb=_of_rows(documents["sr"] / 1000, "kB", "structured report"),
        json_kb=_of_rows(documents["json"] / 1000, "kB", "JSON result"),
        delivery=_delivery(results),
        campaign=_campaign(results),
    )


def _read(results: Path, file: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((results / file).read_text(encoding="utf-8"))
    return content


def _image_mb(results: Path) -> MeasuredCost:
    file = "load-steady.json"
    run = _read(results, file)
    (mix,) = run["scenario"]["mix"]
    size = run["settings"]["mean_study_mb"] / mix["images"]
    what = f"image of {mix['rows']} x {mix['columns']}, 16 bits, not compressed"
    return MeasuredCost(size, "MB", what, file)


def _cpu(results: Path) -> MeasuredCost:
    file = "bench-cpu.json"
    stages = _read(results, file)["milliseconds_per_image"][_CONDITION]
    outside = sum(value for stage, value in stages.items() if stage != "model")
    return MeasuredCost(outside, "ms", "CPU of an image outside the model", file)


def _model_cpu(results: Path, network: str) -> MeasuredCost:
    file = "bench-infer.json"
    wanted = (f"{network}, {_ENGINE}", "as served", "closed", 16, 2)
    keys = ("model", "transport", "loop", "batch", "in_flight")
    row = next(
        row for row in _read(results, file)["rows"] if tuple(row[key] for key in keys) == wanted
    )
    what = f"CPU of an image in {NETWORKS[network]}, {_ENGINE}"
    return MeasuredCost(row["cpu_ms_per_image"]["all"], "ms", what, file)


def _decode(results: Path, syntax: str) -> MeasuredCost:
    file = "bench-preprocess.json"
    rows = {row["name"]: row["ours_ms"] for row in _read(results, file)["rows"]}
    name = SYNTAXES[syntax]
    what = f"CPU from file to tensor, {name.removesuffix(', shown')}"
    return MeasuredCost(rows[name], "ms", what, file)


def _listener(results: Path) -> MeasuredCost:
    file = "bench-ingest.json"
    row = next(
        row
        for row in _read(results, file)["medians"]
        if (row["cell"], row["receiver"]) == (_LISTENER, "hilum")
    )
    what = "images received by one process, 16 senders on the same two cores"
    return MeasuredCost(row["instances_per_second"], "images/s", what, file)


def _of_rows(value: float, unit: str, what: str) -> MeasuredCost:
    return MeasuredCost(value, unit, what, "bench-rows.json")


def _delivery(results: Path) -> MeasuredCost:
    file = "bench-deliver.json"
    goal = _read(results, file)["goals"][0]
    return MeasuredCost(goal["value"], goal["unit"], "reports on one association", file)


def _campaign(results: Path) -> MeasuredCost:
    file = "bench-campaign.json"
    rates = [one["c-move"]["images_per_second"] for one in _read(results, file)["rounds"]]
    what = "images of a campaign by C-MOVE, two cores, one series at a time"
    return MeasuredCost(statistics.median(rates), "images/s", what, file)

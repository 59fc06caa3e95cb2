"""Do all engines say what torch says? Every architecture, from a checkpoint in its authors' form through `hilum models import` to ONNX.

    python -m load_tests.bench.parity [--quick] [--result load_tests/results/bench-parity.json]

Weights come from a seed and are saved as each family's authors save theirs; nothing is downloaded.
Compared are logits and maps of torch with those of ONNX Runtime and OpenVINO, all in float32, at
batch 1 and 5, on known images. Timings have no part in this.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import torch
from torch import nn

from hilum.models.build import export
from hilum.models.formats import safetensors
from hilum.models.formats.triton_model import open_engine
from hilum.models.importing import release_folder
from hilum.models.importing.kinds import ImportRequest
from hilum.models.known_answers import canary
from hilum.models.manifest import manifest
from hilum.models.manifest.manifest import Manifest
from hilum.models.manifest.tables import OptionsTable
from hilum.models.networks import architectures, untrained
from hilum_preprocessing.spec.input_spec import InputSpec
from load_tests.bench.checkpoint_forms import as_chexnet, as_hugging_face
from load_tests.load.measure import Goal, circumstances
from testing.serving import REPOSITORY

ENGINES: Final = ("onnxruntime", "openvino")
BATCHES: Final = (1, 5)
_RESULT: Final = REPOSITORY / "load_tests/results/bench-parity.json"
_SEED: Final = 20261120
_LABELS: Final = "Effusion\nPneumothorax\nEdema\nMass\nNodule"
_HALF: Final = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}


@dataclass(frozen=True, slots=True)
class Case:
    """A network, and how its authors would hand it over.

    `save` writes into a folder and gives the file to import.
    """

    name: str
    checkpoint: str
    kind: str
    architecture: str
    recipe: str
    outputs: int
    save: Callable[[nn.Module, Path], Path]
    options: OptionsTable = OptionsTable()  # noqa: RUF009 - frozen
    published: str | None = None
    is_quick: bool = False


def _chexnet(network: nn.Module, folder: Path) -> Path:
    torch.save(
        as_chexnet(network.state_dict()),
        folder / "model.pth.tar",
        _use_new_zipfile_serialization=False,
    )
    return folder / "model.pth.tar"


def _whole_module(network: nn.Module, folder: Path) -> Path:
    torch.save(network, folder / "model.pt")
    return folder / "model.pt"


def _state(network: nn.Module, folder: Path) -> Path:
    torch.save(network.state_dict(), folder / "state.pt")
    return folder / "state.pt"


def _hugging_face(network: nn.Module, folder: Path) -> Path:
    safetensors.write(folder / "model.safetensors", as_hugging_face(network.state_dict()))
    config = {
        "model_type": "vit",
        "layer_norm_eps": 1e-12,
        "problem_type": "multi_label_classification",
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "preprocessor_config.json").write_text(json.dumps(_HALF), encoding="utf-8")
    return folder / "model.safetensors"


def _timm(network: nn.Module, folder: Path) -> Path:
    images = {"input_size": [3, 224, 224], "mean": [0.5] * 3, "std": [0.5] * 3, "crop_pct": 0.9}
    (folder / "config.json").write_text(
        json.dumps({"global_pool": "avg", "pretrained_cfg": images}), encoding="utf-8"
    )
    return _state(network, folder)


CASES: Final = (
    Case("DenseNet-121, 3 x 224", "CheXNet: torch before 1.6", "densenet121", "densenet121", "chexnet_nih_256_224", 5, _chexnet),
    Case(
        "DenseNet-121, 1 x 224", "torchxrayvision: a module", "torchxrayvision", "densenet121", "torchxrayvision_224", 18, _whole_module,
        published="densenet121-res224-all",
    ),
    Case(
        "ResNet-50, 1 x 512", "torchxrayvision: state dictionary", "torchxrayvision", "resnet50", "torchxrayvision_512", 18, _state,
        published="resnet50-res512-all",
    ),
    Case(
        "ViT-B/16, class token", "Hugging Face: safetensors", "vit", "vit", "vit_imagenet_half_224", 5, _hugging_face,
        OptionsTable(epsilon=1e-12),
    ),
    Case(
        "ViT-S/16, mean of tokens", "timm: state dictionary", "vit", "vit", "vit_imagenet_half_224", 5, _timm,
        OptionsTable(pooling="gap", width=384), is_quick=True,
    ),
    Case(
        "ViT-Ti/16, mean, then normalised", "timm: state dictionary", "vit", "vit", "vit_imagenet_half_224", 5, _timm,
        OptionsTable(pooling="gap", norm="pooled", width=192), is_quick=True,
    ),
)  # fmt: skip


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 some do not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two small networks only")
    parser.add_argument("--result", type=Path, default=_RESULT)
    asked = parser.parse_args(words)
    before = circumstances()
    rows = [_row(case) for case in CASES if case.is_quick or not asked.quick]
    found = goals(rows)
    show(found)
    asked.result.write_text(
        json.dumps(as_json(rows, found, before), indent=1) + "\n", encoding="utf-8"
    )
    return 0 if all(goal.holds for goal in found) else 1


def _row(case: Case) -> dict[str, Any]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        read, source = imported(case, Path(scratch))
        artefact = Path(scratch, "model.onnx")
        export.export(read, source, artefact)
        served = architectures.ServedNetwork(
            export.network(read, source), read.spec, read.release.has_cam
        ).eval()
        measured = {
            engine: {str(size): compared(read, served, artefact, engine, size) for size in BATCHES}
            for engine in ENGINES
        }
        kept = safetensors.read(source)
    print(
        f"{case.name:36}{max(_all(measured, 'logits')):10.1e}{time.monotonic() - began:8.0f} s",
        flush=True,
    )
    return {
        "network": case.name,
        "checkpoint": case.checkpoint,
        "tensors": len(kept),
        "has_cam": read.release.has_cam,
        "engines": measured,
    }


def imported(case: Case, folder: Path) -> tuple[Manifest, Path]:
    """The release that comes of the checkpoint, and its weights."""
    theirs = folder / "theirs"
    out = folder / "out"
    theirs.mkdir()
    (theirs / "labels.txt").write_text(_LABELS, encoding="utf-8")
    spec = InputSpec.from_mapping({"recipe": case.recipe})
    network = architectures.make(case.architecture, spec, case.outputs, case.options)
    untrained.fill(network, spec, _SEED)
    with torch.no_grad():
        cast(architectures.Network, network).head.bias.copy_(torch.linspace(-1, 1, case.outputs))
    labels = None if case.published else str(theirs / "labels.txt")
    asked = ImportRequest(
        case.save(network, theirs),
        labels,
        None if case.published else case.recipe,
        published=case.published,
    )
    made = release_folder.import_release(case.kind, asked, "compared", "1", out)
    return manifest.read(made.folder / manifest.FILE_NAME), made.folder / "weights.safetensors"


def compared(
    read: Manifest, served: architectures.ServedNetwork, artefact: Path, engine: str, size: int
) -> dict[str, float]:
    """Largest differences to torch.

    Of logits, of maps as a share of the largest value, and of mean of the map + bias to the logit.
    """
    images = np.concatenate([canary.known_image(read.spec, number) for number in range(size)])
    with torch.no_grad():
        ours = [output.float().numpy() for output in served(torch.from_numpy(images))]
    theirs = open_engine(artefact, engine, "f32", "all")(images)
    found = {"logits": float(np.abs(theirs["logits"] - ours[0]).max())}
    if len(ours) > 1:
        bias = cast(architectures.Network, served.network).head.bias.detach().numpy()
        maps = theirs["cam"].astype(np.float32)
        found["maps"] = float(np.abs(maps - ours[1]).max() / np.abs(ours[1]).max())
        found["sum"] = float(np.abs(maps.mean((2, 3)) + bias - theirs["logits"]).max())
    return found


def _all(measured: Mapping[str, Mapping[str, Mapping[str, float]]], name: str) -> list[float]:
    return [found[name] for sizes in measured.values() for found in sizes.values() if name in found]


def goals(rows: Sequence[Mapping[str, Any]]) -> list[Goal]:
    """Those of the issue; maps travel as fp16, whose step is 1e-3 of a value."""
    worst = {
        name: max(value for row in rows for value in _all(row["engines"], name))
        for name in ("logits", "maps", "sum")
    }
    return [
        Goal("largest difference of a logit to torch's", worst["logits"], "", export.PARITY),
        Goal(
            "largest difference of a map to torch's, of its largest value",
            worst["maps"],
            "",
            export.CAM_PARITY,
        ),
        Goal("mean of a map and bias, off the logit", worst["sum"], "", 5e-3),
    ]


def show(found: Sequence[Goal]) -> None:
    """For a person."""
    print()
    for goal in found:
        print(
            f"{'holds ' if goal.holds else 'BROKEN'} {goal.name}: {goal.value:.2g} (<="
            f" {goal.goal:g})"
        )


def as_json(
    rows: Sequence[Mapping[str, Any]], found: Sequence[Goal], before: Mapping[str, Any]
) -> dict[str, Any]:
    """The result file."""
    return {
        "what": (
            "largest differences between torch and engines, float32, weights from a seed in the"
            " form of each family's checkpoints"
        ),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **before,
        "rows": list(rows),
        "goals": [goal.as_json() for goal in found],
    }


if __name__ == "__main__":
    sys.exit(main())

"""Several networks as one ONNX graph.

`image` → `member_logits` (B, k, L), the `logits` of the rule, and `cam` where the rule keeps it
exact.

The members' graphs are side by side in one file, so that one Triton model reads a batch once. Steps
that they share, such as normalisation, are computed once.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, compose, helper

from hilum.errors import ConfigurationError
from hilum.models.formats.triton_model import open_engine
from hilum.models.known_answers.canary import known_image
from hilum.models.manifest.manifest import Manifest
from hilum.models.manifest.tables import WeightsTable
from hilum.models.networks.ensemble_rules import is_linear, mean_score, rule_nodes
from hilum.models.onnx.cleanup import pruned, shared

Array = np.ndarray[Any, np.dtype[Any]]
Opsets = tuple[tuple[str, int], ...]
PARITY: Final = 1e-5
"""Largest difference of a logit between a member alone and in the merged graph.

Both are computed by ONNX Runtime in float32.
"""
_LARGEST_BYTES: Final = 2**31 - 1  # of one protobuf message


def make(manifest: Manifest, destination: Path, make_one: Callable[[Manifest, Path], None]) -> None:
    """Write `destination` from members that `make_one` writes.

    Raises ConfigurationError when one fails or they do not fit together.
    """
    with tempfile.TemporaryDirectory(dir=destination.parent) as scratch:
        files = [
            Path(scratch, f"{number}.onnx") for number, _ in enumerate(manifest.weights.members)
        ]
        for member, file in zip(members(manifest), files, strict=True):
            make_one(member, file)
        onnx.save(
            _checked(merge([onnx.load(file) for file in files], manifest), manifest), destination
        )
        _require_parity(manifest, files, destination)


def members(manifest: Manifest) -> Iterator[Manifest]:
    """Yield each network as if it were a release of its own.

    It has the same input, labels and architecture, and its own weights.
    """
    weights = manifest.weights
    for member in weights.members:
        own = WeightsTable(
            seed=member.seed,
            file=member.file,
            sha256=member.sha256,
            input=weights.input,
            output=weights.output,
            cam=weights.cam,
        )
        yield dataclasses.replace(
            manifest, weights=own, release=dataclasses.replace(manifest.release, members=())
        )


def merge(networks: Sequence[onnx.ModelProto], manifest: Manifest) -> onnx.ModelProto:
    """Return one model of artefacts that take `image` and give `logits` (and `cam`)."""
    first = networks[0]
    require_one_opset(manifest, {opsets(each) for each in networks})
    model = helper.make_model(
        pruned(shared(_merged(networks, manifest))),
        opset_imports=list(first.opset_import),
        ir_version=max(each.ir_version for each in networks),
    )
    model.functions.extend(first.functions)
    return model


def _merged(networks: Sequence[onnx.ModelProto], manifest: Manifest) -> onnx.GraphProto:
    prefixes = _prefixes(len(networks))
    first = networks[0].graph
    graphs = [_prefixed(each, prefix) for each, prefix in zip(networks, prefixes, strict=True)]
    rule, rule_constants = rule_nodes(manifest.release, prefixes)
    outputs = _logits_outputs(manifest, len(networks))
    if manifest.release.has_cam:
        outputs.append(_renamed(first.output, "cam"))
    return helper.make_graph(
        [*(node for graph in graphs for node in graph.node), *rule],
        manifest.release.triton_name,
        [_renamed(first.input, "image")],
        outputs,
        [*(constant for graph in graphs for constant in graph.initializer), *rule_constants],
    )


def require_one_opset(manifest: Manifest, found: Set[Opsets]) -> None:
    """Raise ConfigurationError where members have different opsets, because one graph has one."""
    if len(found) > 1:
        shown = " and ".join(
            ", ".join(f"{domain} {version}".strip() for domain, version in each)
            for each in sorted(found)
        )
        problem = (
            f"its members were exported with different ONNX opsets ({shown}); export them with the"
            " same one"
        )
        raise ConfigurationError([f"{manifest.release.id}: {problem}"])


def _prefixed(network: onnx.ModelProto, prefix: str) -> onnx.GraphProto:
    """Return the graph with a prefix on every name but `image`, which all members read.

    TensorRT takes no uint8 tensor inside a network, not even a copy.
    """
    graph: onnx.GraphProto = compose.add_prefix(network, prefix).graph
    for node in graph.node:
        node.input[:] = ["image" if name == f"{prefix}image" else name for name in node.input]
    return graph


def _prefixes(count: int) -> list[str]:
    return [f"member_{number + 1}_" for number in range(count)]


def opsets(model: onnx.ModelProto) -> Opsets:
    """Return the operator version of each domain that a network is written in."""
    return tuple(sorted((each.domain, each.version) for each in model.opset_import))


def _renamed(values: Sequence[onnx.ValueInfoProto], name: str) -> onnx.ValueInfoProto:
    """Return the first member's outputs under our names; all members have the same tensors."""
    return next(each for each in values if each.name == name)


def _logits_outputs(manifest: Manifest, count: int) -> list[onnx.ValueInfoProto]:
    labels = len(manifest.release.labels)
    return [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", labels]),
        helper.make_tensor_value_info("member_logits", TensorProto.FLOAT, ["batch", count, labels]),
    ]


def _checked(model: onnx.ModelProto, manifest: Manifest) -> onnx.ModelProto:
    if model.ByteSize() > _LARGEST_BYTES:
        problem = (
            f"its members together are {model.ByteSize() / 1e9:.1f} GB; an ONNX file holds 2 GB:"
            " take fewer or smaller ones"
        )
        raise ConfigurationError([f"{manifest.release.id}: {problem}"])
    onnx.checker.check_model(model, full_check=True)
    return model


def _require_parity(manifest: Manifest, files: Sequence[Path], merged: Path) -> None:
    """Raise ConfigurationError where a member's or the rule's logits change in the merged graph."""
    release = manifest.release
    images = np.concatenate([known_image(manifest.spec, number) for number in range(3)])
    alone = np.stack([_run(manifest, file, images)["logits"] for file in files], 1)
    together = _run(manifest, merged, images)
    wanted = mean_score(alone, "none" if is_linear(release) else release.activation)
    worst = max(
        float(np.abs(together["member_logits"] - alone).max()),
        float(np.abs(together["logits"] - wanted).max()),
    )
    if not worst <= PARITY * max(1.0, float(np.abs(alone).max())):
        problem = f"the merged members differ by {worst:.2g} from themselves alone"
        raise ConfigurationError([f"{release.id}: {problem}; {PARITY:g} is allowed"])


def _run(manifest: Manifest, file: Path, images: Array) -> Mapping[str, Array]:
    return open_engine(file, "onnxruntime", "f32", manifest.engine.optimisation)(images)

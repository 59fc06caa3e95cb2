"""config.pbtxt: Triton's own schema reads it, it says what the contract says, and it holds no queue policy."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from hilum.errors import ConfigurationError
from hilum.models import build, profiles

SERVED = profiles.Served("densenet__1", "fp16", 224, 224, 14, (7, 7), 16, "openvino", "f32", "all")


def _parsed(text: str) -> Any:
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    return text_format.Parse(text, model_config_pb2.ModelConfig())


def _problems(old: str, new: str, profile: str = "embedded") -> str:
    text = profiles.render(SERVED, profile)
    assert old in text
    return "\n".join(profiles.check(text.replace(old, new), SERVED))


@pytest.mark.parametrize("profile", build.PROFILES)
def test_every_profile_serves_the_same_names_and_tensors(profile: str) -> None:
    config = _parsed(profiles.render(SERVED, profile))
    assert [(i.name, list(i.dims)) for i in config.input] == [("image", [1, 224, 224])]
    assert {(o.name, tuple(o.dims)) for o in config.output} == {("logits", (14,)), ("cam", (14, 7, 7))}
    assert (config.name, config.max_batch_size) == ("densenet__1", 16)
    assert [group.count for group in config.instance_group] == [1]


def test_the_builder_knows_every_profile() -> None:
    assert tuple(profiles.PROFILES) == build.PROFILES


@pytest.mark.parametrize("profile", build.PROFILES)
def test_dynamic_batching_holds_sizes_and_delay_only(profile: str) -> None:
    batching = _parsed(profiles.render(SERVED, profile)).dynamic_batching
    assert {field.name for field, _ in batching.ListFields()} == {"preferred_batch_size", "max_queue_delay_microseconds"}
    assert list(batching.preferred_batch_size) == [8, 16]


@pytest.mark.parametrize(
    "policy",
    [
        "default_queue_policy { max_queue_size: 100 }",
        "default_queue_policy { default_timeout_microseconds: 1000000 }",
        "default_queue_policy { allow_timeout_override: true }",
        "priority_levels: 2 default_priority_level: 1",
        "preserve_ordering: true",
    ],
)
def test_a_queue_policy_is_refused_because_it_stalls_the_batcher(policy: str) -> None:
    assert "stalls the batcher 500 ms at a time" in _problems("dynamic_batching {", f"dynamic_batching {{ {policy}")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('name: "densenet__1"', 'name: "densenet"', "is not the folder's name"),
        ("dims: [14]", "dims: [15]", "tensor 'logits'"),
        ("TYPE_FP16 dims: [1,", "TYPE_FP32 dims: [1,", "tensor 'image'"),
        ('name: "cam"', 'name: "map"', "tensor 'map' is"),
        ("max_batch_size: 16", "max_batch_size: 4", "preferred batch size exceeds"),
        ("backend:", "backand:", "config.pbtxt: 2:"),
        ("instance_group [", "instance_group [[", "config.pbtxt: "),
    ],
)
def test_what_triton_would_misread_is_refused(old: str, new: str, says: str) -> None:
    assert says in _problems(old, new)


def test_the_embedded_profile_pins_engine_and_precision() -> None:
    config = _parsed(profiles.render(SERVED, "embedded"))
    pinned = {key: value.string_value for key, value in config.parameters.items()}
    assert pinned == {"engine": "openvino", "precision": "f32", "optimisation": "all", "artefact": "model.onnx", "threads": "0"}


@pytest.mark.parametrize(("level", "number"), [("all", 0), ("extended", 1), ("basic", -1), ("disabled", 2)])
def test_the_onnxruntime_profile_pins_the_optimisation_level(level: str, number: int) -> None:
    served = dataclasses.replace(SERVED, engine="onnxruntime", optimisation=level)
    config = _parsed(profiles.render(served, "onnxruntime"))
    assert config.optimization.graph.level == number
    assert [(warm.batch_size, list(warm.inputs["image"].dims)) for warm in config.model_warmup] == [(1, [1, 224, 224]), (16, [1, 224, 224])]


def test_a_profile_that_cannot_keep_the_pinned_precision_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="bf16"):
        profiles.render(dataclasses.replace(SERVED, precision="bf16"), "onnxruntime")


@pytest.mark.parametrize(("largest", "sizes"), [(1, [1]), (2, [1, 2]), (8, [4, 8]), (16, [8, 16])])
def test_preferred_sizes_fit_the_largest_batch(largest: int, sizes: list[int]) -> None:
    assert profiles.preferred_sizes(largest) == sizes

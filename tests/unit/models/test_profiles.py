"""config.pbtxt: Triton's own schema reads it, it says what the contract says, and it holds no queue policy."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from hilum.errors import ConfigurationError
from hilum.models.build import build, profile_checks, profiles
from hilum.models.manifest.served import Served, preferred_sizes, shape_ranges, warm_sizes
from tests.support.models.releases import tiny_network

SERVED = Served("densenet__1", "fp16", 224, 224, 14, (7, 7), 16, "openvino", "f32", "all")


def _parsed(text: str) -> Any:
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    return text_format.Parse(text, model_config_pb2.ModelConfig())


def _problems(old: str, new: str, profile: str = "embedded") -> str:
    text = profiles.render(SERVED, profile)
    assert old in text
    return "\n".join(profile_checks.check(text.replace(old, new), SERVED))


@pytest.mark.parametrize("profile", build.PROFILES)
def test_every_profile_serves_the_same_names_and_tensors(profile: str) -> None:
    config = _parsed(profiles.render(SERVED, profile))
    assert [(i.name, list(i.dims)) for i in config.input] == [("image", [1, 224, 224])]
    assert {(o.name, tuple(o.dims)) for o in config.output} == {
        ("logits", (14,)),
        ("cam", (14, 7, 7)),
    }
    assert (config.name, config.max_batch_size) == ("densenet__1", 16)
    assert [group.count for group in config.instance_group] == [2 if profile == "tensorrt" else 1]


@pytest.mark.parametrize("profile", build.PROFILES)
def test_every_profile_serves_the_numbers_of_an_ensembles_members(profile: str) -> None:
    config = _parsed(
        profiles.render(dataclasses.replace(SERVED, members=3, cam_grid=None), profile)
    )
    assert {(o.name, tuple(o.dims)) for o in config.output} == {
        ("logits", (14,)),
        ("member_logits", (3, 14)),
    }


def test_the_builder_knows_every_profile_and_accelerator() -> None:
    assert tuple(profiles.PROFILES) == build.PROFILES
    assert tuple(profiles.ACCELERATORS) == build.ACCELERATORS


@pytest.mark.parametrize("profile", build.PROFILES)
def test_dynamic_batching_holds_sizes_and_delay_only(profile: str) -> None:
    batching = _parsed(profiles.render(SERVED, profile)).dynamic_batching
    assert {field.name for field, _ in batching.ListFields()} == {"preferred_batch_size"}
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
    assert "stalls the batcher 500 ms at a time" in _problems(
        "dynamic_batching {", f"dynamic_batching {{ {policy}"
    )


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('name: "densenet__1"', 'name: "densenet"', "is not the folder's name"),
        ("dims: [14]", "dims: [15]", "tensor 'logits'"),
        ("TYPE_FP16 dims: [1,", "TYPE_FP32 dims: [1,", "tensor 'image'"),
        ('name: "cam"', 'name: "map"', "tensor 'map' is"),
        ("max_batch_size: 16", "max_batch_size: 4", "preferred batch size exceeds"),
        ("max_batch_size: 16", "max_batch_size: 32", "max_batch_size is 32, the release's is 16"),
        ("backend:", "backand:", "config.pbtxt: 2:"),
        ("instance_group [", "instance_group [[", "config.pbtxt: "),
    ],
)
def test_what_triton_would_misread_is_refused(old: str, new: str, says: str) -> None:
    assert says in _problems(old, new)


def test_the_embedded_profile_pins_engine_and_precision() -> None:
    config = _parsed(profiles.render(SERVED, "embedded"))
    pinned = {key: value.string_value for key, value in config.parameters.items()}
    assert pinned == {
        "engine": "openvino",
        "precision": "f32",
        "optimisation": "all",
        "artefact": "model.onnx",
        "threads": "0",
    }


@pytest.mark.parametrize(
    ("level", "number"), [("all", 0), ("extended", 1), ("basic", -1), ("disabled", 2)]
)
def test_the_onnxruntime_profile_pins_the_optimisation_level(level: str, number: int) -> None:
    served = dataclasses.replace(SERVED, engine="onnxruntime", optimisation=level)
    config = _parsed(profiles.render(served, "onnxruntime"))
    assert config.optimization.graph.level == number
    assert [(warm.batch_size, list(warm.inputs["image"].dims)) for warm in config.model_warmup] == [
        (size, [1, 224, 224]) for size in (1, 2, 4, 8, 16)
    ]


def test_a_profile_that_cannot_keep_the_pinned_precision_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="bf16"):
        profiles.render(dataclasses.replace(SERVED, precision="bf16"), "onnxruntime")


@pytest.mark.parametrize(("largest", "sizes"), [(1, [1]), (2, [1, 2]), (8, [4, 8]), (16, [8, 16])])
def test_preferred_sizes_fit_the_largest_batch(largest: int, sizes: list[int]) -> None:
    assert preferred_sizes(largest) == sizes


@pytest.mark.parametrize(
    ("largest", "sizes"), [(1, [1]), (3, [1, 2, 3]), (8, [1, 2, 4, 8]), (12, [1, 2, 4, 8, 12])]
)
def test_every_power_of_two_and_the_largest_batch_are_warmed_up(
    largest: int, sizes: list[int]
) -> None:
    assert warm_sizes(largest) == sizes


def test_an_accelerator_keeps_its_engines_and_the_precision_that_was_asked_for() -> None:
    config = _parsed(
        profiles.render(dataclasses.replace(SERVED, accelerator="tensorrt_fp16"), "onnxruntime")
    )
    (accelerator,) = config.optimization.execution_accelerators.gpu_execution_accelerator
    assert accelerator.name == "tensorrt"
    assert dict(accelerator.parameters) == {
        "precision_mode": "FP16",
        "trt_engine_cache_enable": "true",
        "trt_engine_cache_path": "/cache",
        "trt_timing_cache_enable": "true",
        "trt_timing_cache_path": "/cache",
        "trt_profile_min_shapes": "image:1x1x224x224",
        "trt_profile_opt_shapes": "image:8x1x224x224",
        "trt_profile_max_shapes": "image:16x1x224x224",
    }
    assert [group.Kind.Name(group.kind) for group in config.instance_group] == ["KIND_GPU"]


def test_cuda_computes_in_whole_float32() -> None:
    config = _parsed(
        profiles.render(dataclasses.replace(SERVED, accelerator="cuda"), "onnxruntime")
    )
    (accelerator,) = config.optimization.execution_accelerators.gpu_execution_accelerator
    assert (accelerator.name, dict(accelerator.parameters)) == ("cuda", {"use_tf32": "0"})


def test_an_accelerator_is_no_setting_of_another_profile() -> None:
    with pytest.raises(ConfigurationError, match="belongs to the onnxruntime profile"):
        profiles.render(dataclasses.replace(SERVED, accelerator="cuda"), "embedded")


@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_a_plan_is_not_made_of_what_tensorrt_cannot_take_over(precision: str) -> None:
    with pytest.raises(ConfigurationError, match=precision):
        profiles.render(dataclasses.replace(SERVED, precision=precision), "tensorrt")


def test_cuda_graphs_cover_every_batch_size_once() -> None:
    config = _parsed(profiles.render(dataclasses.replace(SERVED, max_batch=12), "tensorrt"))
    assert config.platform == "tensorrt_plan"
    assert config.optimization.cuda.graphs
    covered: list[int] = []
    for graph in config.optimization.cuda.graph_spec:
        lower = graph.graph_lower_bound.batch_size or graph.batch_size
        covered += range(lower, graph.batch_size + 1)
    assert covered == list(range(1, 13))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            'model_warmup { name: "batch 16" batch_size: 16',
            'model_warmup { name: "batch 32" batch_size: 32',
            "a warm-up exceeds",
        ),
        ("graph_spec { batch_size: 16", "graph_spec { batch_size: 64", "a CUDA graph exceeds"),
        (
            "value { dim: [1, 224, 224] } } } graph_spec",
            "value { dim: [1, 64, 64] } } } graph_spec",
            "other images than",
        ),
    ],
)
def test_a_tensorrt_profile_that_triton_would_not_load_is_refused(
    old: str, new: str, says: str
) -> None:
    assert says in _problems(old, new, "tensorrt")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"max": [8, 1, 224, 224]}, "takes 1 to 8 images; 1 to 16 are sent"),
        ({"min": [2, 1, 224, 224]}, "takes 2 to 16 images"),
        ({"opt": [32, 1, 224, 224]}, "takes 1 to 16 images"),
        ({"max": [16, 1, 320, 320]}, "the optimization profile's images are"),
        ({"min": []}, "the optimization profile's images are"),
    ],
)
def test_an_optimization_profile_must_take_every_batch(
    changed: dict[str, list[int]], says: str
) -> None:
    good = shape_ranges(SERVED)
    assert list(profile_checks.check_shape_ranges(good, SERVED)) == []
    assert says in "".join(profile_checks.check_shape_ranges({**good, **changed}, SERVED))


def test_an_onnx_file_with_other_tensors_is_refused(tmp_path: Path) -> None:
    file = tiny_network(tmp_path / "tiny.onnx")
    served = dataclasses.replace(SERVED, height=32, width=32, outputs=3, cam_grid=None)
    problems = list(profile_checks.check_onnx(file, served))
    assert [problem.split(" is ")[0] for problem in problems] == [
        f"densenet__1: tiny.onnx: tensor '{name}'"
        for name in ("image", "input", "logits", "output")
    ]
    (tmp_path / "damaged.onnx").write_bytes(b"no protobuf")
    assert "not a readable ONNX file" in next(
        profile_checks.check_onnx(tmp_path / "damaged.onnx", served)
    )

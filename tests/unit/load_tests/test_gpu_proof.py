"""`make gpu-proof`: what it judges, why a part is left out, and that it runs on a CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hilum.errors import ConfigurationError
from load_tests.gpu import absent, networks, plans, recipes, run, served, surroundings, upload
from load_tests.gpu.outcome import GpuOutcome, GpuPlan, verdict
from load_tests.gpu.parts import PARTS, GpuPart, device_obstacle, outcome_of
from load_tests.gpu.rates import TwoInFlight
from load_tests.load.figures import Goal

KEPT = GpuOutcome(goals=(Goal("a", 1, "", 2),))
BROKEN = GpuOutcome(goals=(Goal("a", 3, "", 2),))
LEFT_OUT = GpuOutcome(left_out="not here")
no_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


@pytest.fixture
def plan(tmp_path: Path) -> GpuPlan:
    return GpuPlan.quick("cpu", tmp_path)


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([KEPT, LEFT_OUT], 0),
        ([KEPT, BROKEN], 1),
        ([KEPT, GpuOutcome(failure="ended with -11")], 1),
        ([LEFT_OUT, LEFT_OUT], 2),
        ([LEFT_OUT, GpuOutcome(failure="no memory")], 1),
    ],
)
def test_a_proof_of_nothing_is_no_proof(outcomes: list[GpuOutcome], code: int) -> None:
    assert verdict({str(number): found for number, found in enumerate(outcomes)}) == code


def test_an_outcome_is_what_its_process_wrote(tmp_path: Path) -> None:
    goals = (Goal("a", 1.0, "s", 2.0), Goal("b", float("nan"), "", 0.5, at_most=False))
    GpuOutcome({"rate": 3.0}, goals).write(tmp_path / "part.json")
    read = GpuOutcome.read(tmp_path / "part.json")
    assert read.figures == {"rate": 3.0}
    assert read.goals[0] == goals[0]
    assert not read.goals[1].holds


def test_a_package_that_is_absent_is_named() -> None:
    part = GpuPart("load_tests.gpu.recipes", ("torch", "no_such_package", "nor_this"))
    assert part.obstacle() == "not installed here: no_such_package, nor_this"


@no_cuda
@pytest.mark.parametrize("name", PARTS)
def test_each_part_says_that_no_gpu_is_here(name: str, tmp_path: Path) -> None:
    found = outcome_of(PARTS[name], GpuPlan("cuda", tmp_path))
    assert "sees no CUDA device" in found.left_out
    assert not found.goals


@no_cuda
def test_a_machine_without_a_gpu_proves_nothing(tmp_path: Path) -> None:
    assert run.main(["--out", str(tmp_path), "upload"]) == 2
    written = json.loads((tmp_path / run.RESULT).read_text())
    assert "sees no CUDA device" in written["parts"]["upload"]["left_out"]
    assert written["goals"] == []


def test_a_cpu_is_always_there() -> None:
    assert device_obstacle("cpu") == ""


def test_plans_need_a_gpu(plan: GpuPlan) -> None:
    assert "TensorRT needs a GPU" in plans.measure(plan).left_out


def test_trtexec_counts_batches() -> None:
    assert plans.stated_rate("[I] Throughput: 250.5 qps\n", 16) == 4008
    assert plans.stated_rate("[I] Latency: min = 1 ms\n", 16) is None


def test_a_network_without_a_plan_breaks_the_goal() -> None:
    rows = [{"has_plan": True}, {"has_plan": False}]
    assert [goal.holds for goal in plans.goals(rows)] == [False]


def test_the_wheel_of_the_embedded_triton_has_no_cuda() -> None:
    if served.find_server() is not None:
        pytest.skip("there is a tritonserver with the ONNX Runtime backend")
    assert "no tritonserver with the backend onnxruntime" in served.obstacle(None, on_gpu=True)


def test_a_triton_that_ends_says_why(tmp_path: Path) -> None:
    server = tmp_path / "bin/tritonserver"
    server.parent.mkdir()
    server.write_text("#!/bin/sh\necho 'error: no GPU for this model'\nexit 1\n")
    server.chmod(0o755)
    with (
        pytest.raises(ConfigurationError, match="no GPU for this model"),
        served.started(server, tmp_path, ["a"], tmp_path / "log"),
    ):
        pass


def test_a_part_that_takes_too_long_is_a_failure(plan: GpuPlan) -> None:
    assert run.in_a_process("upload", plan, 0.01).failure == "not done after 0 s"


def test_a_part_that_breaks_says_its_last_words(tmp_path: Path) -> None:
    found = run.in_a_process("upload", GpuPlan("abacus", tmp_path), 100)
    assert found.failure.startswith("ended with 1")
    assert "abacus" in found.failure
    assert not found.is_kept


def test_whole_grey_levels_are_equal_to_the_bit() -> None:
    row = {"recipe": "a", "wire": "uint8", "float": 1.0, "fp16": 0.0, "golden": None}
    half = {"recipe": "b", "wire": "fp16", "float": 0.5, "fp16": 1.0, "golden": None}
    broken = [goal.name for goal in recipes.goals([row, half]) if not goal.holds]
    assert broken == ["largest difference to the CPU, whole grey levels, float"]


def test_a_recipe_that_misses_its_golden_is_counted() -> None:
    rows = [
        {"recipe": wire, "wire": wire, "float": 0.0, "fp16": 0.0, "golden": "values differ by 3"}
        for wire in ("uint8", "fp16")
    ]
    assert [goal.value for goal in recipes.goals(rows) if not goal.holds] == [2]


@pytest.mark.parametrize(
    "there",
    [None, torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("inf")])],
    ids=["refused", "no number", "infinite"],
)
def test_what_one_device_alone_has_is_no_agreement(there: torch.Tensor | None) -> None:
    here = torch.tensor([1.0, 2.0])
    apart = max(recipes.difference(here, here), recipes.difference(here, there))
    row = {"recipe": "a", "wire": "fp16", "float": apart, "fp16": 0.0, "golden": None}
    assert not next(recipes.goals([row])).holds


def test_preparation_is_held_against_the_upload() -> None:
    goal = next(upload.goals({"upload": 4000.0, "float": 3100.0}))
    assert goal.value == 0.775
    assert not goal.holds


def test_a_network_is_held_against_the_slower_of_network_and_upload() -> None:
    rates = {"1": {"upload": 1.0, "bare": 1.0, "ours": 0.1}}
    rates["64"] = {"upload": 4000.0, "bare": 9000.0, "ours": 3600.0}
    row = {"network": "n", "precision": "fp16", "largest_logit_difference": 0.01}
    found = list(networks.goals([{**row, "images_per_second": rates}], judges_rates=True))
    assert [goal.value for goal in found] == [0.01, 0.9]
    assert all(goal.holds for goal in found)


def test_variances_beyond_the_largest_half_are_kept() -> None:
    """The input of torchxrayvision's networks is ±1024, and the variance of its first layer 10^6."""
    norm = torch.nn.BatchNorm2d(1).eval()
    assert norm.running_var is not None
    norm.running_var.fill_(1e6)
    network = networks.halved(torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1), norm))
    assert network[0].weight.dtype == torch.float16
    assert network(torch.full((1, 1, 2, 2), 1024.0).half()).isfinite().all()
    assert norm.running_var == 1e6


def test_a_result_of_a_cpu_is_there_at_once() -> None:
    assert TwoInFlight(lambda: torch.tensor([3.0]))() == 3.0


def test_rates_of_a_cpu_are_not_judged(plan: GpuPlan) -> None:
    row = {"network": "n", "precision": "f32", "largest_logit_difference": 0.01}
    row["images_per_second"] = {"1": {"upload": 9.0, "bare": 9.0, "ours": 1.0}}
    found = list(networks.goals([row], judges_rates=plan.judges_rates))
    assert [goal.holds for goal in found] == [False]
    assert not plan.judges_rates


def test_what_nvidia_smi_says_of_each_gpu() -> None:
    said = "NVIDIA H100 80GB HBM3, 580.159.04, 81559 MiB, 9.0, 5, 16, 700.00 W\n"
    (found,) = surroundings.listed(said)
    assert (found["name"], found["driver_version"]) == ("NVIDIA H100 80GB HBM3", "580.159.04")


def test_recipes_need_no_reader_of_objects() -> None:
    """As on a machine that has torch and numpy and neither pydicom nor pydantic."""
    script = (
        "from load_tests.gpu import absent\n"
        "import sys\n"
        "sys.meta_path.insert(0, absent.Names(absent.UNUSED))\n"
        "from hilum_preprocessing import InputSpec\n"
        "from hilum_preprocessing.self_check import self_check\n"
        "from hilum.models.networks import architectures, untrained\n"
        "import pydicom\n"
        "assert isinstance(pydicom, absent.NamesOnly)\n"
        "print(self_check(InputSpec.from_mapping({'recipe': 'chexpert_320'})))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("None\n", "")


def test_a_package_that_is_here_is_not_replaced() -> None:
    assert absent.give_names(["numpy", "torch"]) == []


def test_the_parts_run_on_a_cpu(plan: GpuPlan) -> None:
    found = {part.__name__: part.measure(plan) for part in (recipes, networks)}
    assert all(outcome.is_kept and outcome.goals for outcome in found.values())
    assert not any(goal.unit == "of 1" for outcome in found.values() for goal in outcome.goals)


def test_the_command_writes_what_it_measured_on_a_cpu(tmp_path: Path) -> None:
    words = ["--device", "cpu", "--quick", "--out", str(tmp_path)]
    assert run.main([*words, "upload", "tensorrt"]) == 0
    written = json.loads((tmp_path / run.RESULT).read_text())
    assert written["parts"]["upload"]["figures"]["images_per_second"]["float"] > 0
    assert written["parts"]["tensorrt"]["left_out"]
    assert {"machine", "commit", "versions", "device", "goals"} <= set(written)

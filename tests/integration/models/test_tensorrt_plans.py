"""Plans are built where they are served, pass a gate or are not there, and are refused anywhere else. trtexec is a stand-in here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hilum.models.build import build, tensorrt
from load_tests.gpu import plans
from load_tests.gpu.outcome import GpuPlan
from tests.support.models.fake_tensorrt import stand_ins
from tests.support.models.releases import REPOSITORY, Tiny, make_tiny

SCRIPT = REPOSITORY / "deploy/tensorrt/build_plans.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny(tmp_path_factory.mktemp("tensorrt"))


@pytest.fixture
def tree(made: Tiny, tmp_path: Path) -> Path:
    """A tree of the tensorrt profile without a plan, and the stand-ins in `tmp_path/bin`."""
    build.build(
        ["tiny@1"], made.manifests_dir, tmp_path / "built", "tensorrt", progress=lambda _: None
    )
    stand_ins(tmp_path / "bin")
    tree = tmp_path / "built/tensorrt/tiny__1"
    request = json.loads((tree / "request.json").read_text())
    request["cases"] = request["cases"][:2]  # each costs a process
    (tree / "request.json").write_text(json.dumps(request))
    return tree


def _run(tree: Path, verb: str, **world: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-I",
        SCRIPT,
        verb,
        tree.parent,
    ]  # -I: the script must need nothing of Hilum
    return subprocess.run(
        command, env=_world(tree, world), capture_output=True, text=True, check=False
    )


def _world(tree: Path, world: dict[str, str]) -> dict[str, str]:
    return {"PATH": f"{tree.parents[2] / 'bin'}:{os.environ['PATH']}", **world}


def _plan(tree: Path) -> dict[str, object]:
    record: dict[str, object] = json.loads((tree / "1/plan.json").read_text())
    return record


def test_a_plan_is_built_proved_and_then_left_alone(tree: Path) -> None:
    assert "has no plan: run build_plans.py build here" in _run(tree, "check").stderr
    assert "has no plan yet: run deploy/tensorrt/build_plans.py" in "".join(
        tensorrt.plan_problems(tree)
    )
    first = _run(tree, "build")
    assert first.returncode == 0, first.stderr
    assert "tiny__1: fp16 plan for NVIDIA L4, logits within" in first.stdout
    record = _plan(tree)
    assert (
        record["gpu"],
        record["compute_capability"],
        record["tensorrt"],
        record["precision"],
    ) == ("NVIDIA L4", "8.9", "101300", "fp16")
    assert (_run(tree, "check").returncode, list(tensorrt.plan_problems(tree))) == (0, [])
    assert _run(tree, "build").stdout == "tiny__1: up to date\n"
    assert (tree.parent / "timing.cache").is_file()


def test_half_precision_that_moves_logits_gives_way_to_float32(tree: Path) -> None:
    assert "fp32 plan" in _run(tree, "build", SPOIL="0.01").stdout
    assert _plan(tree)["precision"] == "fp32"


def test_half_precision_that_cannot_be_built_gives_way_to_float32(tree: Path) -> None:
    assert _run(tree, "build", NO_HALF="1").returncode == 0
    assert _plan(tree)["precision"] == "fp32"


@pytest.mark.parametrize("name", ["half.onnx", "1/model.onnx"])
def test_an_onnx_file_that_was_changed_makes_no_plan(tree: Path, name: str) -> None:
    (tree / name).write_bytes(b"another")
    done = _run(tree, "build")
    assert (done.returncode, f"{name} is not the file that was checked" in done.stderr) == (1, True)
    assert not (tree / "1/model.plan").exists()


def test_when_no_precision_passes_nothing_is_left(tree: Path) -> None:
    request = json.loads((tree / "request.json").read_text())
    request["cases"][0]["logits"][0] += 0.5
    (tree / "request.json").write_text(json.dumps(request))
    done = _run(tree, "build")
    assert done.returncode == 1
    assert "fp16 moves logits by 0.5, fp32 moves logits by 0.5; 0.002 is allowed" in done.stderr
    assert sorted(path.name for path in (tree / "1").iterdir()) == ["model.onnx"]


def test_a_number_that_is_none_never_passes(tree: Path) -> None:
    assert "fp32 plan" in _run(tree, "build", SPOIL="nan").stdout


@pytest.mark.parametrize(
    ("world", "says"),
    [
        (
            {"FAKE_GPUS": "NVIDIA H100, 9.0"},
            "the plan is for gpu NVIDIA L4, here it is NVIDIA H100",
        ),
        ({"FAKE_TENSORRT": "110400"}, "the plan is for tensorrt 101300, here it is 110400"),
    ],
)
def test_a_plan_is_refused_on_another_gpu_and_by_another_tensorrt(
    tree: Path, world: dict[str, str], says: str
) -> None:
    _run(tree, "build")
    refused = _run(tree, "check", **world)
    assert refused.returncode == 1
    assert says in refused.stderr
    assert _run(tree, "build", **world).returncode == 0
    assert _run(tree, "check", **world).returncode == 0


def test_a_plan_of_another_onnx_file_and_a_plan_that_was_changed_are_refused(tree: Path) -> None:
    _run(tree, "build")
    plan = tree / "1/model.plan"
    plan.write_bytes(plan.read_bytes() + b" ")
    assert "not the file that was checked" in _run(tree, "check").stderr
    assert "not the one that was checked" in next(tensorrt.plan_problems(tree))
    request = json.loads((tree / "request.json").read_text())
    request["onnx"]["fp32"]["sha256"] = "0" * 64
    (tree / "request.json").write_text(json.dumps(request))
    assert "the plan is for onnx_sha256" in _run(tree, "check").stderr
    assert "built from another ONNX file" in next(tensorrt.plan_problems(tree))


def test_a_request_that_is_damaged_is_refused_in_words(tree: Path) -> None:
    _run(tree, "build")
    (tree / "request.json").write_text("half of")
    for verb in ("check", "build"):
        done = _run(tree, verb)
        assert (
            done.returncode,
            "request.json of tiny__1 is damaged" in done.stderr,
            "Traceback" in done.stderr,
        ) == (1, True, False)


def test_two_types_of_gpu_are_refused(tree: Path) -> None:
    assert (
        "2 types of GPU here"
        in _run(tree, "build", FAKE_GPUS="NVIDIA L4, 8.9\nNVIDIA H100, 9.0").stderr
    )


def test_the_container_starts_no_triton_over_a_plan_of_another_gpu(tree: Path) -> None:
    _run(tree, "build")
    assert f"--model-repository={tree.parent}" in _start(tree).stdout
    refused = _start(tree, FAKE_GPUS="NVIDIA T4, 7.5")
    assert (refused.returncode, "--model-repository" in refused.stdout) == (1, False)


def _start(tree: Path, **world: str) -> subprocess.CompletedProcess[str]:
    command = [SCRIPT.with_name("start.sh"), tree.parent, "--log-verbose=0"]
    return subprocess.run(
        command, env=_world(tree, world), capture_output=True, text=True, check=False
    )


def test_the_gpu_proof_has_plans_built_and_asks_for_their_rate(
    made: Tiny, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    plan = GpuPlan("cuda", tmp_path, batches=(1, 2), networks=("tiny@1",))
    found = plans.with_trtexec(plan, str(tmp_path / "bin/trtexec"), made.manifests_dir)
    (row,) = found.figures["plans"]
    assert found.is_kept
    assert (row["precision"], row["images_per_second"]) == ("fp16", {"1": 100.0, "2": 200.0})


def test_the_gpu_proof_says_that_a_plan_was_refused(
    made: Tiny, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_GPUS", "NVIDIA L4, 8.9\nNVIDIA T4, 7.5")
    plan = GpuPlan("cuda", tmp_path, batches=(1,), networks=("tiny@1",))
    found = plans.with_trtexec(plan, str(tmp_path / "bin/trtexec"), made.manifests_dir)
    assert not found.is_kept
    assert "2 types of GPU here" in found.figures["build_plans"]

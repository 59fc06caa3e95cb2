"""What bf16 costs beside f32.

Found in turns, said at the build and afterwards, and chosen by in measurements. Nothing here is
timed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import openvino
import pytest

from hilum.models.build import build
from hilum.models.build.precision_speed import advice, cpu_milliseconds
from hilum.models.facts import FactVerdict, Places
from hilum.models.formats.triton_model import Batch, Engine
from hilum.models.inspection import check
from hilum.settings import Settings
from hilum.supervisor.checks.doctor import examine
from load_tests.bench.cpu_engine import Built
from tests.support.models.releases import (
    Tiny,
    make_tiny,
    tiny_manifest,
    tiny_network,
    write_release,
)

IMAGE: Batch = np.zeros((1, 1, 4, 4), np.float16)
SLOW = {"f32": 36.0, "bf16": 57.0}


class Workshop:
    """Engines whose calls take what they are told, by a clock of their own."""

    def __init__(self) -> None:
        self.now, self.order = 0.0, list[str]()

    def clock(self) -> float:
        return self.now

    def engine(self, name: str, costs: Iterator[float]) -> Engine:
        def run(_: Batch) -> dict[str, Batch]:
            self.order.append(name)
            self.now += next(costs)
            return {}

        return run


def test_engines_are_measured_in_turns_and_the_best_turn_counts() -> None:
    shop = Workshop()
    noisy = iter([9.0, *([0.05] * 4), 0.02, 0.02, *([0.05] * 99)])  # the first call allocates
    engines = {"f32": shop.engine("f32", noisy), "bf16": shop.engine("bf16", iter([0.03] * 99))}
    assert cpu_milliseconds(engines, IMAGE, shop.clock) == {"f32": 20.0, "bf16": 30.0}
    turns = shop.order[2:]
    assert turns[:4] == ["f32", "f32", "bf16", "bf16"]
    assert turns == turns[:4] * (len(turns) // 4)


def test_a_network_that_takes_long_is_measured_in_fewer_turns() -> None:
    """At 4 s an image all turns would take two minutes, in which a build says nothing."""
    shop = Workshop()
    engines = {
        "f32": shop.engine("f32", iter([4.0] * 99)),
        "bf16": shop.engine("bf16", iter([5.0] * 99)),
    }
    assert cpu_milliseconds(engines, IMAGE, shop.clock) == {"f32": 4000.0, "bf16": 5000.0}
    assert shop.order == ["f32", "bf16", "f32", "f32", "bf16", "bf16"]


def test_a_precision_that_is_clearly_slower_than_another_is_named() -> None:
    said = advice("bf16", SLOW)
    assert said is not None
    assert "bf16 takes 57 ms of CPU an image and f32 36" in said
    assert advice("f32", SLOW) is None
    assert advice("bf16", {"f32": 57.0, "bf16": 30.0}) is None
    assert advice("bf16", {"f32": 36.0, "bf16": 37.0}) is None, "chance"
    assert advice("int8", SLOW) is None
    assert advice("bf16", {}) is None


def test_a_build_at_bf16_writes_down_what_both_cost(tmp_path: Path) -> None:
    if "BF16" not in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("no bf16 on this CPU")
    network = tiny_network(tmp_path / "tiny.onnx")
    text = tiny_manifest(build.identity.file_sha256(network), engine='openvino"\nprecision = "bf16')
    write_release(tmp_path / "manifests", text, network)
    lines: list[str] = []
    build.build(["tiny@1"], tmp_path / "manifests", tmp_path / "built", progress=lines.append)
    record = json.loads((tmp_path / "built/embedded/tiny__1/build.json").read_text())
    assert set(record["cpu_milliseconds_an_image"]) == {"f32", "bf16"}


@pytest.fixture
def slow(tmp_path: Path) -> Tiny:
    """A built release whose record says that its own precision is the slower one."""
    tiny = make_tiny(tmp_path)
    path = build.tree_of(tiny.release, tiny.built_dir) / "build.json"
    record = json.loads(path.read_text())
    assert "cpu_milliseconds_an_image" not in record, "f32 is nobody's choice for speed"
    path.write_text(json.dumps(record | {"cpu_milliseconds_an_image": {"f32": 57.0, "bf16": 36.0}}))
    return tiny


def test_models_check_and_the_doctor_say_it_and_refuse_nothing(slow: Tiny, tmp_path: Path) -> None:
    found = check.check(["tiny@1"], Places(slow.manifests_dir, slow.built_dir), is_run=False)
    assert [
        line.verdict for line in found if "f32 takes 57 ms of CPU an image and bf16 36" in line.text
    ] == [FactVerdict.NOTE]
    models = {"manifests": slow.manifests_dir, "built": slow.built_dir, "releases": ["tiny@1"]}
    (release,) = [
        line
        for line in examine(Settings(site={"state_dir": tmp_path / "state"}, models=models))
        if line.name == "release tiny@1"
    ]
    assert release.ok
    assert "f32 takes 57 ms of CPU an image and bf16 36" in release.detail


def test_a_result_says_which_precision_and_why(slow: Tiny) -> None:
    built = Built(slow.release, slow.manifests_dir, slow.built_dir, SLOW)
    assert built.about_precision() == {"precision": "f32", "cpu_ms_an_image_by_precision": SLOW}
    assert (
        Built(slow.release, slow.manifests_dir, slow.built_dir).about_precision()[
            "cpu_ms_an_image_by_precision"
        ]
        == {}
    )

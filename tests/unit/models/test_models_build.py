"""The builder: whole trees or none, nothing built twice, nothing served that its engine does not confirm."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hilum.errors import ConfigurationError
from hilum.models.build import build
from hilum.models.formats import triton_model
from hilum.models.known_answers import canary
from hilum.models.manifest import catalogue
from tests.support.models.releases import (
    MANIFESTS,
    TINY_WEIGHTS,
    Tiny,
    pictures,
    tiny_logits,
    tiny_manifest,
    tiny_network,
    write_release,
)


def _build(folder: Path, text: str, network: Path | None = None) -> list[str]:
    """Progress lines of a build in `folder`."""
    write_release(folder / "manifests", text, network)
    lines: list[str] = []
    build.build(["tiny@1"], folder / "manifests", folder / "built", progress=lines.append)
    return lines


def _refusal(folder: Path, text: str, network: Path | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        _build(folder, text, network)
    assert list((folder / "built").rglob("config.pbtxt")) == []
    assert list((folder / "built").glob(".building-*")) == []
    return str(caught.value)


def _sha256(path: Path) -> str:
    from hilum.models.formats.identity import file_sha256

    return file_sha256(path)


def test_a_tree_holds_what_triton_needs_and_what_it_is(tiny: Tiny) -> None:
    tree = build.tree_of(tiny.release, tiny.built_dir)
    assert sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()) == [
        "1/model.onnx",
        "1/model.py",
        "build.json",
        "config.pbtxt",
    ]
    record = json.loads((tree / "build.json").read_text())
    assert record["release"] == "tiny@1"
    assert record["onnx_sha256"] == _sha256(tree / "1/model.onnx")
    assert record["tools"]["onnxruntime"]


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_the_engine_gives_the_network_behind_its_normalisation(tiny: Tiny, engine: str) -> None:
    run = triton_model.open_engine(
        build.tree_of(tiny.release, tiny.built_dir) / "1/model.onnx", engine, "f32", "all"
    )
    for size in (1, 5):
        images = pictures(size, seed=size)
        assert np.abs(run(images)["logits"] - tiny_logits(images)).max() < 1e-5


def test_the_recorded_canary_is_the_known_answer(tiny: Tiny) -> None:
    known = canary.read_canary(tiny.release, tiny.built_dir)
    assert np.abs(known.logits - tiny_logits(known.image)).max() < 1e-5
    constant = np.full_like(known.image, known.image.flat[0])
    assert np.abs(known.logits - tiny_logits(constant)).max() > known.tolerance


def test_a_tree_that_is_up_to_date_is_left_alone(tmp_path: Path) -> None:
    network = tiny_network(tmp_path / "tiny.onnx")
    text = tiny_manifest(_sha256(network))
    first = _build(tmp_path, text, network)
    made = (tmp_path / "built/embedded/tiny__1/1/model.onnx").stat()
    assert first[-1].startswith("tiny@1: embedded built in")
    assert _build(tmp_path, text) == ["tiny@1: embedded is up to date"]
    assert (tmp_path / "built/embedded/tiny__1/1/model.onnx").stat().st_ino == made.st_ino


def test_a_changed_manifest_makes_the_tree_stale_and_a_build_replaces_it(tmp_path: Path) -> None:
    network = tiny_network(tmp_path / "tiny.onnx")
    text = tiny_manifest(_sha256(network))
    _build(tmp_path, text, network)
    changed = text.replace("std = 255.0", "std = 127.0")
    write_release(tmp_path / "manifests", changed)
    release = catalogue.load_catalogue(tmp_path / "manifests")["tiny@1"]
    assert not build.is_built(release, tmp_path / "built")
    assert _build(tmp_path, changed)[-1].startswith("tiny@1: embedded built in")
    assert build.is_built(release, tmp_path / "built")


def test_other_words_or_operating_points_need_no_build(tmp_path: Path) -> None:
    network = tiny_network(tmp_path / "tiny.onnx")
    text = tiny_manifest(_sha256(network))
    _build(tmp_path, text, network)
    assert _build(tmp_path, text.replace("0.6", "0.8").replace("Tests of", "All tests of")) == [
        "tiny@1: embedded is up to date"
    ]


def test_a_second_profile_serves_the_same_artefact_without_the_weights(tmp_path: Path) -> None:
    network = tiny_network(tmp_path / "tiny.onnx")
    _build(tmp_path, tiny_manifest(_sha256(network)), network)
    (tmp_path / "manifests/tiny@1/tiny.onnx").unlink()
    build.build(
        ["tiny@1"],
        tmp_path / "manifests",
        tmp_path / "built",
        profile="onnxruntime",
        progress=lambda _: None,
    )
    trees = [tmp_path / "built" / profile / "tiny__1" for profile in build.PROFILES]
    assert _sha256(trees[0] / "1/model.onnx") == _sha256(trees[1] / "1/model.onnx")
    assert not (trees[1] / "1/model.py").exists()


def test_missing_weights_say_which_file_goes_where(tmp_path: Path) -> None:
    message = _refusal(tmp_path, tiny_manifest("a" * 64))
    assert f"Put tiny.onnx (sha256 {'a' * 64}) into {tmp_path / 'manifests/tiny@1'}" in message
    assert "Source: Made by the test" in message


def test_weights_are_found_in_the_named_folder_first(tmp_path: Path) -> None:
    network = tiny_network(tmp_path / "tiny.onnx")
    write_release(tmp_path / "manifests", tiny_manifest(_sha256(network)))
    build.build(
        ["tiny@1"],
        tmp_path / "manifests",
        tmp_path / "built",
        weights_dir=tmp_path,
        progress=lambda _: None,
    )
    assert (tmp_path / "built/embedded/tiny__1/config.pbtxt").is_file()


def test_other_weights_than_the_manifest_names_are_refused(tmp_path: Path) -> None:
    network = tiny_network(tmp_path / "tiny.onnx")
    message = _refusal(tmp_path, tiny_manifest("b" * 64), network)
    assert _sha256(network) in message
    assert "b" * 64 in message


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "[weights]\n",
            '[weights]\ninput = "pixels"\n',
            "its inputs are input; weights.input says pixels",
        ),
        (
            "[weights]\n",
            '[weights]\noutput = "probs"\n',
            "its outputs are output; weights.output says probs",
        ),
        ("= 32", "= 64", "its input is [None, 1, 32, 32]; the manifest's is [None, 1, 64, 64]"),
        (
            ',\n  { concept = "cardiomegaly", operating_point = 0.6 }',
            "",
            "its output output is [None, 3]; the manifest has 2 labels",
        ),
        ('name = "onnxruntime"', 'name = "onnxruntime"\ntolerance = 5.0', "write `tolerance = "),
    ],
)
def test_a_network_that_does_not_fit_its_manifest_is_refused(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    network = tiny_network(tmp_path / "tiny.onnx")
    text = tiny_manifest(_sha256(network))
    assert old in text
    assert says in _refusal(tmp_path, text.replace(old, new), network)


def test_a_network_that_sees_nothing_is_refused(tmp_path: Path) -> None:
    """Dead weights give the constant image and the canary one answer.

    The canary could prove nothing.
    """
    network = tiny_network(tmp_path / "tiny.onnx", weights=np.zeros_like(TINY_WEIGHTS))
    assert "the network hardly sees its input" in _refusal(
        tmp_path, tiny_manifest(_sha256(network)), network
    )


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    network = tiny_network(
        tmp_path / "tiny.onnx", weights=np.where(TINY_WEIGHTS == 4, np.nan, TINY_WEIGHTS)
    )
    assert "holds NaN: the weights are damaged" in _refusal(
        tmp_path, tiny_manifest(_sha256(network)), network
    )


def test_a_file_that_is_no_network_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tiny.onnx").write_bytes(b"\x00\x01 no protobuf")
    assert "not a readable ONNX file" in _refusal(
        tmp_path, tiny_manifest(_sha256(tmp_path / "tiny.onnx")), tmp_path / "tiny.onnx"
    )


def test_unknown_profiles_and_releases_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="known: embedded, onnxruntime"):
        build.build([], MANIFESTS, tmp_path, profile="tensorflow")
    with pytest.raises(ConfigurationError, match="did you mean 'vit_b16_untrained@1'"):
        build.build(["vit_b16@1"], MANIFESTS, tmp_path)


def test_the_model_refuses_numpy_2_in_the_stub() -> None:
    triton_model.refuse_numpy_2("1.26.4")
    for version in ("2.0.0", "2.4.6", "10.1"):
        with pytest.raises(RuntimeError, match=f"numpy {version}"):
            triton_model.refuse_numpy_2(version)


def test_the_model_refuses_bf16_where_the_cpu_has_none() -> None:
    triton_model.refuse_missing_precision("f32", ["FP32", "INT8"])
    triton_model.refuse_missing_precision("bf16", ["FP32", "BF16"])
    with pytest.raises(RuntimeError, match="this CPU lacks"):
        triton_model.refuse_missing_precision("bf16", ["FP32", "INT8"])


@pytest.mark.parametrize("threads", [2, 3, 40])
def test_an_image_has_the_same_bits_whatever_its_neighbours_and_the_cores(
    tiny: Tiny, threads: int
) -> None:
    artefact = build.tree_of(tiny.release, tiny.built_dir) / "1/model.onnx"
    run, alone = (
        triton_model.open_engine(artefact, "openvino", "f32", "all", count)
        for count in (threads, 1)
    )
    images = pictures(11, seed=11)
    together = run(images)
    for number in range(len(images)):
        expected = alone(images[number : number + 1])
        assert all(
            np.array_equal(together[name][number : number + 1], expected[name]) for name in expected
        )


def test_a_batch_that_the_engine_refuses_does_not_spoil_the_next_one(tiny: Tiny) -> None:
    run = triton_model.open_engine(
        build.tree_of(tiny.release, tiny.built_dir) / "1/model.onnx", "openvino", "f32", "all", 2
    )
    images = pictures(6)
    with pytest.raises(RuntimeError):
        run(images[:, :, :5, :])
    assert np.abs(run(images)["logits"] - tiny_logits(images)).max() < 1e-5


class Request:
    """An engine's request that is busy from `start_async` to `wait`, and fails at the given image."""

    def __init__(self, fails_at: int, *, at_start: bool) -> None:
        self._fails_at, self._at_start = fails_at, at_start
        self._image: int | None = None
        self.results: dict[Port, np.ndarray[Any, Any]] = {}

    def start_async(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> None:
        assert self._image is None, "busy"
        number = int(inputs["image"][0, 0])
        if self._at_start and number == self._fails_at:
            raise TypeError(number)
        self._image = number

    def wait(self) -> None:
        number, self._image = self._image, None
        if number == self._fails_at and not self._at_start:
            raise RuntimeError(number)
        self.results = {Port(): np.array([[number]])}


class Port:
    def get_names(self) -> set[str]:
        return {"logits", "somewhere/else"}


@pytest.mark.parametrize("at_start", [True, False])
@pytest.mark.parametrize("fails_at", range(5))
def test_no_request_is_at_work_when_one_image_has_failed(fails_at: int, *, at_start: bool) -> None:
    requests = [Request(fails_at, at_start=at_start) for _ in range(3)]
    with pytest.raises(TypeError if at_start else RuntimeError):
        triton_model.images_in_turn(requests, np.arange(5).reshape(5, 1))
    answer = triton_model.images_in_turn(requests, np.arange(10, 17).reshape(7, 1))
    assert answer["logits"].ravel().tolist() == list(range(10, 17))


@pytest.mark.parametrize(
    ("threads", "streams"),
    [
        (1, 1),
        (2, 2),
        (16, 16),
        (17, 8),
        (24, 12),
        (32, 16),
        (33, 11),
        (40, 13),
        (64, 16),
        (128, 16),
    ],
)
def test_no_core_is_left_over_where_several_share_an_image(threads: int, streams: int) -> None:
    assert triton_model.streams_of(threads) == streams
    assert threads % streams < threads // streams


def test_the_rows_of_each_request_come_back_in_order() -> None:
    outputs = {
        "logits": np.arange(12, dtype=np.float32).reshape(6, 2),
        "cam": np.arange(6, dtype=np.float16).reshape(6, 1, 1, 1),
    }
    parts = triton_model.split(outputs, [1, 3, 2])
    assert [part["logits"][:, 0].tolist() for part in parts] == [[0], [2, 4, 6], [8, 10]]
    assert [part["cam"].ravel().tolist() for part in parts] == [[0], [1, 2, 3], [4, 5]]
    assert all(part["logits"].flags["C_CONTIGUOUS"] for part in parts)


def test_a_request_that_is_alone_gets_all_rows_packed_as_triton_takes_them() -> None:
    (part,) = triton_model.split({"logits": np.arange(12, dtype=np.float32).reshape(2, 6).T}, [6])
    assert part["logits"].tolist() == [[0, 6], [1, 7], [2, 8], [3, 9], [4, 10], [5, 11]]
    assert part["logits"].flags["C_CONTIGUOUS"]

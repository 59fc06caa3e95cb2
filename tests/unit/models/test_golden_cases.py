"""Golden cases: what is known is proved when a release is built, kept beside it, and refused when it is not so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import openvino
import pytest

from hilum.errors import ConfigurationError
from hilum.models.build import build
from hilum.models.formats.identity import file_sha256
from hilum.models.known_answers import canary, golden
from hilum.models.manifest import catalogue
from hilum.scores import sigmoid
from testing.phantoms import phantom
from tests.support.models.releases import (
    TINY_LABELS,
    pictures,
    tiny_logits,
    tiny_manifest,
    tiny_network,
    write_release,
)

IMAGE = pictures(1, seed=7)[0]
(LOGITS,) = tiny_logits(IMAGE[None])


def case(file: str, answer: str, sha256: str, tolerance: float = 1e-3) -> str:
    return (
        f'\n[[golden]]\nfile = "{file}"\nsha256 = "{sha256}"\n{answer}\ntolerance = {tolerance}\n'
    )


def numbers(values) -> str:
    return f"[{', '.join(f'{value:.6f}' for value in values)}]"


class Bench:
    """A folder with the tiny network and one golden image, and builds of it."""

    def __init__(self, folder: Path, engine: str = "onnxruntime") -> None:
        self.folder = folder
        self.network = tiny_network(folder / "tiny.onnx")
        self.text = tiny_manifest(file_sha256(self.network), engine=engine)
        self.release_folder = write_release(folder / "manifests", self.text, self.network)
        self.image = self.release_folder / "case.npy"
        np.save(self.image, IMAGE)

    def build(self, answer: str, file: str = "case.npy", **given):
        given.setdefault(
            "sha256",
            (
                file_sha256(self.release_folder / file)
                if (self.release_folder / file).exists()
                else "0" * 64
            ),
        )
        write_release(self.folder / "manifests", self.text + case(file, answer, **given))
        build.build(
            ["tiny@1"], self.folder / "manifests", self.folder / "built", progress=lambda _: None
        )
        return catalogue.load_catalogue(self.folder / "manifests")["tiny@1"]

    def refusal(self, answer: str, file: str = "case.npy", **given) -> str:
        with pytest.raises(ConfigurationError) as caught:
            self.build(answer, file, **given)
        assert list((self.folder / "built").rglob("build.json")) == []
        return str(caught.value)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.parametrize(
    "answer",
    [
        f"logits = {numbers(LOGITS)}",
        f"logits = {{ {TINY_LABELS[1]} = {LOGITS[1]:.6f} }}",
        f"scores = {numbers(sigmoid(value) for value in LOGITS)}",
        f"scores = {{ {TINY_LABELS[2]} = {sigmoid(LOGITS[2]):.6f} }}",
    ],
)
def test_a_known_answer_is_proved_and_kept_beside_the_tree(bench: Bench, answer: str) -> None:
    release = bench.build(answer)
    (kept,) = golden.read_goldens(release, bench.folder / "built")
    assert kept.name == "golden case case.npy"
    assert (kept.image == IMAGE[None]).all()
    assert np.abs(kept.logits - LOGITS).max() < 1e-5
    assert kept.tolerance == canary.read_canary(release, bench.folder / "built").tolerance


def test_the_engine_that_serves_is_asked_too(tmp_path: Path) -> None:
    if "BF16" not in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("no bf16 on this CPU: no engine here differs from the reference")
    bench = Bench(tmp_path, engine='openvino"\nprecision = "bf16')
    said = bench.refusal(f"logits = {numbers(LOGITS)}", tolerance=1e-5)
    assert "golden case case.npy by openvino: logit of" in said
    assert "by onnxruntime" not in said


def test_another_answer_is_refused_label_by_label(bench: Bench) -> None:
    said = bench.refusal(f"logits = {numbers(LOGITS + np.array([0.5, 0, 0]))}")
    assert (
        f"logit of {TINY_LABELS[0]} is {LOGITS[0]:.4g}, known is {LOGITS[0] + 0.5:.4g}; 0.001 is"
        " allowed" in said
    )
    assert TINY_LABELS[1] not in said


def test_a_wide_tolerance_lets_it_pass(bench: Bench) -> None:
    bench.build(f"logits = {numbers(LOGITS + 0.05)}", tolerance=0.1)


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_no_number_is_no_answer(bench: Bench, value: str) -> None:
    assert f"finite number (got {value})" in bench.refusal(
        f"logits = {{ {TINY_LABELS[0]} = {value} }}"
    )


def test_an_image_goes_the_way_of_every_image(bench: Bench) -> None:
    (dataset,) = phantom.make_study(seed=3, views=("PA",))
    phantom.save(dataset, bench.release_folder / "pa.dcm")
    release = bench.build(f"logits = {{ {TINY_LABELS[0]} = 0.0 }}", file="pa.dcm", tolerance=9.0)
    (kept,) = golden.read_goldens(release, bench.folder / "built")
    assert kept.image.shape == (1, 1, 32, 32)
    assert np.abs(tiny_logits(kept.image) - kept.logits).max() < 1e-5


def test_a_file_that_would_not_be_analysed_is_no_case(bench: Bench) -> None:
    (bench.release_folder / "text.dcm").write_text("no DICOM")
    assert "golden case text.dcm would not be analysed" in bench.refusal(
        "logits = [0.0, 0.0, 0.0]", file="text.dcm"
    )


def test_a_tensor_of_another_shape_or_type_is_refused(bench: Bench) -> None:
    np.save(bench.image, IMAGE.astype(np.float32))
    assert "case.npy is float32 (1, 32, 32), the wire tensor is uint8 (1, 32, 32)" in bench.refusal(
        "logits = [0.0, 0.0, 0.0]"
    )
    np.save(bench.image, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert "no NumPy file of numbers" in bench.refusal("logits = [0.0, 0.0, 0.0]")


def test_a_file_that_only_begins_like_a_tensor_is_refused(bench: Bench) -> None:
    bench.image.write_bytes(b"")
    assert "no NumPy file of numbers" in bench.refusal("logits = [0.0, 0.0, 0.0]")
    with bench.image.open("wb") as file:
        np.savez(file, IMAGE)
    assert "no NumPy file of numbers" in bench.refusal("logits = [0.0, 0.0, 0.0]")


def test_logits_that_are_no_numbers_have_no_scores_and_are_refused(bench: Bench) -> None:
    bench.build(f"scores = {numbers(sigmoid(value) for value in LOGITS)}")
    read = catalogue.load_manifests(bench.folder / "manifests")["tiny@1"]
    nothing = {"logits": np.full((1, 3), np.nan, np.float32)}
    with pytest.raises(
        ConfigurationError,
        match=r"case\.npy by a broken engine: a logit is infinite or not a number",
    ):
        golden.prove(read, golden.cases(read), lambda _: nothing, "a broken engine")


def test_wrong_digest_and_missing_file_say_what_to_do(bench: Bench) -> None:
    assert "bring that file, or correct the digest" in bench.refusal(
        "logits = [0.0, 0.0, 0.0]", sha256="1" * 64
    )
    assert "no such file; put it" in bench.refusal("logits = [0.0, 0.0, 0.0]", file="gone.npy")


def test_a_new_case_makes_the_tree_stale(bench: Bench) -> None:
    first = bench.build(f"logits = {numbers(LOGITS)}")
    write_release(bench.folder / "manifests", bench.text)
    second = catalogue.load_catalogue(bench.folder / "manifests")["tiny@1"]
    assert first.build_key != second.build_key
    assert not build.is_built(second, bench.folder / "built")


def test_a_kept_tensor_that_is_gone_is_noticed(bench: Bench) -> None:
    release = bench.build(f"logits = {numbers(LOGITS)}")
    tree = build.tree_of(release, bench.folder / "built")
    assert json.loads((tree / "build.json").read_text())["golden"][0]["file"] == "case.npy"
    (tree / "golden_0.npy").unlink()
    with pytest.raises(ConfigurationError, match=r"golden_0\.npy is damaged or gone: delete"):
        golden.read_goldens(release, bench.folder / "built")
    (tree / "golden_0.npy").write_bytes(b"")
    with pytest.raises(ConfigurationError, match=r"golden_0\.npy is damaged or gone: delete"):
        golden.read_goldens(release, bench.folder / "built")


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("logits = [0.0, 0.0]", "golden.0.logits: 2 numbers, but the release has 3 labels"),
        ("scores = {}", "golden.0.scores: empty"),
        ("scores = { edema = 0.5 }", "golden.0.scores: edema is no label of this release"),
        ("", "give either logits or scores"),
        ("logits = [0.0, 0.0, 0.0]\nscores = [0.0, 0.0, 0.0]", "give either logits or scores"),
        ("logit = [0.0, 0.0, 0.0]", "golden.0.logit: unknown key; did you mean 'logits'?"),
    ],
)
def test_an_answer_that_fits_no_release_is_refused(bench: Bench, answer: str, says: str) -> None:
    assert says in bench.refusal(answer)


def test_a_release_without_cases_has_none(bench: Bench) -> None:
    build.build(
        ["tiny@1"], bench.folder / "manifests", bench.folder / "built", progress=lambda _: None
    )
    release = catalogue.load_catalogue(bench.folder / "manifests")["tiny@1"]
    assert golden.read_goldens(release, bench.folder / "built") == ()

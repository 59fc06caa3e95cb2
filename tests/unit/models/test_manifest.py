"""Manifests: what is right is read whole, what is wrong is named, all of it at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hilum.errors import ConfigurationError
from hilum.models.manifest import catalogue, manifest
from hilum.scores import probabilities_of
from tests.support.models.releases import MANIFESTS, TINY_LABELS, tiny_manifest, write_release

TINY = tiny_manifest("0" * 64)


def _problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        manifest.read(write_release(folder, text) / "manifest.toml")
    prefix = f"{folder}"
    assert all(problem.startswith(prefix) for problem in caught.value.problems)
    return caught.value.problems


def test_the_manifests_of_this_repository_are_read() -> None:
    releases = catalogue.load_catalogue(MANIFESTS)
    assert set(releases) == {
        "densenet121_untrained@1",
        "vit_b16_untrained@1",
        "mobilenetv3_nih15_int8@1",
    }
    densenet = releases["densenet121_untrained@1"]
    assert densenet.triton_name == "densenet121_untrained__1"
    assert [label.key for label in densenet.labels][:3] == [
        "atelectasis",
        "cardiomegaly",
        "pleural_effusion",
    ]
    assert (
        len(densenet.labels),
        densenet.has_cam,
        densenet.precision,
        densenet.is_frontal_only,
    ) == (14, True, "f32", True)


def test_untrained_releases_say_so_and_decide_nothing() -> None:
    releases = catalogue.load_catalogue(MANIFESTS)
    for name in ("densenet121_untrained@1", "vit_b16_untrained@1"):
        assert not releases[name].is_trained
        assert releases[name].weights_sha256 == ""
        assert "untrained" in releases[name].intended_use
        assert all(label.operating_point is None for label in releases[name].labels)


def test_the_real_release_pins_weights_engine_and_label_order() -> None:
    release = catalogue.load_catalogue(MANIFESTS)["mobilenetv3_nih15_int8@1"]
    assert release.is_trained
    assert release.weights_sha256.startswith("1ed18d0d")
    assert (release.engine, release.precision, release.activation, len(release.labels)) == (
        "onnxruntime",
        "int8",
        "softmax",
        15,
    )
    assert [release.labels[0].key, release.labels[3].key, release.labels[14].key] == [
        "no_finding",
        "pleural_effusion",
        "hiatal_hernia",
    ]


def test_reading_the_catalogue_loads_no_engine_and_no_torch() -> None:
    code = (
        "import sys, pathlib; from hilum.models.build import build;"
        "from hilum.models.known_answers import canary, golden;"
        "from hilum.models.inspection import show; from hilum.models.manifest import catalogue;"
        f"catalogue.load_catalogue(pathlib.Path({str(MANIFESTS)!r}));print([name for name"
        " in ('torch', 'onnx', 'onnxruntime', 'openvino', 'tritonclient') if name in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        == "[]\n"
    )


def test_an_unknown_key_names_the_nearest(tmp_path: Path) -> None:
    text = (
        TINY.replace("max_batch", "max_batchs")
        .replace("manufacturer", "manufaktur")
        .replace("operating_point", "threshold", 1)
    )
    problems = "\n".join(_problems(tmp_path, text))
    assert "model.max_batchs: unknown key; did you mean 'max_batch'?" in problems
    assert "manufaktur: unknown key; did you mean 'manufacturer'?" in problems
    assert "manufacturer: Field required" in problems
    assert "labels.0.threshold: unknown key; known: concept, private, text" in problems


def test_problems_of_fields_come_at_once(tmp_path: Path) -> None:
    text = (
        TINY.replace("format = 1", "format = 2")
        .replace('"sigmoid"', '"relu"')
        .replace("max_batch = 4", "max_batch = 0")
    )
    problems = "\n".join(_problems(tmp_path, text))
    for place in ("format", "model.activation", "model.max_batch"):
        assert f"{place}: " in problems


def test_problems_of_meaning_come_at_once(tmp_path: Path) -> None:
    text = (
        TINY.replace("pneumothorax", "pneumotorax")
        .replace("0.6", "1.5")
        .replace("height = 32", "height = 31", 1)
    )
    problems = "\n".join(_problems(tmp_path, text))
    assert "labels.1.concept: unknown 'pneumotorax'; did you mean 'pneumothorax'?" in problems
    assert "labels.0.operating_point: 1.5 is no sigmoid score" in problems
    assert "input: input_spec.geometry: ends with (31, 32)" in problems


def test_a_concept_cannot_stand_twice(tmp_path: Path) -> None:
    assert "pneumothorax stands twice" in "".join(
        _problems(tmp_path, TINY.replace("cardiomegaly", "pneumothorax"))
    )


def test_nothing_may_assert_no_finding(tmp_path: Path) -> None:
    assert "no_finding must have no operating point" in "".join(
        _problems(tmp_path, TINY.replace("pneumothorax", "no_finding"))
    )


def test_untrained_weights_decide_nothing(tmp_path: Path) -> None:
    text = (MANIFESTS / "densenet121_untrained@1/manifest.toml").read_text()
    text = text.replace('"mass" }', '"mass", operating_point = 0.5 }')
    assert "untrained weights decide nothing" in "".join(_problems(tmp_path, text))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('file = "tiny.onnx"\n', 'file = "tiny.onnx"\nseed = 3\n', "either seed"),
        ('file = "tiny.onnx"\n', "", "either seed"),
        ('file = "tiny.onnx"', 'file = "../tiny.onnx"', "should match pattern"),
        ('file = "tiny.onnx"', 'file = "tiny.pth"', "tiny.pth is a pickle"),
        (
            '"onnxruntime"',
            '"openvino"\noptimisation = "basic"',
            "optimisation is a setting of onnxruntime",
        ),
        ('"onnxruntime"', '"onnxruntime"\nprecision = "bf16"', "bf16 runs on openvino only"),
        ('"onnxruntime"', '"openvino"\nprecision = "int8"', "int8 runs on onnxruntime only"),
        (
            "views = ",
            'recipe = "nih_pil_bicubic_225"\nviews = ',
            "did you mean 'nih_pil_bicubic_224'",
        ),
        ("normalise = ", "normalize = ", "did you mean 'normalise'"),
        (
            "views = ",
            'receipe = "nih_pil_bicubic_224"\nviews = ',
            "unknown field 'receipe'; did you mean 'recipe'?",
        ),
        ("Hilum's tests", "Firma A\\\\B", "manufacturer: must not hold a backslash"),
        (
            "Hilum's tests",
            "Firma\\u0000",
            "manufacturer: must not hold control characters or line ends",
        ),
        ("Hilum's tests", " ", "manufacturer: must not be blank"),
        ("Hilum's tests", "x" * 65, "manufacturer: String should have at most 64 characters"),
        (
            "Tests of Hilum itself.",
            "Tests.\\u0007",
            "intended_use: must not hold control characters, but for tabs",
        ),
        (
            '"pneumothorax"',
            '"pneumothorax", text = "of\\nlines"',
            "labels.1.text: must not hold control characters or line ends",
        ),
    ],
)
def test_contradictions_are_refused(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert says in "".join(_problems(tmp_path, TINY.replace(old, new)))


def test_the_size_must_fit_the_architecture(tmp_path: Path) -> None:
    seeded = (
        TINY.replace('file = "tiny.onnx"\n', "seed = 1\n")
        .replace(f'sha256 = "{"0" * 64}"\n', "")
        .replace(", operating_point = 0.6", "")
    )
    text = seeded.replace('"onnx"', '"vit_b16"').replace("= 32", "= 40")
    assert "vit_b16 needs height and width in multiples of 16" in "".join(_problems(tmp_path, text))


def _calibrated(lines: str) -> str:
    return f'{TINY}\n[calibration]\nmeasured_on = "2000 adults of one hospital"\n{lines}\n'


@pytest.mark.parametrize(
    "lines",
    [
        'method = "temperature"\ntemperature = 1.7',
        'method = "platt"\na = 1.1\nb = -0.3',
        'method = "platt"\na = 1.0\nb = 0.0\nlabels = { pneumothorax = { a = 2.0, b = 0.1 } }',
        'method = "platt"\nlabels = { '
        + ", ".join(f"{name} = {{ a = 1.0, b = 0.5 }}" for name in TINY_LABELS)
        + " }",
        'method = "isotonic"\npoints = { '
        + ", ".join(f"{name} = [[0.1, 0.05], [0.9, 0.6]]" for name in TINY_LABELS)
        + " }",
    ],
)
def test_a_calibration_gives_a_probability_to_every_label(tmp_path: Path, lines: str) -> None:
    release = manifest.read(write_release(tmp_path, _calibrated(lines)) / "manifest.toml").release
    probabilities = probabilities_of([0.5, -0.5, 1.0], release)
    assert probabilities is not None
    assert len(probabilities) == 3
    assert all(0 < value < 1 for value in probabilities)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('method = "temperature"', "takes temperature and nothing else"),
        ('method = "temperature"\ntemperature = -1.0', "greater than 0"),
        (
            'method = "temperature"\ntemperature = 1.0\na = 1.0',
            "takes temperature and nothing else",
        ),
        ('method = "platt"\na = 1.0', "takes a and b"),
        ('method = "isotonic"', "takes points"),
        (
            'method = "platt"\nlabels = { pneumothorax = { a = 1.0, b = 0.0 } }',
            "no a and b for cardiomegaly, pleural_effusion",
        ),
        (
            'method = "platt"\na = 1.0\nb = 0.0\nlabels = { edema = { a = 1.0, b = 0.0 } }',
            "edema is no label of this release",
        ),
        ('metod = "platt"\na = 1.0\nb = 0.0', "did you mean 'method'?"),
        ('method = "platt"\na = -1.2\nb = 0.1', "have the other sign: a = -A, b = -B (got -1.2)"),
        (
            'method = "platt"\nlabels = { pneumothorax = { a = -1.0, b = 0.0 } }',
            "pneumothorax.a: must be above 0",
        ),
    ],
)
def test_a_calibration_with_gaps_is_refused(tmp_path: Path, lines: str, says: str) -> None:
    assert says in "".join(_problems(tmp_path, _calibrated(lines)))


def test_the_folder_is_named_by_the_release(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/manifest.toml").write_text(TINY)
    with pytest.raises(
        ConfigurationError, match="the folder is 'other', but the release is tiny@1"
    ):
        manifest.read(tmp_path / "other/manifest.toml")


def test_text_that_is_no_toml_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "x@1/manifest.toml"
    path.parent.mkdir()
    path.write_bytes(b"format = \n")
    with pytest.raises(ConfigurationError, match="not valid TOML"):
        manifest.read(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="not valid TOML"):
        manifest.read(path)


def test_the_catalogue_reports_the_problems_of_all_manifests(tmp_path: Path) -> None:
    write_release(tmp_path, TINY.replace("format = 1", "format = 9"))
    write_release(
        tmp_path,
        TINY.replace('"tiny"', '"other"')
        .replace('"sigmoid"', '"none"')
        .replace("[model]", "[modell]"),
    )
    with pytest.raises(ConfigurationError) as caught:
        catalogue.load_catalogue(tmp_path)
    assert {problem.split(": ")[0] for problem in caught.value.problems} == {
        str(tmp_path / "tiny@1/manifest.toml"),
        str(tmp_path / "other@1/manifest.toml"),
    }


def test_a_draft_keeps_nobody_from_using_other_releases(tmp_path: Path) -> None:
    write_release(tmp_path, TINY)
    write_release(
        tmp_path,
        TINY.replace('"tiny"', '"draft"').replace('"Apache-2.0"', '"EDIT: of the weights"'),
    )
    assert set(catalogue.load_catalogue(tmp_path, ["tiny@1"])) == {"tiny@1"}
    with pytest.raises(ConfigurationError, match="licence: still to be written"):
        catalogue.load_catalogue(tmp_path, ["tiny@1", "draft@1"])
    assert isinstance(catalogue.look(tmp_path)["draft@1"], list)


def test_an_empty_folder_is_no_catalogue(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"set models\.manifests"):
        catalogue.load_catalogue(tmp_path)


@pytest.mark.parametrize("version", ["1_0", "1..0", ".1", "1.", "", "1.2.3.4.5.6.7.8.9"])
def test_versions_that_triton_could_confuse_are_refused(tmp_path: Path, version: str) -> None:
    assert "version: " in "".join(
        _problems(tmp_path, TINY.replace('version = "1"', f'version = "{version}"'))
    )


def test_choosing_an_unknown_release_names_the_nearest() -> None:
    releases = catalogue.load_catalogue(MANIFESTS)
    with pytest.raises(
        ConfigurationError,
        match="unknown release 'densenet121@1'; did you mean 'densenet121_untrained@1'",
    ):
        catalogue.choose(releases, ["densenet121@1"])
    assert list(catalogue.choose(releases, ["vit_b16_untrained@1"])) == ["vit_b16_untrained@1"]


def test_the_build_key_follows_what_shapes_the_tree_and_nothing_else(tmp_path: Path) -> None:
    def key(text: str) -> str:
        return manifest.read(write_release(tmp_path, text) / "manifest.toml").release.build_key

    first = key(TINY)
    assert key(TINY.replace("Tests of Hilum itself", "Other words").replace("0.6", "0.7")) == first
    changes = [
        ("std = 255.0", "std = 254.0"),
        ("max_batch = 4", "max_batch = 8"),
        ('"onnxruntime"', '"openvino"'),
        ("0" * 64, "1" * 64),
    ]
    assert len({first, *(key(TINY.replace(old, new)) for old, new in changes)}) == 5


def _read(folder: Path, text: str) -> manifest.Manifest:
    return manifest.read(write_release(folder, text) / "manifest.toml")


def _instead(label: str) -> str:
    """The tiny manifest with this table in place of its third label."""
    return TINY.replace('{ concept = "cardiomegaly", operating_point = 0.6 }', label)


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ('{ concept = "cardiomegaly" }', '"none" for a label that is scored and never decided'),
        ('{ private = "RIB_NOTCHING", operating_point = 0.5 }', "a private label needs its text"),
        (
            '{ private = "RIB_NOTCHING", concept = "mass", text = "x" }',
            "give either concept or private",
        ),
        ('{ private = "rib notching", text = "x" }', "should match pattern"),
        (
            '{ private = "PLEURAL_THICK", text = "x", operating_point = 0.5 }',
            "PLEURAL_THICK is taken by docs/models/terminology.md",
        ),
        (
            '{ private = "MASS", text = "x", operating_point = 0.5 }',
            "MASS is taken by docs/models/terminology.md",
        ),
        ("{ operating_point = 0.5 }", "an output without a name takes is_masked = true"),
        ('{ concept = "cardiomegaly", operating_point = "never" }', "operating_point"),
        (
            '{ concept = "mass", operating_point = 0.5, rescaled_at = 1.0 }',
            "rescaled_at: Input should be less than 1",
        ),
    ],
)
def test_labels_that_mean_nothing_are_refused(tmp_path: Path, label: str, says: str) -> None:
    assert says in "".join(_problems(tmp_path, _instead(label)))


@pytest.mark.parametrize(
    ("label", "key", "point", "is_masked"),
    [
        ('{ concept = "cardiomegaly", operating_point = "none" }', "cardiomegaly", None, False),
        ('{ concept = "cardiomegaly", is_masked = true }', "cardiomegaly", None, True),
        ('{ concept = "no_finding" }', "no_finding", None, False),
        (
            '{ private = "RIB_NOTCHING", text = "Rib notching", operating_point = 0.5 }',
            "rib_notching",
            0.5,
            False,
        ),
        ("{ is_masked = true }", "output_2", None, True),
    ],
)
def test_labels_that_need_no_concept_or_no_point(
    tmp_path: Path, label: str, key: str, point: float | None, is_masked: bool
) -> None:
    found = _read(tmp_path, _instead(label)).release.labels[2]
    assert (found.key, found.operating_point, found.is_masked) == (key, point, is_masked)


def test_a_private_label_claims_no_code_of_others(tmp_path: Path) -> None:
    found = _read(
        tmp_path,
        _instead('{ private = "RIB_NOTCHING", text = "Rib notching", operating_point = 0.5 }'),
    ).release.labels[2]
    assert (found.code.scheme, found.code.value, found.code.meaning, found.code_status) == (
        "99HILUM",
        "RIB_NOTCHING",
        "Rib notching",
        "C",
    )


def test_rescaling_goes_with_a_sigmoid(tmp_path: Path) -> None:
    text = _instead('{ concept = "mass", operating_point = 0.5, rescaled_at = 0.02 }')
    assert _read(tmp_path, text).release.labels[2].rescaled_at == 0.02
    assert "rescaled_at: goes with the activation sigmoid" in "".join(
        _problems(tmp_path, text.replace('"sigmoid"', '"softmax"'))
    )


def test_operating_points_say_where_they_come_from(tmp_path: Path) -> None:
    release = _read(tmp_path, TINY).release
    assert release.operating_points == {
        "measured_on": "No cases: chosen by hand.",
        "criterion": "Above the mean of the known images.",
    }
    first = TINY.index("[operating_points]")
    assert "operating_points: missing; say where" in "".join(_problems(tmp_path, TINY[:first]))
    assert _read(tmp_path, TINY[:first].replace("0.6", '"none"')).release.operating_points is None


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ("[engine]\ntolerance = inf", "engine.tolerance: Input should be a finite number"),
        (
            '[calibration]\nmethod = "platt"\nmeasured_on = "x"\na = nan\nb = 0.0\n[engine]',
            "calibration.a: Input should be a finite number",
        ),
    ],
)
def test_infinity_switches_no_gate_off(tmp_path: Path, table: str, says: str) -> None:
    assert says in "".join(_problems(tmp_path, TINY.replace("[engine]", table)))


def test_task_and_citation_are_facts_of_the_release(tmp_path: Path) -> None:
    release = _read(tmp_path, 'citation = "Somebody et al., 2026"\n' + TINY).release
    assert (release.task, release.citation) == ("classification", "Somebody et al., 2026")
    assert "task: Input should be 'classification'" in "".join(
        _problems(tmp_path, 'task = "segmentation"\n' + TINY)
    )


@pytest.mark.parametrize(
    ("points", "says"),
    [
        ("[[0.1, 0.2]]", "a line has two points at least"),
        ("[[0.1, 0.2], [0.1, 0.3]]", "scores must rise from point to point"),
        ("[[0.1, 0.2], [0.5, 0.1]]", "a higher score may not mean a lower probability"),
        (
            "[[0.1, 0.2], [nan, 0.3]]",
            "calibration.points.pneumothorax.1.0: Input should be a finite number",
        ),
        ("[[0.1, 0.2], [0.5, 1.2]]", "less than or equal to 1"),
        ("[[0.1, 0.2], [0.5, 0.3]]", "calibration.points: none for cardiomegaly, pleural_effusion"),
    ],
)
def test_isotonic_points_that_are_no_monotone_line_are_refused(
    tmp_path: Path, points: str, says: str
) -> None:
    assert says in "".join(
        _problems(
            tmp_path, _calibrated(f'method = "isotonic"\npoints = {{ pneumothorax = {points} }}')
        )
    )


@pytest.mark.parametrize(
    ("place", "line", "says"),
    [
        ("[model]", "optoins = {}", "model.optoins: unknown key; did you mean 'options'?"),
        (
            "[weights]",
            "members = [{ fiel = 'x' }]",
            "weights.members.0.fiel: unknown key; did you mean 'file'?",
        ),
        (
            "[operating_points]",
            "measured_at = 'x'",
            "operating_points.measured_at: unknown key; did you mean 'measured_on'?",
        ),
        (
            "[engine]",
            "[[golden]]\nlogit = [1.0]",
            "golden.0.logit: unknown key; did you mean 'logits'?",
        ),
        (
            "[engine]",
            "[model.options]\nheats = 3",
            "model.options.heats: unknown key; did you mean 'heads'?",
        ),
        (
            "[engine]",
            (
                "[calibration]\nmethod = 'platt'\nmeasured_on = 'x'\nlabels = { mass = { slope ="
                " 1.0 } }"
            ),
            "calibration.labels.mass.slope: unknown key; known: a, b",
        ),
    ],
)
def test_unknown_keys_are_named_however_deep_they_lie(
    tmp_path: Path, place: str, line: str, says: str
) -> None:
    text = TINY.replace(place, f"{line}\n{place}" if line.startswith("[") else f"{place}\n{line}")
    assert says in "\n".join(_problems(tmp_path, text))


def test_a_text_that_nobody_has_written_yet_is_refused_where_it_stands(tmp_path: Path) -> None:
    text = _instead(
        '{ private = "OUTPUT_2", text = "EDIT: what output 2 means", operating_point = "none" }'
    )
    assert "labels.2.text: still to be written; it says 'EDIT: what output 2 means'" in "".join(
        _problems(tmp_path, text)
    )


_MEMBER = '[[weights.members]]\nfile = "{0}.onnx"\nsha256 = "' + "2" * 64 + '"\n'


def _ensemble(rule: str = 'rule = "mean_score"\n', members: int = 2) -> str:
    first, last = TINY.index("[weights]"), TINY.index("[input]")
    return TINY.replace(
        TINY[first:last],
        f"[weights]\n{rule}" + "".join(_MEMBER.format(number) for number in range(members)),
    )


def test_an_ensemble_is_named_by_all_its_weights(tmp_path: Path) -> None:
    release = _read(tmp_path, _ensemble()).release
    assert release.is_trained
    assert len(release.weights_sha256) == 64
    other = _read(tmp_path, _ensemble().replace("2" * 64, "3" * 64, 1)).release
    assert other.weights_sha256 != release.weights_sha256


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (_ensemble(rule=""), "an ensemble has two members or more, and a rule"),
        (_ensemble(members=1), "an ensemble has two members or more, and a rule"),
        (_ensemble(rule='rule = "mean_score"\nseed = 3\n'), "members bring their own weights"),
        (_ensemble(rule='rule = "median"\n'), "'mean_score' or 'mean_logit'"),
        (
            TINY.replace("max_batch = 4", "max_batch = 4\ncam = true"),
            "model.cam: no exact map here: name the network's own output",
        ),
        (
            TINY.replace("[model]", "[model.options]\npatch = 8\n[model]"),
            "model.options: these belong to the architecture vit",
        ),
    ],
)
def test_networks_that_contradict_themselves_are_refused(
    tmp_path: Path, text: str, says: str
) -> None:
    assert says in "".join(_problems(tmp_path, text))

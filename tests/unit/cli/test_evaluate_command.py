"""`hilum evaluate` on small trees of the right layout: numbers, doubts by name, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hilum.cli import app
from tests.support.evaluate.trees import FIVE, chexpert_valid, export_csv, nih, write_csv

STUDIES = 24


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder without settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HILUM_CONFIG", raising=False)
    return tmp_path


def said(*words: str | Path) -> tuple[int, str]:
    """The exit status, and both outputs."""
    result = CliRunner().invoke(app, ["evaluate", *map(str, words), "--bootstrap", "100"])
    return result.exit_code, result.output


def evaluated(*words: str | Path) -> dict[str, Any]:
    status, output = said(*words, "--out", "found.json")
    assert status == 0, output
    found: dict[str, Any] = json.loads(Path("found.json").read_text())
    return found


def chexpert_scores(folder: Path, *, lateral: float = 0.0, wrong: int = -1) -> Path:
    """Perfect scores of frontal images; `lateral`: of all lateral ones; `wrong`: a study that fails."""
    scores: dict[str, dict[str, float]] = {}
    for number in range(STUDIES):
        stem = f"/data/CheXpert/valid/patient{64541 + number // 2}/study{1 + number % 2}"
        right = {
            name.lower().replace(" ", "_"): float((number % 5 == place) != (number == wrong))
            for place, name in enumerate(FIVE)
        }
        scores[f"{stem}/view1_frontal.jpg"] = right
        scores[f"{stem}/view2_lateral.jpg"] = dict.fromkeys(right, lateral)
    return export_csv(folder / "results.csv", scores, points={"edema": 0.3})


def by_class(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {item["class"]: item for item in found["classes"]}


def test_a_study_is_the_highest_score_of_its_views(folder: Path) -> None:
    labels = chexpert_valid(folder)
    found = evaluated("chexpert-valid", "--labels", labels, "--results", chexpert_scores(folder))
    assert found["mean"]["classes"] == list(FIVE)
    assert found["mean"]["auroc"]["value"] == 1
    assert found["counts"]["cases"] == found["counts"]["studies"] == STUDIES
    assert found["counts"]["images"] == 2 * STUDIES
    assert found["counts"]["patients"] == STUDIES / 2
    assert found["protocol"]["aggregation"] == "max"
    # a lateral image with high scores hides the frontal one: the maximum tells no class apart
    hidden = chexpert_scores(folder, lateral=1.0)
    assert evaluated("chexpert-valid", "--labels", labels, "--results", hidden)["mean"]["auroc"]["value"] == 0.5  # fmt: skip
    frontal = ("--views", "frontal")
    found = evaluated("chexpert-valid", "--labels", labels, "--results", hidden, *frontal)
    assert found["mean"]["auroc"]["value"] == 1
    assert "views frontal alone" in found["deviations"]


def test_each_threshold_has_its_counts(folder: Path) -> None:
    found = evaluated("chexpert-valid", "--labels", chexpert_valid(folder), "--results", chexpert_scores(folder, wrong=3))  # fmt: skip
    points = {item["of"]: item for item in by_class(found)["Edema"]["thresholds"]}
    assert points["manifest"]["threshold"] == 0.3
    assert points["manifest"]["false_negatives"] == 1
    assert points["manifest"]["true_positives"] == 4
    assert points["manifest"]["sensitivity"]["value"] == 0.8
    assert "manifest" not in {item["of"] for item in by_class(found)["Atelectasis"]["thresholds"]}


def test_a_small_set_is_not_comparable_with_a_published_number_and_says_why(folder: Path) -> None:
    found = evaluated("chexpert-valid", "--labels", chexpert_valid(folder), "--results", chexpert_scores(folder))  # fmt: skip
    rows = {item["system"]: item for item in found["comparable_with"]}
    assert not rows["CheXzero"]["comparable"]
    assert "it is a number of chexpert-test" in rows["CheXzero"]["why_not"]
    assert "48 labelled cases, the split has 234" in rows["CheXzero"]["why_not"]


def test_missing_and_unlabelled_images_are_counted_and_named(folder: Path) -> None:
    scores = {"/d/a.png": {"edema": 0.9}, "/d/b.png": {"edema": 0.1}, "/d/x.png": {"edema": 0.5}}
    labels = write_csv(folder / "mine.csv", ["path", "Edema"], [["a.png", 1], ["b.png", 0], ["gone.png", 1]])  # fmt: skip
    results = export_csv(folder / "r.csv", scores)
    write_csv(folder / "r.not_read.csv", ["state", "reason"], [["not_analysed", "no_chest"]])
    status, output = said("labels", "--labels", labels, "--results", results)
    assert status == 0, output
    assert "1 labelled cases have no score, such as gone.png" in output
    assert "1 images have scores and no label, such as /d/x.png" in output
    assert "not read, not_analysed no_chest: 1 images" in output
    assert "fewer than 20 positive or negative cases, rough intervals: Edema" in output


def test_classes_without_finding_or_positives_are_named_and_in_no_mean(folder: Path) -> None:
    labels = write_csv(folder / "mine.csv", ["path", "Edema", "Mass", "Scoliosis"], [["a.png", 1, 0, 1], ["b.png", 0, 0, 0]])  # fmt: skip
    scores = {f"/d/{name}.png": {"edema": score, "mass": score} for name, score in (("a", 0.9), ("b", 0.1))}  # fmt: skip
    results = export_csv(folder / "r.csv", scores)
    status, output = said("labels", "--labels", labels, "--results", results, "--out", "f.json")
    assert status == 0, output
    assert "Scoliosis: left out, chest@1 has no finding Scoliosis" in output
    assert "Mass: undefined, no positive case; it is in no mean" in output
    assert json.loads(Path("f.json").read_text())["mean"]["classes"] == ["Edema"]


def test_a_class_is_joined_with_another_finding_by_hand(folder: Path) -> None:
    labels = write_csv(folder / "mine.csv", ["path", "Wet"], [["a.png", 1], ["b.png", 0]])
    results = export_csv(folder / "r.csv", {"a.png": {"edema": 0.9}, "b.png": {"edema": 0.1}})
    found = evaluated("labels", "--labels", labels, "--results", results, "--map", "Wet=edema")
    assert by_class(found)["Wet"]["finding"] == "edema"


def nih_case(folder: Path, count: int = 40) -> tuple[Path, Path]:
    """Images of 10 patients; those with an even number have an effusion."""
    rows = [
        (
            f"{number:08}_000.png",
            "Effusion|Mass" if number % 2 else "No Finding",
            number % 10,
            "050Y",
            "MF"[number % 2],
            "PA",
        )
        for number in range(count)
    ]
    scores = {
        f"/nih/images/{row[0]}": {"pleural_effusion": (number * 7 % count) / count, "mass": 0.5}
        for number, row in enumerate(rows)
    }
    return nih(folder, rows), export_csv(folder / "r.csv", scores)


def test_images_of_nih_are_joined_by_their_names(folder: Path) -> None:
    labels, results = nih_case(folder)
    found = evaluated("nih-chestxray14", "--labels", labels, "--results", results, "--split", "all")
    assert found["counts"]["patients"] == 10
    assert by_class(found)["Effusion"]["positives"] == 20
    assert by_class(found)["Mass"]["auroc"]["value"] == 0.5
    assert found["counts"]["classes_without_finding"]["Hernia"] == "hiatal_hernia"
    assert {each["group"] for each in by_class(found)["Effusion"]["subgroups"]} == {"M", "F"}
    assert all(each["too_small"] for each in by_class(found)["Effusion"]["subgroups"])


def test_two_releases_are_compared_on_the_same_cases(folder: Path) -> None:
    labels, results = nih_case(folder)
    better = {
        f"/other/{number:08}_000.png": {"pleural_effusion": number % 2 * 0.5 + number / 100}
        for number in range(30)
    }
    other = export_csv(folder / "other.csv", better, release="chest@2")
    found = evaluated("nih-chestxray14", "--labels", labels, "--results", results, "--split", "all", "--against", other)  # fmt: skip
    (effusion,) = found["classes"]
    assert effusion["positives"] + effusion["negatives"] == 30
    difference = effusion["difference"]
    assert difference["first"] == pytest.approx(effusion["auroc"]["value"])
    assert difference["difference"] == pytest.approx(difference["second"] - difference["first"])
    assert difference["p"] < 0.01
    assert found["against"]["name"] == "chest@2"
    assert found["mean"]["difference"]["value"] == pytest.approx(difference["difference"])


def test_two_labels_of_one_image_are_refused(folder: Path) -> None:
    labels = write_csv(folder / "mine.csv", ["path", "Edema"], [["a.png", 1], ["x/a.png", 0]])
    results = export_csv(folder / "r.csv", {"x/a.png": {"edema": 0.9}})
    status, output = said("labels", "--labels", labels, "--results", results)
    assert status == 2, output
    assert "the labels 'a.png' and 'x/a.png' fit the same image 'x/a.png'" in output


def test_a_comparison_says_which_cases_it_left_out(folder: Path) -> None:
    labels, results = nih_case(folder)
    lines = results.read_text().splitlines(keepends=True)
    fewer = folder / "fewer.csv"
    fewer.write_text("".join(lines[:-4]))
    found = evaluated("nih-chestxray14", "--labels", labels, "--results", results, "--split", "all", "--against", fewer)  # fmt: skip
    assert found["counts"]["cases"] == found["counts"]["images"] == 38
    assert found["counts"]["labelled_without_score"] == 2
    assert found["counts"]["labelled_without_score_first"] == ["00000038_000.png", "00000039_000.png"]  # fmt: skip
    assert "2 labelled cases have no score" in found["deviations"]


def test_a_comparison_refuses_images_that_a_label_does_not_tell_apart(folder: Path) -> None:
    labels = write_csv(folder / "mine.csv", ["study", "Edema"], [["1.2.0", 1], ["1.2.1", 0]])
    text = export_csv(folder / "r.csv", {"a.png": {"edema": 0.9}, "b.png": {"edema": 0.1}}).read_text()  # fmt: skip
    view = text.splitlines(keepends=True)[1].replace("1.2.0.1", "1.2.0.2").replace("a.png", "c.png")
    (folder / "r.csv").write_text(text + view)
    given = ("labels", "--labels", labels, "--key", "study", "--join", "study_instance_uid")
    both = (*given, "--results", folder / "r.csv", "--against", folder / "r.csv")
    status, output = said(*both)
    assert status == 2, output
    assert "no pair is certain" in output
    assert said(*both, "--unit", "study")[0] == 0


def test_the_mean_difference_is_of_all_classes_of_the_mean(folder: Path) -> None:
    """DeLong's test needs two positive cases, the difference of two areas needs one."""
    numbers = range(20)
    labels = write_csv(folder / "mine.csv", ["path", "Edema", "Mass"], [[f"{each}.png", each % 2, int(each == 5)] for each in numbers])  # fmt: skip
    first = {f"{each}.png": {"edema": 0.5, "mass": each / 20} for each in numbers}
    second = {f"{each}.png": {"edema": 0.5, "mass": 1 - abs(each - 5) / 20} for each in numbers}
    results = export_csv(folder / "r.csv", first)
    other = export_csv(folder / "other.csv", second)
    found = evaluated("labels", "--labels", labels, "--results", results, "--against", other)
    assert by_class(found)["Mass"]["difference"] is None
    mass = 1 - by_class(found)["Mass"]["auroc"]["value"]
    assert found["mean"]["difference"]["value"] == pytest.approx(mass / 2)


def test_operating_points_are_of_the_score_alone(folder: Path) -> None:
    labels = write_csv(folder / "mine.csv", ["path", "Edema"], [["a.png", 1], ["b.png", 0]])
    results = export_csv(folder / "r.csv", {"a.png": {"edema": 0.9}, "b.png": {"edema": 0.1}}, points={"edema": 0.3})  # fmt: skip
    given = ("labels", "--labels", labels, "--results", results)
    assert "manifest" in {item["of"] for item in by_class(evaluated(*given))["Edema"]["thresholds"]}
    head, *rows = results.read_text().splitlines()
    logits = [f"{row},{logit}" for row, logit in zip(rows, (2.2, 0.1), strict=True)]
    results.write_text("\n".join([f"{head},logit", *logits]) + "\n")
    found = evaluated(*given, "--score", "logit")
    assert "manifest" not in {item["of"] for item in by_class(found)["Edema"]["thresholds"]}


def test_a_release_against_itself_differs_by_nothing(folder: Path) -> None:
    labels, results = nih_case(folder)
    found = evaluated("nih-chestxray14", "--labels", labels, "--results", results, "--split", "all", "--against", results)  # fmt: skip
    assert found["mean"]["difference"]["value"] == 0


def test_a_table_with_a_column_for_each_class_is_read(folder: Path) -> None:
    labels = write_csv(folder / "mine.csv", ["path", "Edema"], [["a.png", 1], ["b.png", 0]])
    wide = write_csv(folder / "w.csv", ["file", "prob_Edema"], [["x/a.png", 0.7], ["x/b.png", 0.2]])
    given = ("--labels", labels, "--results", wide, "--score-prefix", "prob_")
    assert evaluated("labels", *given, "--join", "file")["mean"]["auroc"]["value"] == 1
    assert "--join names one of file" in said("labels", *given)[1]


def test_parquet_is_read_as_csv(folder: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="the extra for Parquet is missing")
    labels, results = nih_case(folder)
    packed = folder / "r.parquet"
    duckdb.sql(f"COPY (SELECT * FROM '{results}') TO '{packed}'")
    first, second = (
        evaluated("nih-chestxray14", "--labels", labels, "--results", path, "--split", "all")
        for path in (results, packed)
    )
    assert first["classes"] == second["classes"]


def test_untrained_weights_are_said_first(folder: Path) -> None:
    labels = write_csv(folder / "mine.csv", ["path", "Edema"], [["a.png", 1], ["b.png", 0]])
    results = export_csv(folder / "r.csv", {"a.png": {"edema": 0.9}, "b.png": {"edema": 0.1}}, is_trained=False)  # fmt: skip
    _, output = said("labels", "--labels", labels, "--results", results)
    assert "hilum: chest@1 has untrained weights: its scores mean nothing" in output


def test_the_page_loads_nothing_and_keeps_foreign_text_as_text(folder: Path) -> None:
    labels = write_csv(folder / "mine.csv", ["path", "<b>Wet"], [["a.png", 1], ["b.png", 0]])
    results = export_csv(folder / "r.csv", {"a.png": {"edema": 0.9}, "b.png": {"edema": 0.1}})
    status, output = said("labels", "--labels", labels, "--results", results, "--map", "<b>Wet=edema", "--out", "f.html")  # fmt: skip
    assert status == 0, output
    page = Path("f.html").read_text()
    assert "&lt;b&gt;Wet" in page
    assert "<b>Wet" not in page
    assert "http" not in page
    assert page.count("<svg") == 4


def test_a_folder_of_images_is_looked_through_before_anything_reads_it(folder: Path) -> None:
    labels = write_csv(folder / "mine.csv", ["path", "Edema"], [["a.png", 1], ["b.png", 0], ["c.png", 0]])  # fmt: skip
    (folder / "tree/deep").mkdir(parents=True)
    for name in ("a.png", "deep/b.png", "note.txt"):
        (folder / "tree" / name).write_bytes(b"")
    status, output = said("labels", "--labels", labels, "--images", "tree", "--release", "chest@1")
    assert status == 0, output
    assert "2 of 3 labelled images are in tree" in output
    assert "hilum: missing: c.png" in output
    assert f"hilum campaign plan chest-labels --pictures {folder}/labels-pictures.csv" in output
    assert Path("labels-pictures.csv").read_text().splitlines()[1] == f"{folder}/tree/a.png,,"


def test_dicom_files_are_planned_by_their_folder(folder: Path) -> None:
    labels = write_csv(folder / "stage_2_train_labels.csv", ["patientId", "x", "y", "width", "height", "Target"], [["a", "", "", "", "", 0]])  # fmt: skip
    (folder / "dicom").mkdir()
    (folder / "dicom/a.dcm").write_bytes(b"")
    _, output = said("rsna", "--labels", labels, "--images", "dicom", "--release", "chest@1")
    assert f"hilum campaign plan chest-rsna --folder {folder}/dicom" in output


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ([], "give the scores: one of --results, --campaign and --images"),
        (["--results", "r.csv", "--images", "."], "give the scores: one of"),
        (["--results", "gone.csv"], "gone.csv: No such file or directory"),
        (["--results", "r.csv", "--out", "found.pdf"], "ends in .json or .html"),
        (["--results", "r.csv", "--map", "Edema"], "say CLASS=FINDING"),
        (["--results", "r.csv", "--uncertain", "u-maybe"], "no policy 'u-maybe'"),
        (["--results", "r.csv", "--rows", "some"], "--rows some: say majority or any or all"),
        (["--results", "r.csv", "--release", "chest@9"], "no row is of chest@9; it has chest@1"),
        (["--results", "r.csv", "--join", "accession"], "there is no column 'accession'; --join names"),
        (["--results", "two.csv"], "it has several releases; --release names one of chest@1, chest@2"),
        (["--results", "twice.csv"], "an image has a finding twice"),
        (["--results", "words.csv"], "'high' is no number"),
        (["--results", "endless.csv"], "'inf' is no finite number"),
        (["--results", "again.csv"], "two columns have one name"),
        (["--results", "r.csv", "--map", "Edma=edema"], "'Edma': the labels have no such class"),
        (["--results", "r.csv", "--map", "Edema=wet"], "'wet': chest@1 has no such finding"),
        (["--results", "other.csv"], "no label fits an image. Labels have 'a.png'"),
        (["--results", "names.csv"], "fit several images, such as 'a.png' (2)"),
        (["--results", "wide.csv"], "it is no table of `hilum export`"),
        (["--results", "mass.csv"], "no class of the labels is a finding of chest@1"),
        (["--images", "gone", "--release", "chest@1"], "--images gone: it is no folder"),
        (["--images", "."], "--images needs --release"),
        (["--images", ".", "--release", "chest@1"], "it holds none of the 2 labelled images"),
    ],
)  # fmt: skip
def test_bad_input_is_explained(folder: Path, more: list[str], text: str) -> None:
    write_csv(folder / "mine.csv", ["path", "Edema"], [["a.png", 1], ["b.png", 0]])
    edema = {"a.png": {"edema": 0.9}, "b.png": {"edema": 0.1}}
    good = export_csv(folder / "r.csv", edema).read_text()
    lines = good.splitlines(keepends=True)
    (folder / "two.csv").write_text(good + "".join(lines[1:]).replace("chest@1", "chest@2"))
    (folder / "twice.csv").write_text(good + lines[1])
    (folder / "words.csv").write_text(good.replace("0.9", "high"))
    (folder / "endless.csv").write_text(good.replace("0.9", "inf"))
    (folder / "again.csv").write_text(good.replace("origin", "score"))
    (folder / "other.csv").write_text(good.replace(".png", ".dcm"))
    (folder / "names.csv").write_text(good + lines[1].replace("a.png", "x/a.png"))
    (folder / "wide.csv").write_text("file,Edema\na.png,1\n")
    (folder / "mass.csv").write_text(good.replace("edema", "mass"))
    status, output = said("labels", "--labels", "mine.csv", *more)
    assert status == 2, output
    assert text in output


def test_labels_that_no_image_is_positive_in_end_with_status_1(folder: Path) -> None:
    write_csv(folder / "mine.csv", ["path", "Edema"], [["a.png", 0], ["b.png", 0]])
    export_csv(folder / "r.csv", {"a.png": {"edema": 0.9}, "b.png": {"edema": 0.1}})
    status, output = said("labels", "--labels", "mine.csv", "--results", "r.csv")
    assert status == 1
    assert "Edema: undefined, no positive case" in output
    assert "nothing was measured" in output


def test_the_recorded_areas_of_two_real_networks_come_out(test_data: Path) -> None:
    """The small network over 15 labels, and a DenseNet-121 over 14, on 66 images of NIH."""
    labels = ("--labels", test_data / "labels.csv", "--key", "file", "--patient", "nih_patient_id")
    small = ("mobilenetv3_int8_reference.csv", "--join", "input", "--score-prefix", "softmax_")
    dense = ("chexnet_densenet121_recorded_probs.csv", "--join", "file", "--score-prefix", "prob_")
    for (file, *more), classes, area in ((small, 15, 0.646), (dense, 14, 0.763)):
        results = test_data / "expected" / file
        found = evaluated("labels", *labels, "--results", results, *more)
        assert len(found["mean"]["classes"]) == classes
        assert found["mean"]["auroc"]["value"] == pytest.approx(area, abs=0.0005)
        assert found["counts"]["patients"] == 66

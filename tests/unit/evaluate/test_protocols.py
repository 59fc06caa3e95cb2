"""Protocols: each reads the files of its data set as they ship, by its own rules."""

from __future__ import annotations

import dataclasses
import gzip
from pathlib import Path

import numpy as np
import pytest

from hilum.errors import ConfigurationError
from hilum.evaluate.cases.truth import LabelChoices, TruthTable, age_band, read_truth
from hilum.evaluate.protocol import protocol as protocols
from hilum.evaluate.protocol.leaderboard import DATA_SETS, comparability, leaderboard
from hilum.evaluate.protocol.protocol import load, names, policies, policy
from hilum.models.manifest import terminology
from tests.support.evaluate.trees import CHEXPERT, FIVE, chexpert_valid, nih, write_csv

NAN = float("nan")


def read(name: str, *paths: Path, **choices: object) -> TruthTable:
    return read_truth(load(name), paths, dataclasses.replace(LabelChoices(), **choices))  # type: ignore[arg-type]


def column(found: TruthTable, name: str) -> list[float]:
    return [None if np.isnan(v) else v for v in found.truth[:, found.classes.index(name)]]  # type: ignore[misc]


@pytest.mark.parametrize("name", names())
def test_every_protocol_says_where_it_comes_from_and_maps_each_class(name: str) -> None:
    found = load(name)
    assert found.name == name
    assert found.source
    assert {*found.classes, *found.also} == set(found.findings)


def test_findings_of_protocols_are_concepts_where_there_is_one() -> None:
    """A word that the terminology has in another spelling would never meet a release."""
    concepts = terminology.load().concepts
    for name in set(names()) - {"vindr-cxr"}:
        assert set(load(name).findings.values()) <= set(concepts)
    vindr = set(load("vindr-cxr").findings.values())
    assert {"pleural_effusion", "lung_opacity", "fibrosis", "no_finding"} <= vindr & set(concepts)


def test_every_row_of_the_leaderboard_is_of_a_known_data_set_and_protocol() -> None:
    for row in leaderboard():
        for value in row.values:
            assert value.dataset in DATA_SETS
            assert value.protocol in ("", *names())
            assert value.protocol or value.differs


def test_a_deviation_makes_every_published_number_not_comparable() -> None:
    protocol = load("nih-chestxray14")
    assert all(not item.is_comparable for item in comparability(protocol, ["3 cases lack"]))
    assert not comparability(load("labels"), [])


def test_policies_differ_in_pleural_effusion_as_their_authors_code_does() -> None:
    assert policy("gloria").value("Pleural Effusion") == 1
    assert policy("libauc").value("Pleural Effusion") == 0
    assert np.isnan(policy("u-ignore").value("Edema"))
    assert all(item.source for item in policies().values())


def test_chexpert_groups_views_into_studies_and_studies_into_patients(tmp_path: Path) -> None:
    found = read("chexpert-valid", chexpert_valid(tmp_path))
    assert len(found.cases) == 48
    first, second, third = found.cases[0], found.cases[1], found.cases[2]
    assert first.image == "valid/patient64541/study1/view1_frontal.jpg"
    assert first.study == second.study == "valid/patient64541/study1"
    assert first.patient == third.patient
    assert (first.view, second.view, first.sex, first.age) == ("AP", "Lateral", "Female", "30")
    assert found.classes[:5] == FIVE


def test_the_test_set_of_chexpert_labels_studies(tmp_path: Path) -> None:
    path = write_csv(
        tmp_path / "groundtruth.csv",
        ["Study", *CHEXPERT],
        [["CheXpert-v1.0/test/patient64741/study1", *([0, 1] * 7)]],
    )
    (case,) = read("chexpert-test", path).cases
    assert (case.study, case.patient) == ("test/patient64741/study1", "test/patient64741")


def uncertain_chexpert(folder: Path) -> Path:
    labels = {"Atelectasis": "-1.0", "Edema": "-1", "Pleural Effusion": "-1.0", "Consolidation": ""}
    row = ["CheXpert-v1.0/valid/patient1/study1/view1_frontal.jpg", "Male", 50, "Frontal", "PA"]
    return write_csv(
        folder / "valid.csv",
        ["Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", *CHEXPERT],
        [[*row, *(labels.get(name, "1.0") for name in CHEXPERT)]],
    )


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("u-ones", [1, 1, 1]), ("u-zeros", [0, 0, 0]), ("u-ignore", [None] * 3), ("gloria", [1, 1, 1]), ("libauc", [1, 1, 0])],
)  # fmt: skip
def test_uncertain_labels_follow_the_policy(
    tmp_path: Path, rule: str, expected: list[float]
) -> None:
    found = read("chexpert-valid", uncertain_chexpert(tmp_path), uncertain=rule)
    assert [
        column(found, name)[0] for name in ("Atelectasis", "Edema", "Pleural Effusion")
    ] == expected
    assert column(found, "Consolidation") == [0]


def test_empty_labels_are_ignored_where_a_person_says_so(tmp_path: Path) -> None:
    found = read("chexpert-valid", uncertain_chexpert(tmp_path), blank="ignored")
    assert column(found, "Consolidation") == [None]


def nih_files(folder: Path) -> tuple[Path, Path]:
    entries = nih(
        folder,
        [
            ("00000001_000.png", "Cardiomegaly|Effusion", 1, "058Y", "M", "PA"),
            ("00000001_001.png", "No Finding", 1, "058Y", "M", "AP"),
            ("00000002_000.png", "Pleural_Thickening", 2, "81", "F", "PA"),
        ],
    )
    listed = folder / "test_list.txt"
    listed.write_text("00000001_000.png\n00000002_000.png\n00009999_000.png\n")
    return entries, listed


def test_nih_splits_findings_and_takes_the_official_list(tmp_path: Path) -> None:
    found = read("nih-chestxray14", *nih_files(tmp_path))
    assert [case.image for case in found.cases] == ["00000001_000.png", "00000002_000.png"]
    assert column(found, "Effusion") == [1, 0]
    assert column(found, "Pleural_Thickening") == [0, 1]
    assert found.doubts.left_out["names of the split list without labels"] == 1
    assert found.doubts.left_out["rows of other splits"] == 1


def test_nih_without_its_list_asks_for_it(tmp_path: Path) -> None:
    entries, _ = nih_files(tmp_path)
    with pytest.raises(
        ConfigurationError, match=r"test_list.txt \(a name a line\), or --split all"
    ):
        read("nih-chestxray14", entries)
    assert len(read("nih-chestxray14", entries, split="all").cases) == 3


def test_an_unknown_finding_of_nih_is_counted_by_name(tmp_path: Path) -> None:
    entries = nih(tmp_path, [("1.png", "Effusion|Covid", 1, "58", "M", "PA")])
    found = read("nih-chestxray14", entries, split="all")
    assert found.doubts.cells == {"Finding Labels: Covid": 1}


def test_mimic_joins_labels_by_study_and_views_by_image(tmp_path: Path) -> None:
    split = write_csv(
        tmp_path / "mimic-cxr-2.0.0-split.csv.gz",
        ["dicom_id", "study_id", "subject_id", "split"],
        [["a-1", 50, 10, "test"], ["a-2", 50, 10, "test"], ["b-1", 51, 11, "train"], ["c-1", 52, 12, "test"]],
    )  # fmt: skip
    labels = write_csv(
        tmp_path / "mimic-cxr-2.0.0-chexpert.csv.gz",
        ["subject_id", "study_id", *sorted(CHEXPERT)],
        [[10, 50, *["1.0"] * 14], [11, 51, *[""] * 14]],
    )
    views = write_csv(
        tmp_path / "mimic-cxr-2.0.0-metadata.csv.gz",
        ["dicom_id", "subject_id", "study_id", "ViewPosition"],
        [["a-1", 10, 50, "PA"], ["a-2", 10, 50, "LATERAL"]],
    )
    found = read("mimic-cxr-jpg", split, labels, views)
    assert [(case.image, case.study, case.view) for case in found.cases] == [("a-1", "50", "PA"), ("a-2", "50", "LATERAL")]  # fmt: skip
    assert found.doubts.left_out["images without a row in mimic-cxr-2.0.0-chexpert.csv.gz"] == 1
    frontal = read("mimic-cxr-jpg", split, labels, views, views=("frontal",))
    assert [case.image for case in frontal.cases] == ["a-1"]


def vindr(folder: Path) -> Path:
    classes = [*load("vindr-cxr").classes, *load("vindr-cxr").also]
    votes = {"R1": 1, "R2": 1, "R3": 0}
    rows = [["x", reader, *([vote] * len(classes))] for reader, vote in votes.items()]
    return write_csv(folder / "image_labels_train.csv", ["image_id", "rad_id", *classes], rows)


@pytest.mark.parametrize(("rule", "expected"), [("majority", 1), ("any", 1), ("all", 0)])
def test_readers_of_vindr_become_one_label(tmp_path: Path, rule: str, expected: int) -> None:
    found = read("vindr-cxr", vindr(tmp_path), rows=rule)
    assert len(found.cases) == 1
    assert column(found, "Cardiomegaly") == [expected]


def test_boxes_of_rsna_become_one_label_an_image(tmp_path: Path) -> None:
    path = write_csv(
        tmp_path / "stage_2_train_labels.csv",
        ["patientId", "x", "y", "width", "height", "Target"],
        [["a", 1, 2, 3, 4, 1], ["a", 5, 6, 7, 8, 1], ["b", "", "", "", "", 0]],
    )
    found = read("rsna", path)
    assert [case.image for case in found.cases] == ["a", "b"]
    assert column(found, "Target") == [1, 0]


@pytest.mark.parametrize(("age", "band"), [("058Y", "40 to 59"), ("011M", "0 to 17"), ("80", "80 and more"), ("45 ", "40 to 59"), ("²", ""), ("", ""), ("old", "")])  # fmt: skip
def test_ages_fall_into_bands(age: str, band: str) -> None:
    assert age_band(age) == band


def own(folder: Path, text: str) -> Path:
    path = folder / "mine.csv"
    path.write_text(text)
    return path


def test_columns_of_an_own_list_that_hold_no_labels_are_named(tmp_path: Path) -> None:
    found = read(
        "labels", own(tmp_path, "path,patient,note,Effusion\n1.png,p,hello,1\n2.png,q,,0\n")
    )
    assert found.classes == ("Effusion",)
    assert found.doubts.columns == ["note"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty"),
        ("file,Effusion\n1.png,1\n", "has no such file. It has file, Effusion. Wanted: your CSV"),
        ("path,Effusion,Effusion\n1.png,1,1\n", "two columns have one name"),
        ("path,Effusion\n1.png,1,1\n", "row 2 has more cells than the header"),
        ('path,Effusion\n"1.png,1\n', "a quote is not closed"),
        ("path,note\n1.png,hello\n", "no column has labels alone"),
        ("path,Effusion\n1.png,1\n1.png,0\n", "1 rows name a case again, such as '1.png'"),
    ],
)
def test_an_own_list_that_cannot_be_read_is_explained(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read("labels", own(tmp_path, text))
    assert said in "\n".join(raised.value.problems)


def test_a_list_that_is_no_utf8_or_no_gzip_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_bytes("path,Effusion\n1é.png,1\n".encode("latin-1"))
    with pytest.raises(ConfigurationError, match="no UTF-8"):
        read("labels", path)
    packed = tmp_path / "mine.csv.gz"
    packed.write_bytes(b"no gzip")
    with pytest.raises(ConfigurationError, match="no whole gzip"):
        read("labels", packed)


def test_a_damaged_gzip_file_is_explained(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"path,Effusion\n" + b"1.png,1\n" * 500))
    packed[20:26] = bytes(6)
    path = tmp_path / "mine.csv.gz"
    path.write_bytes(packed)
    with pytest.raises(ConfigurationError, match="no whole gzip"):
        read("labels", path)


def test_a_column_without_a_name_is_no_image_sex_or_age(tmp_path: Path) -> None:
    """Tables that pandas wrote begin with such a column, of row numbers."""
    rows = [
        [number, f"CheXpert-v1.0/test/patient{number}/study1", *[0] * len(CHEXPERT)]
        for number in (20, 30)
    ]
    path = write_csv(tmp_path / "groundtruth.csv", ["", "Study", *CHEXPERT], rows)
    case = read("chexpert-test", path).cases[0]
    assert (case.image, case.sex, case.age) == ("", "", "")


def test_two_rows_of_labels_for_one_study_are_refused(tmp_path: Path) -> None:
    images = write_csv(
        tmp_path / "split.csv.gz",
        ["dicom_id", "study_id", "subject_id", "split"],
        [["a", 1, 1, "test"]],
    )
    labels = write_csv(
        tmp_path / "chexpert.csv.gz",
        ["subject_id", "study_id", *CHEXPERT],
        [[1, 1, *[0] * len(CHEXPERT)], [1, 1, *[1] * len(CHEXPERT)]],
    )
    with pytest.raises(ConfigurationError, match="1 rows have the study_id of another row"):
        read("mimic-cxr-jpg", images, labels)


def test_a_file_of_another_data_set_is_refused_with_the_columns_that_are_wanted(
    tmp_path: Path,
) -> None:
    entries, _ = nih_files(tmp_path)
    with pytest.raises(ConfigurationError) as raised:
        read("chexpert-valid", entries)
    assert (
        "Wanted: valid.csv (columns Path, Sex, Age, Frontal/Lateral, AP/PA)"
        in raised.value.problems[0]
    )


def test_a_file_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    entries, listed = nih_files(tmp_path)
    with pytest.raises(ConfigurationError, match="is already the file of split"):
        read("nih-chestxray14", entries, listed, listed)


def test_a_class_of_the_protocol_without_a_column_is_refused(tmp_path: Path) -> None:
    path = write_csv(
        tmp_path / "valid.csv",
        ["Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", "Edema"],
        [["a/valid/p/s/v.jpg", "", "", "Frontal", "PA", 1]],
    )
    with pytest.raises(ConfigurationError, match="the class 'Atelectasis' of chexpert-valid"):
        read("chexpert-valid", path)


def test_cells_that_are_no_labels_are_counted_by_class(tmp_path: Path) -> None:
    path = chexpert_valid(tmp_path, studies=2)
    path.write_text(path.read_text().replace(",AP,0.0,", ",AP,maybe,"))
    assert read("chexpert-valid", path).doubts.cells == {"No Finding": 2}


def test_an_unknown_protocol_and_a_faulty_one_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no protocol 'chexpet'; known: chexpert-test"):
        load("chexpet")
    path = tmp_path / "mine.toml"
    path.write_text('format = 1\nname = "x"\ncolour = "blue"\n')
    with pytest.raises(ConfigurationError) as raised:
        load(str(path))
    assert any("colour" in problem for problem in raised.value.problems)
    theirs = Path(str(protocols.__file__)).with_name("protocols") / "nih-chestxray14.toml"
    path.write_text(theirs.read_text().replace('listed_in = "Finding Labels"', 'listed_in = "F"'))
    with pytest.raises(ConfigurationError, match="listed_in: 'F' is not among the columns of"):
        load(str(path))
    path.write_text("format = ")
    with pytest.raises(ConfigurationError, match="no TOML"):
        load(str(path))
    assert protocols.FORMAT == 1

"""`hilum models check` asks about what a manifest leaves open although it holds, and is quiet about releases that are written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hilum.cli import app
from hilum.errors import ConfigurationError
from hilum.models.build import build
from hilum.models.facts import FactVerdict, Places
from hilum.models.formats.identity import file_sha256
from hilum.models.inspection.check import check
from hilum.models.manifest import terminology
from hilum.models.manifest.similar_labels import concept_near, distance
from hilum.models.scaffold import draft as drafting
from tests.support.models.releases import MANIFESTS, tiny_manifest, tiny_network, write_release


class Author:
    """The tiny release, as somebody wrote it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.network = tiny_network(folder / "tiny.onnx")
        self.text = tiny_manifest(file_sha256(self.network))

    def write(self, old: str, new: str) -> Author:
        assert old in self.text
        self.text = self.text.replace(old, new)
        return self

    def asked(self) -> list[str]:
        write_release(self.folder / "manifests", self.text, self.network)
        lines = list(
            check(
                ["tiny@1"], Places(self.folder / "manifests", self.folder / "built"), is_run=False
            )
        )
        assert not [line.text for line in lines if line.verdict is FactVerdict.PROBLEM]
        return [line.text for line in lines if line.verdict is FactVerdict.QUESTION]

    def build(self) -> None:
        write_release(self.folder / "manifests", self.text, self.network)
        build.build(
            ["tiny@1"], self.folder / "manifests", self.folder / "built", progress=lambda _: None
        )


@pytest.fixture
def author(tmp_path) -> Author:
    return Author(tmp_path)


def labelled(author: Author, *labels: str) -> Author:
    """The three outputs, with these labels instead."""
    written = ",\n".join(labels)
    return author.write(
        re.search(r"labels = \[.*?\n\]", author.text, re.DOTALL).group(),
        f"labels = [\n{written}\n]",
    )


def private(code: str, text: str) -> str:
    return f'{{ private = "{code}", text = "{text}", operating_point = "none" }}'


EDEMA, MASS = (
    '{ concept = "edema", operating_point = "none" }',
    '{ concept = "mass", operating_point = "none" }',
)


def test_a_release_that_is_written_is_asked_nothing(author):
    assert author.asked() == []


@pytest.mark.parametrize("release", [path.name for path in MANIFESTS.iterdir() if path.is_dir()])
def test_a_bundled_release_is_asked_nothing(release, tmp_path):
    lines = list(check([release], Places(MANIFESTS, tmp_path), is_run=False))
    assert not [line.text for line in lines if line.verdict is FactVerdict.QUESTION]


def test_all_concepts_beside_one_another_are_asked_nothing():
    concepts = terminology.load().concepts
    assert {key: concept_near(concept.text) for key, concept in concepts.items()} == {
        key: key for key in concepts
    }


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max_batch = 4", "max_batch = 4 # EDIT: a guess"),
        ("max_batch = 4", "max_batch = 4 #EDIT a guess"),
        ("[model]", "# EDIT: is it this one?\n[model]"),
        ('"Apache-2.0"', '"of # the group" # EDIT: see there'),
        ("max_batch = 4", "max_batch = 4 # it's 4 # EDIT: or \"softmax\", it's a guess"),
    ],
)
def test_a_guess_that_is_still_marked_is_a_question_with_its_line(author, old, new):
    (question,) = author.write(old, new).asked()
    number = next(
        number
        for number, line in enumerate(author.text.splitlines(), start=1)
        if re.search("# ?EDIT", line)
    )
    assert question.startswith(f"manifest: line {number} is a guess still marked 'EDIT")
    assert question.endswith("correct it if it is wrong, then remove the mark")


@pytest.mark.parametrize(
    "text",
    [
        '"see #EDIT in their list"',
        "'as in # EDIT'",
        '"""\nMIT\n# EDIT: within a text\n"""',
        '"EDITH Cavell Hospital"',
    ],
)
def test_what_only_looks_like_a_mark_is_none(author, text):
    assert author.write('"Apache-2.0"', text).asked() == []


@pytest.mark.parametrize(
    "word",
    [
        "unknown",
        "Unknown",
        "UNKNOWN.",
        "n/a",
        "N/A",
        "none",
        "TBD",
        "tba",
        "todo",
        "TODO: ask",
        "fixme",
        "xxx",
        "?",
        "???",
        "-",
        "...",
        "x",
        "placeholder",
        "changeme",
        "Change me",
        "edit",
        "edit: later",
        "<manufacturer>",
        "[name]",
        "{vendor}",
        "not specified",
        "to be defined",
        "to be confirmed",
        "Unknown manufacturer",
        "unknown vendor",
        "manufacturer unknown",
        "your hospital",
        "the vendor",
        "not stated",
        "not yet decided",
        "none known",
        "n.a.",
        "TBC",
        "please edit",
        "nobody",
        "keine Angabe",
        "okänd",
        "未知",
    ],
)
@pytest.mark.parametrize("field", ["manufacturer", "licence"])
def test_a_text_that_says_nothing_is_a_question(author, field, word):
    said = re.search(rf'^{field} = "(.*)"$', author.text, re.MULTILINE).group(1)
    (question,) = author.write(f'{field} = "{said}"', f'{field} = "{word}"').asked()
    assert question.startswith(f"manifest: {field} is {word!r}, which says nothing: write ")


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("manufacturer", "Unknown Pleasures Imaging Ltd"),
        ("manufacturer", "NA Radiology"),
        ("manufacturer", "GE"),
        ("manufacturer", "The Vendor Neutral Archive Company"),
        ("manufacturer", "ABC Imaging"),
        ("manufacturer", "Unknown Source Hospital Trust"),
        ("licence", "not stated in its repository"),
        ("licence", "none is stated in its repository"),
        ("licence", "MIT"),
        ("source", "https://github.com/example/models, commit 1f"),
        ("intended_use", "Research; its area under the curve is unknown."),
    ],
)
def test_a_text_that_says_something_is_none(author, field, text):
    said = re.search(rf'^{field} = "(.*)"$', author.text, re.MULTILINE).group(1)
    assert author.write(f'{field} = "{said}"', f'{field} = "{text}"').asked() == []


def test_an_address_that_belongs_to_nobody_is_a_question(author):
    said = re.search(r'^source = "(.*)"$', author.text, re.MULTILINE).group(1)
    (question,) = author.write(
        f'source = "{said}"', 'source = "https://example.com/model.onnx"'
    ).asked()
    assert "belongs to nobody" in question


@pytest.mark.parametrize("table", ["operating_points", "calibration"])
def test_where_numbers_are_from_is_a_text_too(author, table):
    if table == "operating_points":
        author.write(re.search(r'measured_on = ".*"', author.text).group(), 'measured_on = "TODO"')
    else:
        author.text += (
            '\n[calibration]\nmethod = "temperature"\ntemperature = 1.5\nmeasured_on = "TODO"\n'
        )
    (question,) = author.asked()
    assert question.startswith(f"manifest: {table}.measured_on is 'TODO', which says nothing")


@pytest.mark.parametrize(
    ("code", "text", "meant"),
    [
        ("ATELECTSIS", "Atelectsis", "atelectasis"),
        ("PNEUMOTORAX", "Pneumotorax", "pneumothorax"),
        ("CARDIOMEGLAY", "Cardiomeglay", "cardiomegaly"),
        ("EFUSION", "Pleural Efusion", "pleural_effusion"),
        ("EFFUSIONS", "Effusions", "pleural_effusion"),
        ("NODULES", "Nodules", "nodule"),
        ("MASSES", "Masses", "mass"),
        ("OEDEMA", "Oedema", "edema"),
        ("PTX", "PNEUMOTHORAX", "pneumothorax"),
        ("PE", "pleural_effusion", "pleural_effusion"),
        ("PT", "Pleural-Thickening", "pleural_thickening"),
        ("LUNG_OPACITIES", "Lung opacites", "lung_opacity"),
        ("PNEUMO_THORAX", "collapsed lung", "pneumothorax"),
    ],
)
def test_a_label_that_is_almost_a_known_one_is_a_question_that_names_it(author, code, text, meant):
    (question,) = labelled(
        author,
        EDEMA if meant != "edema" else MASS,
        private(code, text),
        '{ concept = "fracture", operating_point = "none" }',
    ).asked()
    known = terminology.load().concepts[meant]
    assert question.startswith(f"manifest: labels.1: {text!r}")
    assert f"{known.code.scheme} {known.code.value}" in question
    assert f'write concept = "{meant}"' in question


@pytest.mark.parametrize(
    "text",
    [
        "Aortic enlargement",
        "Calcification",
        "ILD",
        "Lung cavity",
        "Rib fracture",
        "Mask",
        "Pneumonitis",
        "Mediastinal shift",
        "Tuberculosis",
        "Cyst",
        "Left pleural effusion",
        "Bronchiectasis",
        "Bones",
        "Loss",
        "Lung tumor",
        "COPD",
        "Pericardial effusion",
        "Pneumoperitoneum",
    ],
)
def test_another_finding_is_no_misspelt_one(author, text):
    code = re.sub(r"[^A-Z]", "_", text.upper())[:16]
    assert labelled(author, EDEMA, MASS, private(code, text)).asked() == []


def test_a_text_that_means_another_concept_is_a_question(author):
    wrong = '{ concept = "atelectasis", text = "Pneumothorax", operating_point = "none" }'
    (question,) = labelled(author, EDEMA, MASS, wrong).asked()
    assert (
        question
        == "manifest: labels.2: its concept is 'atelectasis', its text 'Pneumothorax' means"
        " 'pneumothorax': which one is it?"
    )


@pytest.mark.parametrize("text", ["Atelektase", "Atelectasis", "Belüftungsstörung", "Atelectases"])
def test_a_concept_may_have_words_of_its_own(author, text):
    assert (
        labelled(
            author,
            EDEMA,
            MASS,
            f'{{ concept = "atelectasis", text = "{text}", operating_point = "none" }}',
        ).asked()
        == []
    )


@pytest.mark.parametrize(
    ("one", "other"), [("Lung cyst", "lung_cyst"), ("Lung cyst", "Lung cysts"), ("Stent", "STENT")]
)
def test_two_labels_that_read_alike_are_a_question(author, one, other):
    (question,) = labelled(author, EDEMA, private("A_ONE", one), private("B_TWO", other)).asked()
    assert question.startswith(f"manifest: labels.1 is {one!r} and labels.2 {other!r}")


@pytest.mark.parametrize("text", ["LABEL_0", "class 3", "output_12", "Finding-1", "unnamed 4"])
def test_a_number_instead_of_a_name_is_a_question(author, text):
    (question,) = labelled(author, EDEMA, MASS, private("A_CODE", text)).asked()
    assert "write what this output means, or is_masked = true" in question


def test_a_masked_output_is_asked_nothing(author):
    assert (
        labelled(
            author, EDEMA, MASS, '{ private = "ATELECTSIS", text = "Atelectsis", is_masked = true }'
        ).asked()
        == []
    )


def test_a_question_neither_stops_a_build_nor_ends_with_success(author, monkeypatch):
    labelled(author, EDEMA, MASS, private("ATELECTSIS", "Atelectsis")).build()
    monkeypatch.chdir(author.folder)
    Path("hilum.toml").write_text(
        f'[site]\nstate_dir = "{author.folder}/state"\n[models]\nmanifests = "manifests"\n'
    )
    done = CliRunner().invoke(app, ["models", "check", "tiny@1"])
    assert done.exit_code == 1
    assert "\nQUESTION tiny@1 manifest: labels.2: 'Atelectsis'" in done.stdout
    assert done.stdout.endswith("\n0 problems, 1 question\n")


def test_the_guesses_of_a_draft_are_said_with_its_problems(tmp_path):
    draft = drafting.draft(
        tiny_network(tmp_path / "tiny.onnx"), None, "1", None, tmp_path / "manifests"
    )
    lines = list(
        check([draft.release_id], Places(tmp_path / "manifests", tmp_path / "built"), is_run=False)
    )
    said = [line for line in lines if line.verdict in {FactVerdict.PROBLEM, FactVerdict.QUESTION}]
    assert len(said) == draft.edits
    assert {line.verdict for line in said} == {FactVerdict.PROBLEM, FactVerdict.QUESTION}


@pytest.mark.parametrize(
    ("one", "other", "steps"),
    [
        ("mass", "mass", 0),
        ("", "abc", 3),
        ("edmea", "edema", 1),
        ("atelectsis", "atelectasis", 1),
        ("kitten", "sitting", 3),
    ],
)
def test_distance_counts_letters(one, other, steps):
    assert distance(one, other) == distance(other, one) == steps


def test_a_tolerance_that_is_too_large_says_which_one_would_do(author):
    author.write('name = "onnxruntime"', 'name = "onnxruntime"\ntolerance = 5.0')
    with pytest.raises(ConfigurationError) as refused:
        author.build()
    (line,) = re.findall(
        r"write `(tolerance = [\d.e-]+)` under \[engine\] in manifest.toml, then build again",
        str(refused.value),
    )
    author.write("tolerance = 5.0", line).build()

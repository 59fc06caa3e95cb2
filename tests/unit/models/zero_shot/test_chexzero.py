"""CheXzero, from a checkpoint and prompts to a release with the authors' scores; and all that is refused."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from hilum import cli
from hilum.errors import ConfigurationError
from hilum.models.facts import FactVerdict, Places
from hilum.models.formats import identity, safetensors
from hilum.models.importing import release_folder
from hilum.models.inspection import check, show
from hilum.models.manifest import manifest
from hilum.models.manifest.manifest import Manifest
from hilum.models.quantisation.quantise import QuantisationRequest, quantise
from hilum.models.zero_shot import new_version, prompts_file
from tests.support.models.clip import ClipSizes, checkpoint
from tests.support.models.zero_shot import SmallChexzero, small_chexzero

LONG = "no pneumothorax " * 30


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> SmallChexzero:
    return small_chexzero(tmp_path_factory.mktemp("theirs"))


@pytest.fixture(scope="module")
def release(theirs: SmallChexzero, tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """Imported once; tests do not change its folder."""
    return theirs.imported(tmp_path_factory.mktemp("releases"))


def _refused(theirs: SmallChexzero, out: Path, **changes: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        release_folder.import_release("chexzero", theirs.request(**changes), "cx", "1", out)
    assert not list(out.glob("**/*"))
    return "\n".join(caught.value.problems)


def _facts(read: Manifest) -> list[tuple[FactVerdict, str]]:
    folder = read.path.parent.parent
    places = Places(folder, folder / "built", None)
    return [
        (fact.verdict, fact.text)
        for fact in check.check([read.release.id], places, is_run=False)
        if fact.text.startswith(("prompts", "manifest: prompts"))
    ]


def _changed(read: Manifest, out: Path, old: str, new: str) -> Path:
    """A copy of the release in which the manifest was edited."""
    folder = out / read.release.id
    folder.mkdir(parents=True)
    for path in read.path.parent.iterdir():
        (folder / path.name).hardlink_to(path)
    assert old in read.text
    (folder / manifest.FILE_NAME).unlink()
    (folder / manifest.FILE_NAME).write_text(read.text.replace(old, new))
    return folder / manifest.FILE_NAME


def test_the_release_says_what_it_was_asked_for(release: Manifest) -> None:
    assert (release.release.task, release.release.architecture) == ("zero_shot", "clip_vit")
    keys = [label.key for label in release.release.labels]
    assert keys == ["pneumothorax", "edema", "rib_plate"]
    assert release.table.prompts is not None
    edema = release.table.prompts.pairs[1]
    assert [prompt.text for prompt in edema.positive] == ["edema", "a lot of Edema"]
    assert [prompt.text for prompt in edema.negative] == ["no Edema"]
    assert release.release.input_spec["recipe"] == "chexzero_224"
    assert [point.operating_point for point in release.release.labels] == [None, None, None]


def test_without_a_file_of_prompts_the_labels_of_chexpert_are_asked_for() -> None:
    found = prompts_file.published()
    assert len(found) == 14
    assert [each.finding for each in found] == sorted(each.finding for each in found)
    assert (found[0].positive, found[0].negative) == (("Atelectasis",), ("no Atelectasis",))


def test_other_prompts_are_another_version_of_the_same_towers(
    theirs: SmallChexzero, release: Manifest, tmp_path: Path
) -> None:
    path = _changed(release, tmp_path, 'text = "Rib plate"', 'text = "Plate on a rib"')
    with path.open("a") as manifest_file:
        manifest_file.write('[operating_points]\nmeasured_on = "a set"\ncriterion = "a rule"\n')
    (tmp_path / "other.toml").write_text(
        'negative = ["{finding} absent"]\nfindings = ["Rib plate", "Pleural Effusion", "Sternal wires"]'
    )
    asked = new_version.PromptsRequest(tmp_path / "other.toml")
    made = new_version.with_prompts(manifest.read(path), asked, tmp_path)
    read = manifest.read(made.folder / manifest.FILE_NAME)
    assert (read.release.id, made.findings, made.prompts) == ("cx@2", 3, 6)
    assert made.left_out == ("operating_points",)
    assert [label.text for label in read.release.labels[::2]] == ["Plate on a rib", "Sternal wires"]
    assert read.release.labels[1].key == "pleural_effusion"
    weights = safetensors.read(made.folder / "weights.safetensors")
    assert read.table.prompts is not None
    expected = theirs.embedded(read.table.prompts.pairs[2].negative)
    torch.testing.assert_close(weights["negative_prompts"][2], expected, atol=1e-5, rtol=0)
    kept = [name for name in weights if name.startswith("visual.")]
    assert all(torch.equal(weights[name], theirs.tensors[name]) for name in kept)
    assert read.text.count("# EDIT, as in cx@1: ") == release.text.count("# EDIT")


def test_a_check_recomputes_the_embeddings_from_the_words(release: Manifest) -> None:
    assert [verdict for verdict, _ in _facts(release)] == [FactVerdict.OK]


def test_words_that_were_edited_by_hand_are_noticed(release: Manifest, tmp_path: Path) -> None:
    path = _changed(release, tmp_path, 'text = "metal"', 'text = "steel"')
    with pytest.raises(ConfigurationError, match="the pairs are not those that were embedded"):
        manifest.read(path)


def test_labels_in_another_order_than_the_prompts_are_refused(
    release: Manifest, tmp_path: Path
) -> None:
    path = _changed(release, tmp_path, 'concept = "pneumothorax"', 'concept = "atelectasis"')
    with pytest.raises(ConfigurationError, match="ask for 'Pneumothorax', but labels"):
        manifest.read(path)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('task = "zero_shot"', 'task = "classification"', 'a release with prompts is "zero_shot"'),
        ('activation = "sigmoid"', 'activation = "none"', "pair_softmax is the sigmoid"),
        ('architecture = "clip_vit"', 'architecture = "resnet50"', "resnet50 takes none"),
    ],
)
def test_a_manifest_that_contradicts_its_prompts_is_refused(
    release: Manifest, tmp_path: Path, old: str, new: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        manifest.read(_changed(release, tmp_path, old, new))


def test_a_zero_shot_release_without_prompts_is_refused(release: Manifest, tmp_path: Path) -> None:
    table = release.text[release.text.index("[prompts]") :]
    with pytest.raises(ConfigurationError, match="prompts: missing"):
        manifest.read(_changed(release, tmp_path, table, ""))


def _with_weights(read: Manifest, out: Path, weights: dict[str, Tensor]) -> Path:
    """A copy of the release with other weights, which its manifest names."""
    safetensors.write(out / "other.safetensors", weights)
    digest = identity.file_sha256(out / "other.safetensors")
    path = _changed(read, out, str(read.table.weights.sha256), digest)
    (path.parent / "weights.safetensors").unlink()
    (out / "other.safetensors").rename(path.parent / "weights.safetensors")
    return path


def test_embeddings_of_other_words_are_a_problem(release: Manifest, tmp_path: Path) -> None:
    weights = safetensors.read(release.path.parent / "weights.safetensors")
    weights["positive_prompts"] = weights["negative_prompts"]
    path = _with_weights(release, tmp_path, weights)
    ((verdict, said),) = _facts(manifest.read(path))
    assert verdict is FactVerdict.PROBLEM, said


def test_the_text_tower_may_be_absent_where_the_release_is_served(
    release: Manifest, tmp_path: Path
) -> None:
    path = _changed(release, tmp_path, "[study]", "[study]")
    (path.parent / "text.safetensors").unlink()
    ((verdict, said),) = _facts(manifest.read(path))
    assert (verdict, "only `hilum models prompts` reads" in said) == (FactVerdict.NOTE, True)


def test_show_prints_the_prompts(release: Manifest, tmp_path: Path) -> None:
    lines = "\n".join(show.show("cx@1", release.path.parent.parent, tmp_path))
    assert "no metal | bone" in lines


# Bad input.


def _without(part: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {name: each for name, each in tensors.items() if part not in name}


def _with(name: str, tensor: Tensor) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda tensors: {**tensors, name: tensor}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_without("visual."), "no clip_vit: it lacks visual.conv1.weight"),
        (_without("text_projection"), "no text tower of CLIP: it lacks text_projection"),
        (_without("visual.transformer.resblocks.1.ln_2"), " lacks visual.transformer.resblocks.1.ln_2"),
        (_without("ln_final"), "best.pt lacks ln_final.bias"),
        (_with("visual.attnpool.k_proj.weight", torch.zeros(2, 2)), "has visual.attnpool.k_proj.weight, which"),
        (_with("prompt_learner.ctx", torch.zeros(2)), "has prompt_learner.ctx, which"),
        (_with("ln_final.weight", torch.ones(63)), "ln_final.weight is (63,), the architecture needs (64,)"),
        (_with("visual.ln_post.weight", torch.full((128,), torch.nan)), "holds NaN"),
        (_with("text_projection", torch.zeros(64, 48)), "they are of two networks"),
    ],
)  # fmt: skip
def test_half_a_checkpoint_and_one_of_another_family_name_their_tensors(
    theirs: SmallChexzero,
    tmp_path: Path,
    change: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    problem: str,
) -> None:
    torch.save(change(theirs.tensors), tmp_path / "best.pt")
    assert problem in _refused(theirs, tmp_path / "out", source=tmp_path / "best.pt")


def test_a_densenet_is_no_chexzero(theirs: SmallChexzero, tmp_path: Path) -> None:
    tensors = {"features.conv0.weight": torch.zeros(64, 3, 7, 7)}
    torch.save(tensors, tmp_path / "best.pt")
    said = _refused(theirs, tmp_path / "out", source=tmp_path / "best.pt")
    assert "it lacks visual.conv1.weight; its tensors are features.conv0.weight" in said


def test_half_precision_and_data_parallel_are_read(theirs: SmallChexzero, tmp_path: Path) -> None:
    halved = {f"module.{name}": tensor.half() for name, tensor in theirs.tensors.items()}
    torch.save({"state_dict": halved}, tmp_path / "best.pt")
    made = release_folder.import_release(
        "chexzero", theirs.request(source=tmp_path / "best.pt"), "cx", "1", tmp_path / "out"
    )
    weights = safetensors.read(made.folder / "weights.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}


@pytest.mark.parametrize(
    ("sizes", "changes", "expected"),
    [
        (ClipSizes(side=320, patch=80), {}, "chexzero_320"),
        (ClipSizes(side=256, patch=64), {}, "its positions are for 256 pixels, CheXzero's for 224"),
        (ClipSizes(side=320, patch=80), {"recipe": "chexzero_224"}, "trained at another size"),
    ],
)
def test_the_recipe_follows_the_size_of_the_tower(
    theirs: SmallChexzero,
    tmp_path: Path,
    sizes: ClipSizes,
    changes: dict[str, object],
    expected: str,
) -> None:
    torch.save(checkpoint(sizes), tmp_path / "best.pt")
    request = {"source": tmp_path / "best.pt", **changes}
    if expected.startswith("chexzero"):
        made = release_folder.import_release(
            "chexzero", theirs.request(**request), "cx", "1", tmp_path / "out"
        )
        read = manifest.read(made.folder / manifest.FILE_NAME)
        assert read.release.input_spec["recipe"] == expected
    else:
        assert expected in _refused(theirs, tmp_path / "out", **request)


@pytest.mark.parametrize(
    ("prompts", "problem"),
    [
        (f'findings = [{{ label = "Edema", positive = ["{LONG}"] }}]', "tokens, the network reads 77 at most"),
        ('findings = ["œdema"]', "prompt 'œdema': write it in printable ASCII"),
        ('findings = ["Edema", "edema"]', "findings: 'edema' stands twice"),
        ('positive = ["a radiograph"]\nfindings = ["Edema"]', "'a radiograph' has no {finding}"),
        ("findings = []", "findings"),
        ('finding = ["Edema"]', "finding"),
        ('findings = [{ label = "Edema", negative = [] }]', "negative"),
        ("findings = [", "not valid TOML"),
    ],
)  # fmt: skip
def test_prompts_that_cannot_be_used_are_named(
    theirs: SmallChexzero, tmp_path: Path, prompts: str, problem: str
) -> None:
    (tmp_path / "prompts.toml").write_text(prompts)
    assert problem in _refused(theirs, tmp_path / "out", prompts=tmp_path / "prompts.toml")


def test_another_tokenizer_is_refused(
    theirs: SmallChexzero, release: Manifest, tmp_path: Path
) -> None:
    other = tmp_path / "other.txt.gz"
    other.write_bytes(gzip.compress(gzip.decompress(theirs.vocabulary.read_bytes()) + b"\nx y"))
    said = _refused(theirs, tmp_path / "out", tokenizer=other)
    assert f"has sha256 {identity.file_sha256(other)}, not " in said
    assert "not 924691ac288e" in _refused(theirs, tmp_path / "out", tokenizer_sha256=None)
    asked = new_version.PromptsRequest(theirs.prompts, tokenizer=other)
    with pytest.raises(ConfigurationError, match="another tokenizer gives other tokens"):
        new_version.with_prompts(release, asked, tmp_path)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"tokenizer": None}, "give --tokenizer, the vocabulary of CLIP's tokenizer"),
        ({"labels": "chexpert_14"}, "--labels: the prompts name the findings"),
        ({"activation": "softmax"}, "--activation: CheXzero's score is the sigmoid"),
        ({"prompts": Path("/nowhere.toml")}, "/nowhere.toml: No such file"),
        ({"tokenizer": Path("/nowhere.gz")}, "/nowhere.gz: no such file"),
    ],
)
def test_a_choice_that_a_zero_shot_release_has_not_is_refused(
    theirs: SmallChexzero, tmp_path: Path, changes: dict[str, object], problem: str
) -> None:
    assert problem in _refused(theirs, tmp_path / "out", **changes)


def test_only_a_zero_shot_release_takes_prompts(theirs: SmallChexzero, tmp_path: Path) -> None:
    read = manifest.read(Path("model_repository/densenet121_untrained@1/manifest.toml").resolve())
    with pytest.raises(ConfigurationError, match="its task is classification"):
        new_version.with_prompts(read, new_version.PromptsRequest(theirs.prompts), tmp_path)


def test_a_zero_shot_release_is_not_quantised(release: Manifest, tmp_path: Path) -> None:
    order = QuantisationRequest("2", tmp_path, None, None)
    with pytest.raises(ConfigurationError, match="a zero-shot release: its logits are too near"):
        quantise(release, order, tmp_path, tmp_path)


def test_a_version_that_is_there_is_not_replaced(theirs: SmallChexzero, release: Manifest) -> None:
    asked = new_version.PromptsRequest(theirs.prompts, version="1")
    with pytest.raises(ConfigurationError, match="is there already: take another --version"):
        new_version.with_prompts(release, asked, release.path.parent.parent)


def test_the_commands_say_what_they_made_and_what_follows(
    theirs: SmallChexzero, tmp_path: Path
) -> None:
    settings = tmp_path / "hilum.toml"
    places = (f'state_dir = "{tmp_path}/state"', f'manifests = "{tmp_path}/models"')
    settings.write_text(f"[site]\n{places[0]}\n[models]\n{places[1]}\n")
    words = ["models", "import", "chexzero", str(theirs.checkpoint), "--name", "cx"]
    digest = identity.file_sha256(theirs.vocabulary)
    vocabulary = ["--tokenizer", str(theirs.vocabulary), "--tokenizer-sha256", digest]
    prompts = ["--prompts", str(theirs.prompts)]
    config = ["--config", str(settings)]
    made = CliRunner().invoke(cli.app, [*words, *vocabulary, *prompts, *config])
    assert "manifest.toml, text.safetensors, vocabulary.bpe, weights.safetensors" in made.output
    other = CliRunner().invoke(cli.app, ["models", "prompts", "cx@1", *prompts, *config])
    assert "cx@2: 3 findings, 8 prompts" in other.output, other.output
    assert "then: hilum models check cx@2, hilum models build cx@2" in other.output


def test_the_options_of_prompts_are_refused_for_other_kinds(
    theirs: SmallChexzero, tmp_path: Path
) -> None:
    words = ["models", "import", "vit", str(theirs.checkpoint), "--name", "x", "--out"]
    done = CliRunner().invoke(cli.app, [*words, str(tmp_path), "--prompts", "p.toml"])
    assert (done.exit_code, "kind vit takes no --prompts: it has no prompts" in done.output) == (
        2,
        True,
    ), done.output


def test_weights_without_embeddings_are_a_problem_of_the_release(
    release: Manifest, tmp_path: Path
) -> None:
    weights = safetensors.read(release.path.parent / "weights.safetensors")
    del weights["positive_prompts"]
    path = _with_weights(release, tmp_path, weights)
    ((verdict, said),) = _facts(manifest.read(path))
    assert (verdict, "the weights have no positive_prompts" in said) == (FactVerdict.PROBLEM, True)

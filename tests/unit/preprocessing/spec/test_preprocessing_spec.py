"""InputSpec: what loads, what is refused and with which words, and when two specifications are the same."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hilum_preprocessing import RECIPES, InputSpec, SpecError
from hilum_preprocessing.spec.input_spec import Normalise, Source, Target
from hilum_preprocessing.spec.operations import GEOMETRY, INTENSITY
from hilum_preprocessing.spec.population import Population
from hilum_preprocessing.spec.source import FixedWindow
from tests.support.objects.radiograph import spec


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_loads_and_survives_a_round_trip_through_json(name):
    loaded = InputSpec.from_mapping({"recipe": name})
    assert InputSpec.from_mapping(json.loads(json.dumps(loaded.to_mapping()))) == loaded
    assert loaded.cites


def test_wire_facts_of_the_recipes():
    """The side in the name is the side on the wire.

    Uint8 only where nothing follows whole grey levels.
    """
    loaded = {name: InputSpec.from_mapping({"recipe": name}) for name in RECIPES}
    for name, each in loaded.items():
        side = int(name.rpartition("_")[2])
        assert each.wire_shape == (1, side, side)
        assert each.wire_dtype == (
            "fp16" if name.startswith("torchxrayvision") or name == "chexzero_224" else "uint8"
        )
    one_channel = {name for name, each in loaded.items() if each.model_channels == 1}
    assert one_channel == {
        "nih_pil_bicubic_224",
        *(f"torchxrayvision_{name}" for name in ("224", "512", "rsna_224", "vindr_224")),
    }


def test_versions_of_published_specifications_stay():
    """Readings and built models name them.

    The vocabulary may grow, and what was written before keeps its version.
    """
    versions = {name: InputSpec.from_mapping({"recipe": name}).version for name in RECIPES}
    assert versions["torchxrayvision_224"] == "hp1-cbe929ca"
    assert versions["vit_imagenet_half_224"] == "hp1-081e65e6"
    assert versions["nih_pil_bicubic_224"] == "hp1-bb6e1c18"


def test_a_recipe_and_the_objects_that_are_taken():
    """A recipe says what is done to pixels.

    Colour, frames, pixel aspect and reduced decoding are the release's to allow.
    """
    recipe = InputSpec.from_mapping({"recipe": "torchxrayvision_224"})
    allowed = InputSpec.from_mapping(
        {"recipe": "torchxrayvision_224", "source": {"allow_reduced_decode": "auto", "rgb": "luma"}}
    )
    assert (allowed.source.allow_reduced_decode, allowed.source.rgb) == ("auto", "luma")
    assert allowed.source.modality_lut == recipe.source.modality_lut == "ignore"
    assert allowed.version != recipe.version
    with pytest.raises(SpecError, match=r"change source\.voi"):
        InputSpec.from_mapping({"recipe": "torchxrayvision_224", "source": {"voi": "first_window"}})


def test_the_example_of_the_documentation_loads():
    page = (Path(__file__).resolve().parents[4] / "docs" / "models" / "input_spec.md").read_text(
        encoding="utf-8"
    )
    example = tomllib.loads(page.split("```toml\n")[1].split("```")[0])
    assert InputSpec.from_mapping(example["input"]).wire_shape == (1, 320, 320)


def test_every_field_says_what_it_means():
    """docs/models/input_spec.md is made from it."""
    seen: list[type] = [
        InputSpec,
        *GEOMETRY.values(),
        *INTENSITY.values(),
        Source,
        FixedWindow,
        Target,
        Normalise,
        Population,
    ]
    silent = [
        f"{each.__name__}.{field.name}"
        for each in seen
        for field in dataclasses.fields(each)
        if not field.metadata["meaning"]
    ]
    assert silent == []


def test_normalise_is_on_the_scale_of_the_wire():
    """Trap 30: the same mean on 0..255 and on 0..1 are two models."""
    half = spec("vit_imagenet_half_224").normalise
    assert [(level - half.mean[0]) / half.std[0] for level in (0, 255)] == [-1.0, 1.0]
    nih = spec("nih_pil_bicubic_224").normalise
    for level in (0, 100, 255):
        assert (level - nih.mean[0]) / nih.std[0] == pytest.approx((level / 255 - 0.485) / 0.229)


def test_version_is_the_same_for_the_same_tensors_and_another_for_others():
    recipe = InputSpec.from_mapping({"recipe": "torchxrayvision_224"})
    assert recipe.version.startswith("hp1-")
    assert len(recipe.version) == len("hp1-") + 8
    assert (
        InputSpec.from_mapping({**RECIPES["torchxrayvision_224"], "cites": "elsewhere"}).version
        == recipe.version
    )
    spelled_out = {
        **RECIPES["torchxrayvision_224"],
        "presentation_intent": "for_presentation",
        "normalise": {},
    }
    assert InputSpec.from_mapping(spelled_out).version == recipe.version
    others = [
        spec(source={"monochrome1": "ignore"}),
        spec(source={"voi": "first_window"}),
        spec(normalise={"mean": 1.0}),
    ]
    assert len({recipe.version, *(other.version for other in others)}) == 4


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"recipe": "torchxrayvision_223"},
            ["torchxrayvision_223", "did you mean 'torchxrayvision_224'"],
        ),
        ({"recipe": "torchxrayvision_224", "views": "any"}, ["a recipe stands alone", "views"]),
        ({"recipe": 224}, ["unknown recipe"]),
        ("torchxrayvision_224", ["expected a table"]),
        ({}, ["missing", "target", "intensity", "geometry", "views"]),
        (
            {**RECIPES["torchxrayvision_224"], "sorce": {}},
            ["unknown field 'sorce'", "did you mean 'source'"],
        ),
    ],
)
def test_a_wrong_outline_is_refused_by_name(given, words):
    with pytest.raises(SpecError) as refused:
        InputSpec.from_mapping(given)
    assert all(word in str(refused.value) for word in words), refused.value


@pytest.mark.parametrize(
    ("section", "value", "words"),
    [
        ("source", {"monochrom1": "invert"}, ["input_spec.source", "did you mean 'monochrome1'"]),
        (
            "source",
            {"voi": "firstwindow"},
            ["input_spec.source.voi", "did you mean 'first_window'"],
        ),
        ("source", {"modality_lut": True}, ["input_spec.source.modality_lut"]),
        (
            "intensity",
            [{"op": "equalise"}],
            ["input_spec.intensity[0]", "unknown op 'equalise'", "did you mean 'equalize_hist'"],
        ),
        ("intensity", [{"op": "clahe"}], ["unknown op 'clahe'"]),
        ("geometry", [{"op": "crop_border"}], ["unknown op 'crop_border'"]),
        ("intensity", [{"op": "min_max"}], ["did you mean 'minmax'"]),
        ("intensity", ["minmax"], ["input_spec.intensity[0]", "expected a table"]),
        (
            "intensity",
            [{"op": "clamp", "low": 0}],
            ["input_spec.intensity[0] (clamp)", "missing high"],
        ),
        (
            "intensity",
            [{"op": "clamp", "low": math.nan, "high": 1}],
            ["(clamp).low", "finite number"],
        ),
        (
            "intensity",
            [{"op": "clamp", "low": -(10**400), "high": 1}],
            ["(clamp).low", "finite number"],
        ),
        ("intensity", [{"op": "maxval", "of": -1}], ["(maxval).of", "above 0"]),
        ("intensity", [{"op": "maxval", "of": "bit"}], ["did you mean 'bits'"]),
        ("intensity", [], ["not bounded within fp16"]),
        ("intensity", [{"op": "maxval", "of": 255}], ["not bounded within fp16"]),
        (
            "intensity",
            [{"op": "minmax"}, {"op": "scale", "multiply": 70000}],
            ["not bounded within fp16"],
        ),
        (
            "geometry",
            [{"op": "resize", "height": 0, "width": 224, "kernel": "skimage"}],
            ["(resize).height", "1 to 65535"],
        ),
        (
            "geometry",
            [{"op": "resize", "height": 224, "width": 224, "kernel": "skimag"}],
            ["did you mean 'skimage'"],
        ),
        (
            "geometry",
            [{"op": "resize", "height": 512, "width": 512, "kernel": "skimage"}],
            ["ends with (512, 512)", "(224, 224)"],
        ),
        ("geometry", [{"op": "centre_crop"}], ["a size that depends on the image"]),
        ("target", {"dtype": "bf16"}, ["input_spec.target.dtype", "fp16"]),
        ("target", {"dtype": "uint8"}, ["uint8 needs to_uint8"]),
        ("target", {"height": True}, ["input_spec.target.height"]),
        ("normalise", {"mean": [0, 0, 0]}, ["3 values for 1 channels"]),
        ("normalise", {"std": 0}, ["input_spec.normalise.std[0]", "above 0"]),
        ("source", {"monochrome1": "invert_after_uint8"}, ["needs the intensity op to_uint8"]),
        ("views", "frontal", ["input_spec.views", "did you mean 'frontal_only'"]),
        ("cites", 7, ["input_spec.cites", "expected text"]),
    ],
)
def test_a_wrong_field_is_refused_by_name_with_the_nearest_known_word(section, value, words):
    with pytest.raises(SpecError) as refused:
        spec(**{section: value})
    assert all(word in str(refused.value) for word in words), refused.value


def test_rounding_between_passes_needs_whole_grey_levels():
    resize = {
        "op": "resize",
        "height": 224,
        "width": 224,
        "kernel": "pil_bicubic_aa",
        "compute": "uint8_rounded",
    }
    with pytest.raises(SpecError, match="uint8_rounded needs to_uint8"):
        spec("torchxrayvision_224", geometry=[resize])
    with pytest.raises(SpecError, match="uint8_rounded in every resize"):
        spec("nih_pil_bicubic_224", geometry=[{**resize, "compute": "float"}])


def test_everything_but_the_tensors_works_without_torch():
    """A listener, a catalogue and a decode process import these, and must not pay for torch."""
    program = (
        "import sys, hilum_preprocessing, hilum_preprocessing.decode,"
        " hilum_preprocessing.levels.grayscale,"
        " hilum_preprocessing.resize.kernels\nhilum_preprocessing.InputSpec.from_mapping({'recipe':"
        " 'nih_pil_bicubic_224'})\nassert 'torch' not in"
        " sys.modules\nhilum_preprocessing.prepare_stored\nassert 'torch' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)

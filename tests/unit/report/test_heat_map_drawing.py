"""What is drawn: colour where the map is, nothing where it is not, legible on black and on white, and honest about the rest."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from PIL import Image, ImageChops
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence

from hilum.domain import Decision
from hilum.report.heat_map import overlay
from hilum.report.heat_map.blocks import TextLine, words
from hilum.report.heat_map.choice import (
    HeatMapLeftOut,
    chosen_findings,
    chosen_images,
    grid_of,
    shown_on,
)
from hilum.report.heat_map.display import displayed, grey_levels
from hilum.report.heat_map.layout import MapRow, heading, map_pixels
from hilum.report.heat_map.panel import Panel, beside_each_other, pictured
from hilum_preprocessing import InputSpec, decode
from hilum_preprocessing.header.luts import Voi, Window
from hilum_preprocessing.spec.operations import CentreCrop, Resize
from hilum_preprocessing.spec.placement import place
from testing.phantoms.phantom import make_study
from tests.support.objects.radiograph import radiograph, ramp
from tests.support.reports.heat_maps import maps_of
from tests.support.reports.results import CONTEXT, LOGITS, make_release, report_of

OPERATIONS = [CentreCrop(), Resize(height=224, width=224, kernel="skimage")]
ONE_HOT = maps_of(1)[0].astype(np.float32)


def panel(
    rows: int = 900, columns: int = 700, level: int = 128, cells: np.ndarray = ONE_HOT
) -> Panel:
    return Panel(
        np.full((rows, columns), level, np.uint8),
        place(OPERATIONS, (rows, columns)),
        cells,
        [TextLine("Effusion: Present")],
    )


def saturation(picture: np.ndarray) -> np.ndarray:
    """0 for grey."""
    values = picture.astype(int)
    return values.max(-1) - values.min(-1)


def test_colour_is_where_the_cell_is_and_nowhere_in_the_margins():
    shown = panel()
    picture = np.asarray(pictured(shown, 900))
    top, left, bottom, right = shown.placement.box_of((2, 5), (7, 7))
    colour = saturation(picture)
    row, column = np.unravel_index(colour.argmax(), colour.shape)
    assert top <= row <= bottom
    assert left <= column <= right
    assert colour[:99].max() == colour[801:].max() == 0, (
        "100 rows above and below were cropped away"
    )
    assert colour[int(top) - 150, int(left) - 150] == 0


@pytest.mark.parametrize("level", [0, 128, 255], ids=["black", "grey", "white"])
def test_a_peak_is_legible_on_any_ground(level):
    picture = np.asarray(pictured(panel(level=level), 512)).astype(int)
    assert np.abs(picture - level).max() > 90
    assert saturation(picture).max() > 120


def test_the_image_shows_through_at_the_peak():
    strength = np.ones((1, 2), np.float32)
    black, white = overlay.coloured(np.array([[0, 255]], np.uint8), strength)[0].astype(int)
    assert (white - black).min() >= 80


def test_colours_grow_with_the_map_and_begin_at_none():
    strength = np.linspace(0, 1, 50, dtype=np.float32)[None]
    for level in (0, 255):
        colour = saturation(overlay.coloured(np.full(strength.shape, level, np.uint8), strength))[0]
        assert colour[0] == 0
        assert (np.diff(colour[:20]) >= 0).all()


def test_bilinear_between_cells_without_aligned_corners():
    """The middle of a cell has its value, the border of two their mean, and beyond the outermost middle nothing is extrapolated."""
    placement = place([], (70, 70))
    cells = np.arange(49, dtype=np.float32).reshape(7, 7)
    values = overlay.spread(cells, placement, (700, 700))
    assert values[350, 350] == pytest.approx(cells[3, 3], abs=0.1)
    assert values[350, 400] == pytest.approx((cells[3, 3] + cells[3, 4]) / 2, abs=0.1)
    assert values[0, 0] == cells[0, 0]
    assert values[-1, -1] == cells[-1, -1]


def test_margins_are_dimmed_hatched_and_named():
    shown = panel(rows=400, columns=800, level=200)
    picture = np.asarray(pictured(shown, 800))
    margin = picture[:, :195].astype(int)
    assert np.median(margin) == pytest.approx(200 * 0.45, abs=1)
    assert (margin.max(-1) == 120).mean() > 0.05, "hatching"
    assert (margin.min(-1) > 250).sum() > 50, "the words `not analysed`"


def test_a_map_that_raises_nothing_is_not_drawn():
    picture = pictured(panel(cells=np.full((7, 7), -1, np.float32)), 512)
    assert saturation(np.asarray(picture)).max() == 0


def test_pictures_of_a_row_stand_at_one_height():
    long = dataclasses.replace(
        panel(rows=900, columns=300),
        heading=[TextLine("A very long name of a finding that takes several lines of text")],
    )
    both = np.asarray(beside_each_other([panel(rows=900, columns=300), long], 600))
    half = both.shape[1] // 2
    tops = [
        np.flatnonzero((part == 128).all(-1).sum(1) > 100)[0]
        for part in (both[:, :half], both[:, half:])
    ]
    assert tops[0] == tops[1]


def test_monochrome1_looks_as_monochrome2():
    both = [
        decode(make_study(4, views=("PA",), rows=200, columns=160, photometric=name)[0])
        for name in ("MONOCHROME1", "MONOCHROME2")
    ]
    first, second = (displayed(stored).astype(int) for stored in both)
    assert np.abs(first - second).max() <= 1
    assert first.mean() > 20


def test_an_image_without_a_window_is_shown_from_its_darkest_to_its_brightest():
    stored = decode(radiograph(ramp(40, 50, 10), bits_stored=12))
    grey = displayed(stored)
    assert (grey.min(), grey.max()) == (0, 255)


def test_a_window_that_shows_nothing_gives_way():
    stored = dataclasses.replace(
        decode(radiograph(ramp(40, 50), bits_stored=12)),
        voi=Voi(Window(90000, 10), None, is_unusable=False),
    )
    assert displayed(stored).std() > 50


def test_a_window_goes_before_a_voi_lut():
    item = Dataset()
    item.LUTDescriptor, item.LUTData = [4096, 0, 8], [255 - value // 16 for value in range(4096)]
    window = {"WindowCenter": 1000, "WindowWidth": 2000}
    both = decode(radiograph(ramp(16, 16), 12, VOILUTSequence=Sequence([item]), **window))
    assert np.array_equal(
        displayed(both), displayed(decode(radiograph(ramp(16, 16), 12, **window)))
    )


def test_padding_has_the_level_of_its_value_and_takes_no_part_in_the_range():
    array = ramp(16, 16) // 2 + 500
    array[:2] = 0
    grey = displayed(
        decode(radiograph(array, 12, PixelPaddingValue=0, PhotometricInterpretation="MONOCHROME1"))
    )
    assert np.all(grey[:2] == 255)
    assert (grey[2:].min(), grey[2:].max()) == (0, 255)


@pytest.mark.parametrize("orientation", ["patient", "as_stored"])
def test_a_picture_that_was_turned_for_the_model_is_shown_as_it_saw_it(tmp_path, orientation):
    """Cells are drawn where the model saw them.

    A picture in another orientation would have them beside what they mean.
    """
    upright = ramp(90, 70).astype(np.uint16)
    given = InputSpec.from_mapping(
        {"recipe": "torchxrayvision_224", "source": {"orientation": orientation}}
    )
    for name, array, letters in (
        ("upright", upright, "L\\F"),
        ("lying", np.ascontiguousarray(upright[::-1].T), "H\\L"),
    ):
        radiograph(array, 12, PatientOrientation=letters, SOPInstanceUID="1.2").save_as(
            tmp_path / name, enforce_file_format=True
        )
    (expected, place_of_upright), (found, place_of_lying) = (
        grey_levels(tmp_path / name, given, 1 << 20) for name in ("upright", "lying")
    )
    is_turned = orientation == "patient"
    assert np.array_equal(found, expected if is_turned else expected[::-1].T)
    assert (place_of_lying == place_of_upright) == is_turned


def test_a_modality_lut_that_cannot_be_used_hides_no_picture():
    broken = decode(radiograph(ramp(40, 50), 12, RescaleSlope="0", RescaleIntercept="0"))
    assert np.array_equal(displayed(broken), displayed(decode(radiograph(ramp(40, 50), 12))))


def result_of(count: int = 1, **changes: object):
    release = make_release(**changes)
    return (
        report_of(make_study(2, "CR", ("PA",) * count, rows=32, columns=32), release).result,
        release,
    )


def test_what_is_present_is_shown_best_first_and_three_at_most():
    result, _ = result_of()
    assert [finding.key for finding in chosen_findings(result)] == [
        "thickening",
        "infiltration",
        "effusion",
    ]
    assert all(finding.decision is Decision.PRESENT for finding in chosen_findings(result))
    none = dataclasses.replace(
        result,
        findings=tuple(
            dataclasses.replace(item, decision=Decision.ABSENT) for item in result.findings
        ),
    )
    assert chosen_findings(none) == ()
    assert chosen_images(none, ()) == ()


def test_untrained_weights_show_their_highest_scores():
    result, _ = result_of(is_trained=False)
    assert [finding.key for finding in chosen_findings(result)] == [
        "thickening",
        "infiltration",
        "effusion",
    ]
    assert {finding.decision for finding in chosen_findings(result)} == {Decision.UNDECIDED}


def test_maps_add_up_to_the_logit():
    from hilum.domain import ActivationMaps

    result, release = result_of()
    maps = ActivationMaps(LOGITS, maps_of(len(release.labels)).tobytes())
    shown, *_ = shown_on(result.source_images[0], result, release, maps)
    assert shown.cells.shape == (7, 7)
    assert shown.cells.sum() == pytest.approx((49 - 48) / 49, abs=1e-3)


@pytest.mark.parametrize("damage", ["another reading", "too short", "not finite"])
def test_maps_that_are_not_the_results_are_not_drawn(damage):
    from hilum.domain import ActivationMaps

    result, release = result_of()
    good = maps_of(len(release.labels))
    logits = LOGITS if damage != "another reading" else tuple(value + 1 for value in LOGITS)
    cam = {
        "too short": good.tobytes()[:-2],
        "not finite": (good * np.float16("nan")).tobytes(),
    }.get(damage, good.tobytes())
    with pytest.raises(HeatMapLeftOut):
        shown_on(result.source_images[0], result, release, ActivationMaps(logits, cam))


@pytest.mark.parametrize(
    ("cells", "size", "grid"),
    [(49, (224, 224), (7, 7)), (98, (448, 224), (14, 7)), (1, (32, 32), (1, 1))],
)
def test_the_grid_has_the_aspect_of_the_tensor(cells, size, grid):
    assert grid_of(cells, size) == grid


@pytest.mark.parametrize("shape", [(64, 64), (3000, 400), (300, 3000), (1, 700)])
@pytest.mark.parametrize("count", [1, 3, 12])
def test_a_sheet_stays_small_whatever_the_images(shape, count):
    result, release = result_of()
    image, finding = result.source_images[0], chosen_findings(result)[0]
    one = Panel(
        np.full(shape, 90, np.uint8),
        place(OPERATIONS, shape),
        ONE_HOT,
        heading(finding, image, result),
    )
    rows = [MapRow(image, [one] * min(count, 3))] * max(1, count // 3)
    pixels = map_pixels(rows, result, release, CONTEXT)
    assert pixels.nbytes < 12_000_000
    assert pixels.dtype == np.uint8
    assert np.array_equal(pixels, map_pixels(rows, result, release, CONTEXT))


def test_a_heading_says_what_was_compared_with_the_operating_point():
    result, _ = result_of(calibration={"method": "platt", "a": 1.0, "b": -3.0})
    said = [line.text for line in heading(result.findings[0], result.source_images[0], result)]
    assert said == [
        "Pleural effusion: Present (score at or above 0.5)",
        "score 0.610, probability 7%, calibrated",
    ]


def test_the_words_are_on_the_sheet():
    """No character recognition: the sheet of untrained weights has another title than that of trained ones, in the warning's colour."""
    sheets = []
    for is_trained in (True, False):
        result, release = result_of(is_trained=is_trained)
        image = result.source_images[0]
        one = Panel(
            np.full((64, 64), 90, np.uint8),
            place(OPERATIONS, (64, 64)),
            ONE_HOT,
            heading(result.findings[0], image, result),
        )
        sheets.append(Image.fromarray(map_pixels([MapRow(image, [one])], result, release, CONTEXT)))
    assert sheets[1].height > sheets[0].height
    amber = [(np.asarray(item) == (255, 190, 60)).all(-1).sum() for item in sheets]
    assert amber[0] > 200
    assert amber[1] > 1.5 * amber[0]


def test_long_words_wrap_and_are_not_cut():
    narrow = words([TextLine("one two three four five six seven eight nine ten")], 120)
    assert narrow.width == 120
    assert narrow.height > 3 * 19
    assert ImageChops.invert(narrow).getbbox() is not None

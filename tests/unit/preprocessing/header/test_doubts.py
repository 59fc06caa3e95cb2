"""What the guard doubts about an image, taken together.

Which of it means that no release reads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from pydicom import Dataset

from hilum.analyse.decode.prepare import prepare_for_releases
from hilum.analyse.decode.worker import DecodeRequest, NotReady, Ready
from hilum.settings import Guard, RefusedFlag
from hilum_preprocessing import Flag, NotAnalysable, Reason
from hilum_preprocessing.errors import flag_meaning
from hilum_preprocessing.guard.doubts import REFUSED_TOGETHER, require_no_doubt
from testing.phantoms import phantom

RELEASE = {"recipe": "torchxrayvision_224"}
DESCRIPTIONS = ("SeriesDescription", "StudyDescription", "AcquisitionDeviceProcessingDescription")
SILENT = {
    "BodyPartExamined": "",
    "AnatomicRegionSequence": None,
    "ViewCodeSequence": None,
    **dict.fromkeys(DESCRIPTIONS),
}
UNKNOWN, VIEW = Flag.BODY_PART_UNKNOWN.value, Flag.VIEW_UNKNOWN.value
PIXELS = (
    "unusual_aspect",
    "looks_inverted",
    "few_levels",
    "saturated",
    "asymmetric",
    "low_contrast",
)


def answer(dataset: Dataset, folder: Path, guard: Guard) -> Ready | NotReady:
    path = phantom.save(dataset, folder / "image.dcm")
    request = DecodeRequest(
        path,
        {"one@1": RELEASE},
        1 << 24,
        "cpu",
        guard.limits,
        guard.refuses,
        guard.refuses_together,
        guard.site_words,
    )
    return prepare_for_releases(request)["one@1"]


def radiograph(rows: int = 256, columns: int = 224, **overrides: Any) -> Dataset:
    return phantom.make_instance(7, rows=rows, columns=columns, overrides=overrides)


def negative(dataset: Dataset) -> Dataset:
    """The picture turned round, and the header left as it is."""
    pixels = np.frombuffer(dataset.PixelData, np.uint16)
    dataset.PixelData = ((1 << dataset.BitsStored) - 1 - pixels).astype(np.uint16).tobytes()
    return dataset


@pytest.mark.parametrize("flag", PIXELS)
def test_one_doubt_about_the_pixels_is_enough_where_neither_body_part_nor_view_is_known(
    flag: str,
) -> None:
    with pytest.raises(NotAnalysable) as refused:
        require_no_doubt((flag, UNKNOWN, VIEW, "lossy_compressed"), (), REFUSED_TOGETHER)
    assert refused.value.reason is Reason.IMPLAUSIBLE_PIXELS
    assert flag in refused.value.detail.split(", ")
    assert "lossy_compressed" not in refused.value.detail


@pytest.mark.parametrize("flag", sorted(set(PIXELS) - {"unusual_aspect"}))
def test_the_view_that_a_picture_file_cannot_state_is_no_sign_against_it(flag: str) -> None:
    require_no_doubt((flag, UNKNOWN, VIEW, "picture_file"), (), REFUSED_TOGETHER)


def test_signs_in_the_pixels_of_a_picture_file_refuse_it() -> None:
    for flags in (("unusual_aspect",), ("few_levels", "saturated")):
        with pytest.raises(NotAnalysable) as refused:
            require_no_doubt((*flags, UNKNOWN, VIEW, "picture_file"), (), REFUSED_TOGETHER)
        assert refused.value.detail == ", ".join(sorted((*flags, UNKNOWN)))


def test_a_site_may_refuse_picture_files_and_unknown_views() -> None:
    for flag in ("picture_file", VIEW):
        with pytest.raises(NotAnalysable):
            require_no_doubt((UNKNOWN, VIEW, "picture_file"), (flag,))


@pytest.mark.parametrize(
    "flags",
    [
        (),
        (UNKNOWN,),
        (VIEW,),
        (UNKNOWN, VIEW),
        (UNKNOWN, "looks_inverted"),
        (VIEW, "looks_inverted", "few_levels"),
        *((flag,) for flag in PIXELS),
        (UNKNOWN, VIEW, "age_unknown", "burned_in_text", "lossy_compressed"),
    ],
)
def test_what_real_chest_radiographs_have_is_no_reason(flags: tuple[str, ...]) -> None:
    require_no_doubt(flags, (), REFUSED_TOGETHER)


@pytest.mark.parametrize(
    "flags",
    [
        (UNKNOWN, "unusual_aspect"),
        (UNKNOWN, "few_levels", "saturated"),
        ("few_levels", "saturated", "looks_inverted"),
    ],
)
def test_what_no_chest_radiograph_has_is_a_reason_though_the_view_is_known(
    flags: tuple[str, ...],
) -> None:
    with pytest.raises(NotAnalysable) as refused:
        require_no_doubt(flags, (), REFUSED_TOGETHER)
    assert refused.value.detail == ", ".join(sorted(flags))


def test_an_empty_row_refuses_nothing() -> None:
    require_no_doubt(("few_levels",), (), ((),))


def test_the_settings_know_each_flag_of_the_default_and_the_library_knows_each_of_the_settings() -> (
    None
):
    known = set(get_args(RefusedFlag))
    assert (
        {flag for row in REFUSED_TOGETHER for flag in row} <= known <= {flag.value for flag in Flag}
    )
    assert Guard().refuses_together == REFUSED_TOGETHER


def test_each_flag_has_a_sentence_for_a_reader() -> None:
    assert all(flag.meaning.endswith(".") for flag in Flag)
    assert flag_meaning("body_part_unknown") == Flag.BODY_PART_UNKNOWN.meaning
    assert flag_meaning("of_another_version") == "of_another_version"


def test_a_dental_panoramic_without_a_body_part_has_no_finding(tmp_path: Path) -> None:
    """Twice as wide as high, and nothing in the header says what it is."""
    ended = answer(radiograph(224, 448, **SILENT, ViewPosition=""), tmp_path, Guard())
    assert isinstance(ended, NotReady)
    assert ended.reason == "implausible_pixels"
    assert {"body_part_unknown", "unusual_aspect"} <= set(ended.detail.split(", "))


def test_a_dental_panoramic_that_a_description_names_has_no_finding(tmp_path: Path) -> None:
    ended = answer(radiograph(**{**SILENT, "StudyDescription": "Panoramic"}), tmp_path, Guard())
    assert isinstance(ended, NotReady)
    assert (ended.reason, ended.detail) == (
        "not_chest",
        "Study Description names another body part",
    )


def test_a_chest_with_a_sparse_header_is_read_and_flagged(tmp_path: Path) -> None:
    ended = answer(radiograph(**SILENT, ViewPosition=""), tmp_path, Guard())
    assert isinstance(ended, Ready)
    assert {UNKNOWN, VIEW} <= set(ended.flags)


def test_a_negative_is_read_where_the_header_names_the_chest(tmp_path: Path) -> None:
    ended = answer(negative(radiograph()), tmp_path, Guard())
    assert isinstance(ended, Ready)
    assert "looks_inverted" in ended.flags


def test_a_negative_is_not_read_where_nothing_names_chest_or_view(tmp_path: Path) -> None:
    picture = negative(radiograph(**SILENT, ViewPosition=""))
    ended = answer(picture, tmp_path, Guard())
    assert isinstance(ended, NotReady)
    assert ended.detail == "body_part_unknown, looks_inverted, view_unknown"
    assert isinstance(answer(picture, tmp_path, Guard(refuses_together=())), Ready), (
        "a site may want it"
    )


def test_a_site_may_refuse_every_unknown_body_part(tmp_path: Path) -> None:
    guard = Guard(refuses=("body_part_unknown",))
    ended = answer(radiograph(**{**SILENT, "BodyPartExamined": "KLIX"}), tmp_path, guard)
    assert isinstance(ended, NotReady)
    assert (ended.reason, ended.detail) == ("implausible_pixels", "body_part_unknown")
    assert isinstance(answer(radiograph(BodyPartExamined="TORAX"), tmp_path, guard), Ready)


def test_the_words_of_a_site_count(tmp_path: Path) -> None:
    guard = Guard(
        refuses=("body_part_unknown",), chest_words=("klix",), other_body_part_words=("chest wall",)
    )
    assert isinstance(
        answer(radiograph(**{**SILENT, "BodyPartExamined": "KLIX 2"}), tmp_path, guard), Ready
    )
    ended = answer(radiograph(BodyPartExamined="CHEST WALL"), tmp_path, guard)
    assert isinstance(ended, NotReady)
    assert ended.reason == "not_chest"

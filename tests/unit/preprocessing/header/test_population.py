"""Whom a release may read: children end with their own reason, and who has no believable age is read and flagged."""

from __future__ import annotations

import pytest
from pydicom import Dataset

from hilum_preprocessing import (
    Flag,
    InputSpec,
    NotAnalysable,
    Reason,
    SpecError,
    check_tags,
    tag_flags,
)
from hilum_preprocessing.spec.population import age_years
from tests.support.objects.radiograph import radiograph, scene, spec

PICTURE = scene(8, 8)
ADULTS = {"minimum_age_years": 18, "cites": "trained on adults"}


def patient(**attributes: object) -> Dataset:
    return radiograph(PICTURE, **attributes)


@pytest.mark.parametrize(
    ("stated", "years"),
    [
        ("062Y", 62),
        ("62Y", 62),
        ("62", 62),
        (" 062y ", 62),
        ("62 YEARS", 62),
        ("010M", 10 / 12),
        ("003W", 3 / 52.18),
        ("005D", 5 / 365.25),
        ("000Y", 0),
        ("125Y", 125),
        ("126Y", None),
        ("999Y", None),
        ("-12Y", None),
        ("12.5Y", None),
        ("1234Y", None),
        ("0", None),
        ("000", None),
        ("abc", None),
        ("Y", None),
        ("", None),
        (None, None),
    ],
)
def test_age_as_it_is_written(stated, years):
    assert age_years(patient(PatientAge=stated) if stated is not None else patient()) == (
        pytest.approx(years) if years else years
    )


@pytest.mark.parametrize(
    ("attributes", "years"),
    [
        ({"PatientBirthDate": "20080229", "StudyDate": "20260301"}, 18.0),
        ({"PatientBirthDate": "2008.03.01", "StudyDate": "20260301"}, 18.0),
        ({"PatientAge": "999Y", "PatientBirthDate": "19500101", "StudyDate": "20260101"}, 76.0),
        ({"PatientAge": "010Y", "PatientBirthDate": "19500101", "StudyDate": "20260101"}, 10.0),
        ({"PatientBirthDate": "18000101", "StudyDate": "20260101"}, None),
        ({"PatientBirthDate": "20270101", "StudyDate": "20260101"}, None),
        ({"PatientBirthDate": "19501301", "StudyDate": "20260101"}, None),
        ({"PatientBirthDate": "00000000", "StudyDate": "20260101"}, None),
        *(
            ({"PatientAge": zero, "PatientBirthDate": "19600101", "StudyDate": "20260101"}, 66.0)
            for zero in ("000Y", "000D", "0", "000M")
        ),
        *(
            ({"PatientAge": odd, "PatientBirthDate": "19600101", "StudyDate": "20260101"}, 66.0)
            for odd in ("-01Y", "Y", "900Y", "N/A")
        ),
        ({"PatientAge": "000Y", "PatientBirthDate": "20250701", "StudyDate": "20260101"}, 0.5),
        (
            {
                "PatientAge": "000Y",
                "PatientBirthDate": "19600101",
                "StudyDate": "19000101",
                "SeriesDate": "20260101",
            },
            66.0,
        ),
        ({"PatientBirthDate": "1960-01-01", "StudyDate": "2026-01-01"}, 66.0),
        *(
            ({"PatientBirthDate": day, "StudyDate": "20200101"}, None)
            for day in ("19000101", "00010101", "18000101", "99991231", "1960")
        ),
        *(
            ({"PatientBirthDate": "19600101", "StudyDate": day}, None)
            for day in ("19000101", "00010101", "19010101", "20261301")
        ),
        ({"PatientBirthDate": "19600101000000", "StudyDate": "2026-01-01T10:15:00"}, 66.0),
        (
            {"PatientBirthDate": "20200101", "AcquisitionDateTime": "20260101101500.000000+0100"},
            6.0,
        ),
        ({"PatientBirthDate": "20260101", "StudyDate": "20260101", "PatientAge": "000D"}, 0.0),
        ({"PatientBirthDate": "1960010199", "StudyDate": "20260101"}, None),
        ({"PatientBirthDate": "19000101", "StudyDate": "19000101"}, None),
        ({"PatientBirthDate": "19500101"}, None),
        ({"StudyDate": "20260101"}, None),
    ],
)
def test_age_by_the_dates(attributes, years):
    assert age_years(patient(**attributes)) == (
        pytest.approx(years, abs=0.01) if years is not None else None
    )


def test_a_child_has_a_reason_without_the_age():
    with pytest.raises(NotAnalysable) as refused:
        check_tags(patient(PatientAge="011Y"), spec(population=ADULTS))
    assert refused.value.reason is Reason.CHILD
    assert "11" not in refused.value.detail


@pytest.mark.parametrize("age", ["000Y", "011M", "003W", "005D"])
def test_an_infant_without_dates_stays_a_child(age):
    with pytest.raises(NotAnalysable) as refused:
        check_tags(patient(PatientAge=age, PatientBirthDate=""), spec(population=ADULTS))
    assert refused.value.reason is Reason.CHILD


@pytest.mark.parametrize("age", ["018Y", "18", "216M", "090Y"])
def test_the_least_age_itself_is_old_enough(age):
    dataset = patient(PatientAge=age)
    assert check_tags(dataset, spec(population=ADULTS)) == "PA"
    assert tag_flags(dataset, spec(population=ADULTS), "PA") == ()


def test_an_unknown_age_is_read_and_flagged_only_where_it_matters():
    unknown = patient(PatientAge="?")
    assert check_tags(unknown, spec(population=ADULTS)) == "PA"
    assert tag_flags(unknown, spec(population=ADULTS), "PA") == (Flag.AGE_UNKNOWN.value,)
    assert tag_flags(unknown, spec(), "PA") == ()
    assert check_tags(patient(PatientAge="002D"), spec()) == "PA", (
        "a release for all ages reads newborns"
    )


def test_an_unreadable_age_is_unknown_and_no_refusal():
    broken = patient()
    broken.add_new("PatientAge", "AS", "062Y")
    broken["PatientAge"]._value = object()
    assert tag_flags(
        broken, spec(population=ADULTS), check_tags(broken, spec(population=ADULTS))
    ) == (Flag.AGE_UNKNOWN.value,)


def test_burned_in_text_is_flagged():
    assert tag_flags(patient(BurnedInAnnotation="YES"), spec(), "UNKNOWN") == (
        "view_unknown",
        "burned_in_text",
    )
    assert tag_flags(patient(BurnedInAnnotation="NO"), spec(), "PA") == ()


def test_a_population_stands_beside_a_recipe_and_changes_no_tensor():
    recipe = {"recipe": "torchxrayvision_224"}
    adults = InputSpec.from_mapping({**recipe, "population": ADULTS})
    assert adults.population.minimum_age_years == 18
    assert adults.version == InputSpec.from_mapping(recipe).version
    assert InputSpec.from_mapping(adults.to_mapping()) == adults


@pytest.mark.parametrize(
    ("population", "words"),
    [
        ({"minimum_age_years": 18}, "population.cites"),
        ({"minimum_age_years": -1, "cites": "x"}, "0 or more"),
        ({"minimum_age_years": "18", "cites": "x"}, "finite number"),
        ({"minimum_age": 18}, "did you mean 'minimum_age_years'"),
    ],
)
def test_a_wrong_population_is_refused(population, words):
    with pytest.raises(SpecError, match=words):
        InputSpec.from_mapping({"recipe": "torchxrayvision_224", "population": population})

"""Plans by date: complete whatever the server cuts off, or a doubt says that they are not."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hilum.retrieve.query.dates import DateRange, plan_dates
from hilum.retrieve.query.plan_step import PlanStep, count, is_uid
from hilum.retrieve.source import Level, SourceError
from hilum.settings import CGetSource
from tests.support.campaigns.remembered_archive import RememberedArchive, RememberedStudy

DAYS = DateRange(date(2019, 1, 1), date(2019, 1, 3))
WANTED = ("CR", "DX")


def settings(**changes: object) -> CGetSource:
    return CGetSource.model_validate(
        {"host": "pacs", "port": 104, "ae_title": "PACS", "maximum_results": 50, **changes}
    )


def planned(archive: RememberedArchive, after: str = "", **changes: object) -> list[PlanStep]:
    return list(plan_dates(archive, settings(**changes), DAYS, WANTED, after))


def uids(steps: list[PlanStep]) -> set[str]:
    return {item.study_instance_uid for step in steps for item in step.series}


def doubts(steps: list[PlanStep]) -> list[str]:
    return [doubt.text for step in steps for doubt in step.doubts]


def many(count: int, **changes: object) -> list[RememberedStudy]:
    """So many studies of one day, over its minutes."""
    minutes = [number * 37 % 1440 for number in range(1, count + 1)]
    return [
        RememberedStudy(f"1.2.{number}", time=f"{minute // 60:02}{minute % 60:02}00", **changes)  # type: ignore[arg-type]
        for number, minute in enumerate(minutes, 1)
    ]


times = st.one_of(
    st.none(),
    st.sampled_from(["000000", "235959.999", "120000", "115959.5"]),
    st.integers(0, 86_399).map(
        lambda second: f"{second // 3600:02}{second // 60 % 60:02}{second % 60:02}"
    ),
)
drawn = st.builds(
    lambda day, time, modalities, sex: (day, time, tuple(modalities), sex),
    st.sampled_from(["20190101", "20190102", "20190103", "20181231"]),
    times,
    st.lists(st.sampled_from(["CR", "DX", "CT", "MR"]), min_size=1, max_size=2, unique=True),
    st.sampled_from(["M", "F", "O", ""]),
)


@given(
    drawn_studies=st.lists(drawn, max_size=60),
    stops_at=st.integers(3, 80),
    says_so=st.booleans(),
)
def test_a_plan_is_the_truth_or_names_a_doubt(
    drawn_studies: list[tuple[str, str | None, tuple[str, ...], str]],
    stops_at: int,
    says_so: bool,
) -> None:
    studies = [
        RememberedStudy(f"1.2.{number}", day, time, modalities, sex=sex)
        for number, (day, time, modalities, sex) in enumerate(drawn_studies, 1)
    ]
    archive = RememberedArchive(studies, stops_at, says_so)
    steps = planned(archive, maximum_results=stops_at)
    truth = {
        study.uid
        for study in studies
        if "20190101" <= study.day <= "20190103" and set(study.modalities) & set(WANTED)
    }
    doubted = {doubt.day for step in steps for doubt in step.doubts}
    missing = {study.day for study in studies if study.uid in truth - uids(steps)}
    assert uids(steps) <= truth
    assert missing <= doubted
    days = [query for query in archive.queries if query.level is Level.STUDY]
    assert len(days) <= 3 * (95 + 4 * len(WANTED))
    for number, step in enumerate(steps):
        rest = planned(archive, step.cursor, maximum_results=stops_at)
        assert uids(steps[: number + 1]) | uids(rest) == uids(steps)


def test_a_day_over_the_limit_is_split_until_all_studies_are_found() -> None:
    archive = RememberedArchive(many(180), stops_at=40, says_so=True)
    steps = planned(archive, maximum_results=40)
    assert len(uids(steps)) == 180


def test_a_silent_limit_is_found_where_it_is_at_or_above_ours() -> None:
    archive = RememberedArchive(many(180), stops_at=40, says_so=False)
    assert len(uids(planned(archive, maximum_results=40))) == 180


def test_a_silent_limit_below_ours_is_found_by_the_second_count() -> None:
    archive = RememberedArchive(many(38), stops_at=30)
    steps = planned(archive)
    assert len(uids(steps)) > 30
    assert any("set maximum_results below its limit" in text for text in doubts(steps))


def test_a_round_number_of_answers_is_not_believed() -> None:
    archive = RememberedArchive(many(260), stops_at=200)
    assert len(uids(planned(archive, maximum_results=500))) == 260


def test_studies_without_a_time_are_found_beside_a_split() -> None:
    timeless = [RememberedStudy(f"1.3.{number}", time=None, sex="M") for number in range(5)]
    archive = RememberedArchive([*many(90), *timeless], stops_at=40, says_so=True)
    found = uids(planned(archive, maximum_results=40))
    assert {study.uid for study in timeless} <= found


def test_the_last_moment_of_a_day_belongs_to_it() -> None:
    late = RememberedStudy("1.3.1", time="235959.999")
    archive = RememberedArchive([*many(90), late], stops_at=40, says_so=True)
    assert late.uid in uids(planned(archive, maximum_results=40))


def test_a_source_that_ignores_modalities_is_filtered() -> None:
    scans = [RememberedStudy(f"1.4.{number}", modalities=("CT",)) for number in range(9)]
    archive = RememberedArchive([*many(3), *scans], ignores=frozenset(["ModalitiesInStudy"]))
    steps = planned(archive)
    assert uids(steps) == {"1.2.1", "1.2.2", "1.2.3"}
    assert sum(step.studies_filtered for step in steps) == 9


def test_a_source_that_ignores_the_date_is_filtered_and_named() -> None:
    other = RememberedStudy("1.4.1", day="20200505")
    archive = RememberedArchive([*many(2), other], ignores=frozenset(["StudyDate"]))
    steps = planned(archive)
    assert uids(steps) == {"1.2.1", "1.2.2"}
    assert any("ignores StudyDate" in text for text in doubts(steps))


def test_series_of_other_studies_are_left_out() -> None:
    archive = RememberedArchive(many(4), lists_all_series=True)
    steps = planned(archive)
    assert sorted(item.series_instance_uid for step in steps for item in step.series) == [
        f"1.2.{number}.1" for number in range(1, 5)
    ]


def test_only_series_of_the_wanted_modalities_are_planned() -> None:
    archive = RememberedArchive([RememberedStudy("1.5", modalities=("DX", "SR"))])
    (item,) = (item for step in planned(archive) for item in step.series)
    assert (item.modality, item.images, item.day) == ("DX", 1, "20190102")


def test_a_study_whose_series_cannot_be_listed_is_named_and_the_plan_goes_on() -> None:
    archive = RememberedArchive(many(3), broken=frozenset(["1.2.2"]))
    steps = planned(archive)
    assert uids(steps) == {"1.2.1", "1.2.3"}
    assert any("1.2.2" in text for text in doubts(steps))


def test_a_plan_continues_after_its_cursor() -> None:
    studies = [RememberedStudy(f"1.6.{number}", day=f"2019010{number}") for number in range(1, 4)]
    archive = RememberedArchive(studies)
    first = planned(archive)[0]
    rest = planned(archive, after=first.cursor)
    assert uids([first]) == {"1.6.1"}
    assert uids(rest) == {"1.6.2", "1.6.3"}


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="swap the two dates"):
        DateRange(date(2019, 2, 1), date(2019, 1, 1))


def test_no_query_below_study_level_is_without_a_full_uid() -> None:
    archive = RememberedArchive([RememberedStudy("*"), RememberedStudy(""), *many(3)])
    planned(archive)
    asked = [query.keys["StudyInstanceUID"] for query in archive.queries]
    below = [query for query in archive.queries if query.level is not Level.STUDY]
    assert below
    assert all(is_uid(query.keys["StudyInstanceUID"]) for query in below), asked


def test_keys_that_the_settings_name_are_not_sent() -> None:
    archive = RememberedArchive(many(3))
    planned(archive, ignores=["ModalitiesInStudy"])
    assert not any("ModalitiesInStudy" in query.keys for query in archive.queries)


def test_a_split_day_whose_modalities_are_listed_whole_is_complete_without_a_doubt() -> None:
    scans = [RememberedStudy(f"1.4.{each}", time=None, modalities=("CT",)) for each in range(60)]
    timeless = RememberedStudy("1.3.1", time=None, sex="")
    archive = RememberedArchive([*scans, *many(30), timeless], stops_at=50, says_so=True)
    steps = planned(archive)
    assert len(uids(steps)) == 31
    assert timeless.uid in uids(steps)
    assert doubts(steps) == []


def test_a_split_day_of_a_source_without_modalities_in_study_is_named() -> None:
    archive = RememberedArchive(many(90), stops_at=40, lacks=frozenset(["ModalitiesInStudy"]))
    steps = planned(archive, maximum_results=40)
    assert len(uids(steps)) == 90
    assert [doubt.day for step in steps for doubt in step.doubts] == ["20190102"]


def test_a_round_limit_below_ours_is_named_where_no_split_helps() -> None:
    crowd = [RememberedStudy(f"1.2.{number}", time="101500") for number in range(1, 251)]
    steps = planned(RememberedArchive(crowd, stops_at=100), maximum_results=500)
    assert [doubt.day for step in steps for doubt in step.doubts] == ["20190102"]


def test_a_day_that_the_source_refuses_as_too_large_is_split() -> None:
    archive = RememberedArchive(many(90), refuses_above=40)
    assert len(uids(planned(archive))) == 90


def test_a_refusal_that_no_split_helps_is_raised_after_few_queries() -> None:
    archive = RememberedArchive(
        [RememberedStudy("1.2.1"), RememberedStudy("1.2.2", time="000100")], refuses_above=-1
    )
    with pytest.raises(SourceError, match="413"):
        planned(archive)
    assert len(archive.queries) <= 8


def test_an_outage_passes_and_the_plan_continues_after_its_last_cursor() -> None:
    studies = [RememberedStudy(f"1.6.{number}", day=f"2019010{number}") for number in range(1, 4)]
    archive = RememberedArchive(studies, down_after=3)
    steps = plan_dates(archive, settings(), DAYS, WANTED)
    first = next(steps)
    with pytest.raises(SourceError, match="no answer"):
        next(steps)
    archive.down_after = None
    assert uids([first]) | uids(planned(archive, first.cursor)) == {"1.6.1", "1.6.2", "1.6.3"}


def test_a_source_that_ignores_times_is_named_and_not_split_further() -> None:
    archive = RememberedArchive(many(90), stops_at=40, ignores=frozenset(["StudyTime"]))
    steps = planned(archive, maximum_results=40)
    assert any("ignores StudyTime" in text for text in doubts(steps))
    assert any("may be incomplete" in text for text in doubts(steps))
    assert sum(query.level is Level.STUDY for query in archive.queries) < 20


def test_a_key_that_the_source_says_it_ignores_is_named_once() -> None:
    studies = [RememberedStudy(f"1.6.{number}", day=f"2019010{number}") for number in range(1, 4)]
    keys = frozenset(["ModalitiesInStudy"])
    steps = planned(RememberedArchive(studies, ignores=keys, says_ignored=True))
    assert doubts(steps) == [
        "the source says that it ignores ModalitiesInStudy; Hilum filters its answers"
    ]


def test_a_study_without_a_valid_uid_is_left_out_and_named() -> None:
    steps = planned(RememberedArchive([RememberedStudy("1.2.*"), *many(2)]))
    assert uids(steps) == {"1.2.1", "1.2.2"}
    assert any("without a valid Study Instance UID" in text for text in doubts(steps))


def test_a_range_that_ends_in_the_future_is_refused() -> None:
    dates = DateRange(date(2019, 1, 1), date(9998, 1, 1))
    with pytest.raises(ValueError, match="lies in the future"):
        plan_dates(RememberedArchive([]), settings(), dates, WANTED)


def test_a_cursor_before_the_range_begins_at_its_first_day() -> None:
    assert next(DAYS.after("2018-06-01")) == date(2019, 1, 1)


@pytest.mark.parametrize(
    ("text", "number"), [("4", 4), ("+4", 4), (" 4 ", 4), ("", None), ("-1", None), ("1_0", None)]
)
def test_a_count_of_images_is_an_integer_string(text: str, number: int | None) -> None:
    assert count(text) == number


def test_a_modality_whose_answer_lacks_a_known_study_proves_nothing() -> None:
    timeless = RememberedStudy("1.3.1", time=None, sex="M")
    archive = RememberedArchive(
        [*many(90), timeless], stops_at=40, unmatched=frozenset(["ModalitiesInStudy"])
    )
    steps = planned(archive, maximum_results=40)
    assert timeless.uid in uids(steps)
    assert [doubt.day for step in steps for doubt in step.doubts] == ["20190102"]

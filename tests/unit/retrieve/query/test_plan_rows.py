"""Plans by list: each row has its own outcome."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hilum.domain import ListRow
from hilum.retrieve.query.plan_step import PlanStep, is_exact, is_uid
from hilum.retrieve.query.rows import plan_rows
from hilum.retrieve.source import ListedStudy
from hilum.settings import CGetSource
from tests.support.campaigns.remembered_archive import RememberedArchive, RememberedStudy

SETTINGS = CGetSource.model_validate({"host": "pacs", "port": 104, "ae_title": "PACS"})
ARCHIVE = [
    RememberedStudy("1.1", accession="123"),
    RememberedStudy("1.2", accession="0000123"),
    RememberedStudy("1.3", accession="DUP1"),
    RememberedStudy("1.4", accession="DUP1"),
    RememberedStudy("1.5", accession="A*1"),
    RememberedStudy("1.6", accession="AB1"),
    RememberedStudy("1.7", accession="CT1", modalities=("CT",)),
    RememberedStudy("1.8", accession="abc"),
]


def planned(archive: RememberedArchive, *rows: ListedStudy, after: str = "") -> list[PlanStep]:
    return list(plan_rows(archive, SETTINGS, rows, ("CR", "DX"), after))


def outcome(value: str, kind: Literal["accession", "study_uid"] = "accession") -> ListRow:
    (step,) = planned(RememberedArchive(ARCHIVE), ListedStudy(2, kind, value))
    (row,) = step.rows
    return row


@pytest.mark.parametrize(
    ("value", "expected", "studies"),
    [
        ("123", "found", ("1.1",)),
        ("0000123", "found", ("1.2",)),
        ("ABC", "none", ()),
        ("9999", "none", ()),
        ("DUP1", "ambiguous", ("1.3", "1.4")),
        ("A*1", "refused", ()),
        ("?", "refused", ()),
        ("", "refused", ()),
        ("CT1", "none", ("1.7",)),
    ],
)
def test_an_accession_number_matches_itself_alone(
    value: str, expected: str, studies: tuple[str, ...]
) -> None:
    row = outcome(value)
    assert (row.outcome, row.study_instance_uids) == (expected, studies)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1.6", "found"),
        ("1.66", "none"),
        ("1.*", "refused"),
        ("", "refused"),
        ("1.6\\1.7", "refused"),
    ],
)
def test_a_study_uid_is_asked_for_only_if_it_is_one(value: str, expected: str) -> None:
    assert outcome(value, "study_uid").outcome == expected


def test_nothing_is_asked_for_a_refused_row() -> None:
    archive = RememberedArchive(ARCHIVE)
    planned(archive, ListedStudy(2, "accession", "*"), ListedStudy(3, "study_uid", ""))
    assert archive.queries == []


def test_the_row_is_the_origin_of_its_series() -> None:
    (step,) = planned(RememberedArchive(ARCHIVE), ListedStudy(7, "accession", "123"))
    assert [item.origin for item in step.series] == ["7"]


def test_a_list_continues_after_its_cursor() -> None:
    rows = [ListedStudy(2, "accession", "123"), ListedStudy(3, "accession", "abc")]
    steps = planned(RememberedArchive(ARCHIVE), *rows, after="2")
    assert [step.cursor for step in steps] == ["3"]


def test_no_detail_holds_an_accession_number() -> None:
    for value in ("9999", "DUP1", "CT1"):
        assert value not in outcome(value).detail


@given(kind=st.sampled_from(["accession", "study_uid"]), value=st.text("01.*?\\\\ \n", max_size=6))
def test_no_query_has_an_empty_or_wildcard_key_for_a_row(
    kind: Literal["accession", "study_uid"], value: str
) -> None:
    archive = RememberedArchive(ARCHIVE)
    planned(archive, ListedStudy(2, kind, value))
    for query in archive.queries:
        uid = query.keys["StudyInstanceUID"]
        assert is_uid(uid) or (not uid and is_exact(query.keys["AccessionNumber"]))


def test_a_row_whose_answer_is_cut_off_is_named() -> None:
    shared = [RememberedStudy(f"1.9.{number}", accession="X1") for number in range(6)]
    archive = RememberedArchive(shared, stops_at=5, says_so=True)
    (step,) = planned(archive, ListedStudy(2, "accession", "X1"))
    assert [doubt.text for doubt in step.doubts] == [
        "row 2 may name more studies than the source lists"
    ]


def test_a_row_that_is_refused_by_the_source_does_not_stop_the_others() -> None:
    archive = RememberedArchive(ARCHIVE, refuses_above=1)
    rows = [ListedStudy(2, "accession", "DUP1"), ListedStudy(3, "accession", "123")]
    steps = planned(archive, *rows)
    assert [row.outcome for step in steps for row in step.rows] == ["none", "found"]
    assert "row 2 cannot be asked for" in steps[0].doubts[0].text

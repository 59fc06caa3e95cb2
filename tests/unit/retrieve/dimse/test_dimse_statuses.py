"""Statuses in words, and when trouble counts as an outage."""

from __future__ import annotations

import pytest

from hilum.retrieve.dimse.outage import OutageRule
from hilum.retrieve.dimse.request import DimseResponse, RequestEnd
from hilum.retrieve.dimse.retrieval import RetrieveEnd
from hilum.retrieve.dimse.statuses import meaning_of, status_text


def _ended(status: int, **counts: int) -> RetrieveEnd:
    return RetrieveEnd(RequestEnd.ANSWERED, DimseResponse(status, b"", **counts))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0xA700, "A700, out of resources"),
        (0xA702, "A702, cannot perform the sub-operations"),
        (0xA801, "A801, move destination unknown"),
        (0xA900, "A900, identifier does not match"),
        (0xC123, "C123, unable to process"),
        (0x0122, "0122, SOP Class not supported"),
        (0x1234, "1234, a status that"),
    ],
)
def test_a_status_has_a_name_and_advice(status: int, words: str) -> None:
    text = status_text(status)

    assert text.startswith(words)
    assert "; " in text


@pytest.mark.parametrize("status", [0x0122, 0x0124, 0x0211, 0xA801])
def test_what_a_person_must_change_is_final_and_no_outage(status: int) -> None:
    assert meaning_of(status).is_final
    assert not _ended(status).is_trouble
    assert _ended(status).report(60).is_final


def test_success_claims_nothing_else() -> None:
    report = _ended(0x0000, completed=0, failed=0).report(60)

    assert (report.status, report.problem) == ("0000", "")


def test_success_with_failures_is_a_problem_with_its_counts() -> None:
    report = _ended(0x0000, completed=0, failed=4).report(60)

    assert "0 sent, 4 failed" in report.problem


def test_nothing_sent_for_a702_may_be_an_outage_and_something_sent_is_none() -> None:
    assert _ended(0xA702, completed=0, failed=3).is_trouble
    assert not _ended(0xA702, completed=1, failed=2).is_trouble


def test_one_series_in_trouble_is_no_outage() -> None:
    rule = OutageRule()

    assert [rule.is_outage("1.2.3") for _ in range(3)] == [False] * 3


def test_two_series_in_trouble_in_a_row_are_an_outage() -> None:
    rule = OutageRule()
    rule.is_outage("1.2.3")

    assert rule.is_outage("1.2.4")


def test_an_answer_ends_an_outage() -> None:
    rule = OutageRule()
    rule.is_outage("1.2.3")
    rule.succeed()

    assert not rule.is_outage("1.2.4")


def test_a_long_outage_uses_up_attempts_slowly() -> None:
    rule = OutageRule()

    found = [rule.is_outage(str(number % 2)) for number in range(30)]

    assert found.count(False) == 4  # the first one, and each tenth

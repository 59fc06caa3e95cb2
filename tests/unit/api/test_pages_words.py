"""Words of the pages: ages, times with their zone, states, findings."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from hilum.api.pages.findings import finding_rows, result_line
from hilum.api.pages.formatting import (
    age,
    chip,
    duration,
    local,
    meaning,
    moment,
    reading_words,
    study_chip,
)
from hilum.api.pages.timeline import timeline
from hilum.domain import (
    DeliveryState,
    ImageReason,
    ReadingState,
    ResultState,
    ServerReason,
    StudyState,
)
from hilum.store.queries.report_states import report_state
from hilum_preprocessing import Flag

NOW = 1_795_163_400.0  # 2026-11-20T08:30:00Z


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_times_have_the_servers_zone(berlin: None) -> None:
    assert local(NOW) == "2026-11-20 09:30:00 CET"
    found = moment(NOW, NOW + 61)
    assert found is not None
    assert (found.iso, found.age) == ("2026-11-20T08:30:00.000Z", "1 minute ago")
    assert moment(None, NOW) is None


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "now"),
        (-0.4, "now"),
        (1, "1 second ago"),
        (59.9, "59 seconds ago"),
        (60, "1 minute ago"),
        (7199, "1 hour ago"),
        (86400 * 2, "2 days ago"),
        (-8, "in 8 seconds"),
    ],
)
def test_ages(seconds: float, words: str) -> None:
    assert age(seconds) == words


def test_a_short_time_is_not_zero() -> None:
    assert duration(0.31) == "0.3 seconds"


@pytest.mark.parametrize(
    ("state", "reason", "detail", "words"),
    [
        ("analysed", None, None, ""),
        ("analysed", None, "few_levels", f"In doubt: {Flag.FEW_LEVELS.meaning}"),
        ("analysed", None, "later_flag", "In doubt: later_flag"),
        ("not_analysed", "undecodable", "no SOI", f"{ImageReason.UNDECODABLE.meaning} no SOI"),
        (
            "not_analysed",
            "implausible_pixels",
            "saturated",
            f"{ImageReason.IMPLAUSIBLE_PIXELS.meaning} In doubt: {Flag.SATURATED.meaning}",
        ),
        ("due", None, "the engine does not answer", "the engine does not answer"),
    ],
)
def test_what_is_in_doubt_is_said_in_sentences(
    state: str, reason: str | None, detail: str | None, words: str
) -> None:
    assert reading_words({"state": state, "reason": reason, "detail": detail}) == words


def test_unknown_words_stand_for_themselves() -> None:
    assert meaning("from_a_later_version") == "from a later version"
    assert meaning(None) == ""
    assert (chip("withdrawn").text, chip("withdrawn").tone) == ("withdrawn", "quiet")
    assert all(meaning(reason) == reason.meaning for reason in ServerReason)
    assert all(
        chip(state).text
        for states in (ReadingState, StudyState, ResultState, DeliveryState)
        for state in states
    )


def study(**changes: Any) -> dict[str, Any]:
    usual = {
        "state": "closed",
        "open_readings": 0,
        "quiet_until": NOW - 1,
        "failed_readings": 0,
        "results": [],
        "deliveries": {},
    }
    found = {**usual, **changes}
    return {
        **found,
        "report_state": report_state(
            found["state"], [item["state"] for item in found["results"]], found["deliveries"]
        ),
    }


@pytest.mark.parametrize(
    ("changes", "words", "tone"),
    [
        ({"deliveries": {"delivered": 2}}, "done", "good"),
        ({"state": "due", "quiet_until": NOW + 8}, "closes in 8 seconds", "busy"),
        (
            {"state": "due", "open_readings": 1, "quiet_until": NOW + 8},
            "reading, 1 image open",
            "busy",
        ),
        ({"state": "due"}, "closing", "busy"),
        ({"state": "leased"}, "closing", "busy"),
        ({"state": "failed"}, "failed", "bad"),
        ({"state": "erased"}, "erased", "quiet"),
        ({"results": [{"state": "due"}]}, "writing reports", "busy"),
        ({"results": [{"state": "failed"}]}, "needs a person", "bad"),
        ({"results": [{"state": "reported"}], "deliveries": {"due": 1}}, "sending", "busy"),
        ({"deliveries": {"due": 1, "dead": 1}}, "needs a person", "bad"),
        ({"failed_readings": 1, "deliveries": {"delivered": 1}}, "needs a person", "bad"),
        ({"deliveries": {"withheld": 1}}, "report withheld", "warn"),
        ({"deliveries": {"delivered": 1, "withheld": 1}}, "report withheld", "warn"),
        ({"deliveries": {"delivered": 1, "cancelled": 1}}, "done", "good"),
        ({"deliveries": {"cancelled": 1}}, "not sent", "warn"),
        ({"results": [{"state": "reported"}]}, "not sent", "warn"),
    ],
)
def test_where_a_study_stands(changes: dict[str, Any], words: str, tone: str) -> None:
    found = study_chip(study(**changes), NOW)
    assert (found.text, found.tone) == (words, tone)


def finding(text: str, score: float, decision: str, **changes: Any) -> dict[str, Any]:
    code = {"value": "1", "scheme": "SCT", "meaning": text}
    return {
        "text": text,
        "code": code,
        "score": score,
        "probability": None,
        "operating_point": 0.5,
        "decision": decision,
        **changes,
    }


def result(*findings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    usual = {
        "release": "r@1",
        "outcome": "analysed",
        "reason": None,
        "is_trained": True,
        "is_calibrated": True,
    }
    return {**usual, "findings": list(findings), **changes}


@pytest.mark.parametrize(
    ("given", "words", "caveats"),
    [
        (result(finding("A", 0.6, "present"), finding("B", 0.9, "present")), "B 0.90, A 0.60", []),
        (
            result(*(finding(name, 0.6, "present") for name in "ABCDE")),
            "A 0.60, B 0.60, C 0.60 and 2 more",
            [],
        ),
        (result(finding("A", 0.1, "absent")), "no finding reaches its operating point", []),
        (
            result(finding("A", 0.9, "undecided"), is_trained=False, is_calibrated=False),
            "no decision",
            ["untrained"],
        ),
        (result(finding("A", 0.6, "present", probability=0.3)), "A 0.60", []),
        (
            result(finding("A", 0.6, "present"), is_calibrated=False, outcome="partial"),
            "A 0.60",
            ["partial", "uncalibrated"],
        ),
        (
            result(outcome="not_analysed", reason="too_large", is_trained=False),
            "not analysed: More pixels than the limit, in the image or on its way to the input.",
            [],
        ),
        ({"release": "r@1", "outcome": "analysed", "reason": None}, "no decision", []),
    ],
)
def test_a_result_in_a_line(given: dict[str, Any], words: str, caveats: list[str]) -> None:
    line = result_line(given)
    assert line.words.replace("\N{NO-BREAK SPACE}", " ") == words
    assert [item.text for item in line.caveats] == caveats


def test_findings_of_a_release_without_activation_have_no_bar() -> None:
    """Its numbers are not between 0 and 1."""
    (row,) = finding_rows(result(finding("A", -3.25, "undecided", operating_point=None)))
    assert (row.score, row.bar, row.mark, row.operating_point) == ("-3.250", None, None, None)


@pytest.mark.parametrize(
    ("score", "point", "shown"),
    [
        (0.5002, 0.5003, ("0.500", "0.5003")),
        (0.5004, 0.5003, ("0.5004", "0.500")),
        (0.4996, 0.49951, ("0.500", "0.500")),
        (0.5, 0.5, ("0.500", "0.500")),
        (0.71, 0.5003, ("0.710", "0.500")),
    ],
)
def test_a_score_and_its_operating_point_stand_as_they_were_compared(
    score: float, point: float, shown: tuple[str, str]
) -> None:
    (row,) = finding_rows(
        result(
            finding("A", score, "present" if score >= point else "absent", operating_point=point)
        )
    )
    assert (row.score, row.operating_point) == shown
    assert (float(shown[0]) >= float(shown[1])) == (score >= point)


@pytest.mark.parametrize(
    ("score", "probability", "shown"),
    [
        (0.61, 0.0722, ("0.610", "7.2%")),
        (0.5, 1.0, ("0.500", "100.0%")),
        (0.4999999, 0.0, ("0.4999999", "0.0%")),
        (0.9, 0.99999, ("0.900", "above 99.9%")),
        (0.1, 0.0001, ("0.100", "below 0.1%")),
    ],
)
def test_no_rounding_decides_anything(
    score: float, probability: float, shown: tuple[str, str]
) -> None:
    """The decision was made on the score, and nothing that is not certain looks so."""
    (row,) = finding_rows(
        result(
            finding("A", score, "present" if score >= 0.5 else "absent", probability=probability)
        )
    )
    assert (row.score, row.probability) == shown


def test_what_is_present_comes_first() -> None:
    rows = finding_rows(
        result(
            finding("A", 0.9, "absent"),
            finding("B", 0.2, "undecided"),
            finding("C", 0.6, "present"),
        )
    )
    assert [row.text for row in rows] == ["C", "B", "A"]


def test_the_timeline_shows_what_is_still_to_come() -> None:
    image = {
        "received_at": NOW - 2,
        "calling_ae_title": "CR1",
        "readings": [{"finished_at": None, "release": "r@1"}],
    }
    found = timeline(
        {
            "images": [image],
            "closed_at": None,
            "quiet_until": NOW + 8,
            "results": [],
            "received_last": NOW - 2,
        },
        NOW,
    )
    assert [(event.what, event.since, event.at and event.at.age) for event in found] == [
        ("Image 1 received from CR1", "", "2 seconds ago"),
        ("Quiet period ends", "+10.0 s", "in 8 seconds"),
    ]

"""Figures of a load test, from what both ends noted."""

from __future__ import annotations

import tomllib

import pytest

from load_tests.measure import Goal, figures, goals, percentiles
from load_tests.phantom import make_study
from load_tests.receiver import Arrivals
from load_tests.sender import Peer, Sent, fresh_study
from load_tests.serving import as_toml


def arrivals(*noted: tuple[str, str, str, float]) -> Arrivals:
    found = Arrivals()
    for study, instance, digest, moment in noted:
        found.note(study, instance, digest, moment)
    return found


def test_latency_counts_from_the_last_image_and_from_the_intended_start():
    sent = [Sent("1.1", intended_at=10.0, started_at=10.5, ended_at=11.0, failure=None), Sent("1.2", 11.0, 11.0, 11.2, None)]
    found = figures(sent, arrivals(("1.1", "9.1", "a", 13.0), ("1.2", "9.2", "b", 13.5)))
    assert found.last_image_to_sr == pytest.approx((2.0, 2.3))
    assert found.intended_to_sr == pytest.approx((3.0, 2.5))
    assert found.late_starts == pytest.approx((0.5, 0.0))
    assert found.studies_per_second == pytest.approx(2.0)


def test_a_report_before_the_last_image_does_not_count():
    """A study that was cut in two by its quiet period has an early report, and a later one that names it."""
    sent = [Sent("1.1", 0.0, 0.0, 5.0, None)]
    found = figures(sent, arrivals(("1.1", "9.1", "a", 4.0), ("1.1", "9.2", "b", 8.0)))
    assert found.last_image_to_sr == (3.0,)
    assert figures(sent, arrivals(("1.1", "9.1", "a", 4.0))).reported == 0


def test_refused_and_lost_studies_break_goals():
    sent = [Sent("1.1", 0, 0, 1, None), Sent("1.2", 1, 1, 2, "status 0xA700"), Sent("1.3", 2, 2, 3, None)]
    found = figures(sent, arrivals(("1.1", "9.1", "a", 3.0)))
    broken = {goal.name for goal in goals(found, rate=1.0, quiet_seconds=1.0, beyond_quiet_seconds=5.0) if not goal.holds}
    assert broken == {"studies that were not accepted", "accepted studies without a report", "throughput"}
    assert found.failures == ("status 0xA700",)


def test_nothing_reported_is_no_division_by_zero_and_holds_no_latency_goal():
    kept = {goal.name: goal for goal in goals(figures([], Arrivals()), 1.0, 2.0, 1.0)}
    assert not kept["last image to SR beyond the quiet period, p95"].holds
    assert percentiles([]) == {}


def test_the_same_report_twice_is_a_repetition_and_other_bytes_a_broken_promise():
    found = arrivals(("1.1", "9.1", "a", 1.0), ("1.1", "9.1", "a", 2.0), ("1.1", "9.1", "b", 3.0))
    assert (found.repeated, found.changed, found.by_study) == (1, ["9.1"], {"1.1": [1.0]})


def test_a_goal_says_whether_it_holds():
    assert Goal("x", 1, "s", 1).holds
    assert not Goal("x", 0.8, "s", 0.9, at_most=False).holds
    assert Goal("x", 2.0, "s", 1).as_json() == {"name": "x", "value": 2.0, "unit": "s", "goal": 1, "at_most": True, "holds": False}


@pytest.mark.parametrize("text", ["HILUM", "HILUM@host", "@host:1", "HILUM@:1", "HILUM@host:x"])
def test_a_wrong_peer_says_what_is_right(text: str):
    with pytest.raises(ValueError, match="AET@host:port"):
        Peer.parse(text)


def test_a_fresh_study_is_new_and_leaves_the_template_alone():
    template = make_study(rows=16, columns=16)
    before = [image.SOPInstanceUID for image in template]
    first, second = fresh_study(template), fresh_study(template)
    assert first[0].StudyInstanceUID == first[1].StudyInstanceUID != second[0].StudyInstanceUID
    assert [image.SOPInstanceUID for image in template] == before
    assert len({image.SOPInstanceUID for image in (*first, *second)}) == 4
    assert first[0].PixelData is template[0].PixelData


def test_settings_are_written_as_toml():
    receive, destination = {"port": 1, "ae_titles": ["A", "B"]}, {"accept_untrained": True}
    text = as_toml({"site": {"name": 'a "quoted" name'}, "receive": receive, "destinations.x": destination})
    assert tomllib.loads(text) == {"site": {"name": 'a "quoted" name'}, "receive": receive, "destinations": {"x": destination}}

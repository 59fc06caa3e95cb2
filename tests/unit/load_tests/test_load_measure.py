"""Figures of a load test, from what both ends noted and what Hilum's metrics say."""

from __future__ import annotations

import json
import tomllib

import pytest

from load_tests.load import outcome, picture, scenario
from load_tests.load.figures import FIGURES, Goal, goals
from load_tests.load.measure import circumstances, figures, percentiles
from load_tests.load.phases import Loaded
from load_tests.load.scrapes import parse, queues, stretches
from load_tests.load.watch import Sample, mean_queues, memory_growth
from testing.accounting import Usage
from testing.network.receiver import Arrivals
from testing.network.sender import Peer, Sent, fresh_study
from testing.phantoms.phantom import make_study
from testing.serving import as_toml


def arrivals(*noted: tuple[str, str, str, float]) -> Arrivals:
    found = Arrivals()
    for study, instance, digest, moment in noted:
        found.note(study, instance, digest, moment)
    return found


def test_latency_counts_from_the_last_image_and_from_the_intended_start():
    sent = [
        Sent("1.1", intended_at=10.0, started_at=10.5, ended_at=11.0, failure=None),
        Sent("1.2", 11.0, 11.0, 11.2, None),
    ]
    found = figures(sent, arrivals(("1.1", "9.1", "a", 13.0), ("1.2", "9.2", "b", 13.5)))
    assert found.last_image_to_sr == pytest.approx((2.0, 2.3))
    assert found.intended_to_sr == pytest.approx((3.0, 2.5))
    assert found.late_starts == pytest.approx((0.5, 0.0))
    assert found.studies_per_second == pytest.approx(2.0)


def test_a_report_before_the_last_image_does_not_count():
    """A study that was cut in two by its quiet period has an early report, and a later one that names it."""
    sent = [Sent("1.1", 0.0, 0.0, 5.0, None)]
    found = figures(sent, arrivals(("1.1", "9.1", "a", 4.0), ("1.1", "9.2", "b", 8.0)))
    assert (found.last_image_to_sr, found.lost) == ((3.0,), 0)
    found = figures(sent, arrivals(("1.1", "9.1", "a", 4.0)))
    assert (found.reported, found.lost) == (0, 1)


def test_a_study_of_which_only_a_part_was_accepted_is_owed_a_report_too():
    sent = [
        Sent("1.1", 0.0, 0.0, 60.0, "no answer in time", accepted_images=1, last_accepted_at=1.0),
        Sent("1.2", 0, 0, 1, "status 0xA700"),
    ]
    assert figures(sent, arrivals(("1.1", "9.1", "a", 3.0))).lost == 0
    found = figures(sent, arrivals())
    assert (found.lost, found.accepted, found.reported) == (1, 0, 0)


def test_nothing_reported_is_no_division_by_zero():
    assert figures([], Arrivals()).studies_per_second == 0
    assert percentiles([]) == {}


def test_the_same_report_twice_is_a_repetition_and_other_bytes_a_broken_promise():
    found = arrivals(("1.1", "9.1", "a", 1.0), ("1.1", "9.1", "a", 2.0), ("1.1", "9.1", "b", 3.0))
    assert (found.repeated, found.changed, found.by_study) == (1, ["9.1"], {"1.1": [1.0]})


def test_a_goal_says_whether_it_holds():
    assert Goal("x", 1, "s", 1).holds
    assert not Goal("x", 0.8, "s", 0.9, at_most=False).holds
    assert Goal("x", 2.0, "s", 1).as_json() == {
        "name": "x",
        "value": 2.0,
        "unit": "s",
        "goal": 1,
        "at_most": True,
        "holds": False,
    }


def test_a_figure_that_could_not_be_taken_holds_no_goal():
    missing = goals({}, dict.fromkeys(FIGURES, 0.5))
    assert not any(goal.holds for goal in missing)
    assert (
        json.loads(json.dumps([goal.as_json() for goal in missing], allow_nan=False))[0]["value"]
        is None
    )


def run(
    *noted: tuple[str, str, str, float], sent: list[Sent], settings: str = "", **around: object
) -> outcome.Outcome:
    plan = scenario.parse(
        "x",
        f"# Shows something.\n{settings}[goals]\nlost_studies = 0\nchanged_reports ="
        " 0\nsilent_refusals = 0",
    )
    samples = [
        Sample(float(at), {"listener": 100.0 + at}, {"analyse due": 4.0 if at > 3 else 0.0})
        for at in range(10)
    ]
    values = {"recovery_seconds": None, "before": {}, "after": {}, **around}
    own = {"generator": 0.2, "receiver": 0.1, "measuring": 0.5}
    loaded = Loaded(
        sent=sent,
        sent_afterwards=[],
        begin=0.0,
        ended_at=9.0,
        samples=samples,
        hilum={"listener": Usage(6.0)},
        own_cpu_seconds=own,
        **values,
    )  # type: ignore[arg-type]
    return outcome.judge(plan, 1.0, loaded, arrivals(*noted), None)


def test_lost_and_changed_reports_and_silent_failures_break_their_goals():
    sent = [
        Sent("1.1", 0, 0, 1, None),
        Sent("1.2", 0, 0, 1, None),
        Sent("1.3", 0, 0, 1, "status 0xA700"),
        Sent("1.4", 0, 0, 1, "association rejected (2,3,2)"),
        Sent("1.5", 0, 0, 1, "connection closed by the peer"),
    ]
    found = run(("1.1", "9.1", "a", 3.0), ("1.1", "9.1", "b", 3.0), sent=sent)
    assert {goal.name: goal.value for goal in found.goals if not goal.holds} == {
        FIGURES["lost_studies"].label: 1,
        FIGURES["changed_reports"].label: 1,
        FIGURES["silent_refusals"].label: 1,
    }
    assert found.values["refused_studies"] == 3


@pytest.mark.parametrize("name", ["steady", "idle", "mixed", "bursts"])
def test_a_listener_that_keeps_senders_waiting_breaks_a_goal(name: str):
    """By 6 s, of which nothing is left once the last image is accepted."""
    sent = [Sent(f"1.{number}", 0.0, 0.0, 6.0, None) for number in range(20)]
    reports = [(f"1.{number}", f"9.{number}", "a", 7.02 + number / 1000) for number in range(20)]
    found = run(*reports, sent=sent)
    held = {
        goal.name: goal.holds
        for goal in goals(found.values, scenario.read(name).goals)
        if "quiet period" in goal.name
    }
    assert held.pop(FIGURES["intended_beyond_quiet_p99_seconds"].label) is False
    assert set(held.values()) == {True}


def test_the_saturation_is_what_is_reported_while_studies_are_sent():
    uids = [f"1.{number}" for number in range(49)]
    reports = [
        (uid, f"9{uid}", uid, number + 0.5 if number < 9 else 9.5)
        for number, uid in enumerate(uids)
    ]
    found = run(
        *reports,
        sent=[Sent(uid, 0, 0, 1, None) for uid in uids],
        settings="stop_behind_seconds = 8.0\n",
    )
    assert found.values["saturation_studies_per_second"] == 0.9, (
        "of ten seconds; 40 reports came when the load was over"
    )


def test_the_result_and_its_picture_say_what_was_measured(tmp_path):
    found = run(
        ("1.1", "9.1", "a", 3.5),
        ("1.2", "9.2", "b", 4.5),
        sent=[Sent("1.1", 0, 0, 1, None), Sent("1.2", 1.2, 1.2, 2, None)],
    )
    content = json.loads(json.dumps(outcome.as_json(found, circumstances(), {})))
    assert content["per_second"] == {
        "offered": [1, 1, 0, 0, 0],
        "accepted": [0, 1, 1, 0, 0],
        "reported": [0, 0, 0, 1, 1],
    }
    assert content["seconds"]["last image to SR beyond the quiet period"]["p50"] == pytest.approx(
        1.5
    )
    assert content["cpu_seconds"] == {
        "hilum": {"listener": 6.0},
        "generator": 0.2,
        "receiver": 0.1,
        "measuring": 0.5,
    }
    assert content["figures"]["generator_of_hilum_cpu"] == pytest.approx(0.05)
    assert content["memory_growth_mib_per_minute"]["listener"] == pytest.approx(60.0)
    assert content["queues"] == {"analyse due": {"mean": 2.4, "max": 4.0}}
    picture.write(tmp_path / "load-x.json", found, content)
    assert (tmp_path / "load-x.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "load-x.html").read_text()
    assert "<svg" in page
    assert "Shows something." in page
    assert 'src="http' not in page


METRICS = """
# TYPE hilum_queue_items gauge
hilum_queue_items{{stage="analyse",priority="live",destination="",state="due"}} {due}
hilum_queue_items{{stage="analyse",priority="urgent",destination="",state="due"}} 1
# TYPE hilum_stage_wait_seconds histogram
hilum_stage_wait_seconds_bucket{{stage="analyse",le="0.1"}} {few}
hilum_stage_wait_seconds_bucket{{stage="analyse",le="1.0"}} {all}
hilum_stage_wait_seconds_bucket{{stage="analyse",le="+Inf"}} {all}
hilum_stage_wait_seconds_count{{stage="analyse"}} {all}
hilum_stage_wait_seconds_sum{{stage="analyse"}} {sum}
"""


def test_waits_are_what_the_histogram_grew_by():
    before, after = (
        parse(METRICS.format(**values))
        for values in (
            {"due": 0, "few": 5, "all": 5, "sum": 1},
            {"due": 6, "few": 55, "all": 105, "sum": 51},
        )
    )
    assert queues(after) == {"analyse due": 7}
    assert stretches(before, after) == {
        "analyse: wait": {
            "count": 100,
            "mean": 0.5,
            "p50": pytest.approx(0.1),
            "p99": pytest.approx(0.982),
        }
    }


def test_memory_that_stays_has_no_slope_and_few_samples_say_nothing():
    flat = [Sample(float(at), {"a": 100.0, "b": 50.0}, {}) for at in range(8)]
    assert memory_growth(flat)["all"] == pytest.approx(0.0, abs=1e-6)
    assert memory_growth(flat[:3]) == {}
    assert mean_queues(flat) == {}


@pytest.mark.parametrize("text", ["HILUM", "HILUM@host", "@host:1", "HILUM@:1", "HILUM@host:x"])
def test_a_wrong_peer_says_what_is_right(text: str):
    with pytest.raises(ValueError, match="AET@host:port"):
        Peer.parse(text)


def test_a_peer_is_written_as_it_is_read():
    assert str(Peer.parse("HILUM@h:104")) == "HILUM@h:104"


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
    text = as_toml(
        {"site": {"name": 'a "quoted" name'}, "receive": receive, "destinations.x": destination}
    )
    assert tomllib.loads(text) == {
        "site": {"name": 'a "quoted" name'},
        "receive": receive,
        "destinations": {"x": destination},
    }

"""The figures of `make bench-campaign`, from moments and rounds to goals."""

from __future__ import annotations

import json

import pytest

from load_tests.campaign import archives, run
from load_tests.campaign.live import LiveFigures
from load_tests.campaign.planned import PlannedFigures
from load_tests.campaign.systems import NotFinished, Rate, rate


def round_of(**rates: float) -> dict[str, Rate]:
    return {
        name.replace("_", "-"): Rate(10, images, {"listener": 0.01})
        for name, images in rates.items()
    }


def test_a_rate_leaves_out_its_warm_beginning():
    moments = [0.0, 50.0, *(100.0 + at for at in range(8))]

    found = rate(moments, {"decode": 4.0}, 8)

    assert found.images_per_second == pytest.approx(1.0)
    assert found.images == 10


def test_cpu_is_divided_by_the_images_that_were_read_meanwhile():
    found = rate([float(at) for at in range(10)], {"decode": 4.0, "listener": 1.0}, 8)

    assert found.cpu_seconds_per_image == {"decode": 0.5, "listener": 0.125}
    assert found.cpu_seconds == pytest.approx(0.625)


def test_images_that_were_read_at_one_moment_have_no_rate():
    with pytest.raises(NotFinished, match="more studies"):
        rate([5.0] * 10, {}, 10)


def test_a_ratio_is_the_median_of_rounds_and_compares_within_a_round():
    rounds = [
        round_of(bare=10.0, files=9.0),
        round_of(bare=100.0, files=50.0),
        round_of(bare=20.0, files=19.0),
    ]

    (found,) = run.goals(rounds, None, None)

    assert found.value == pytest.approx(0.9)
    assert found.holds


def test_the_peer_is_compared_by_rate_and_by_cpu():
    of_peer = {"c-move": Rate(10, 30.0, {"retriever": 0.02}), "peer": Rate(10, 20.0, {"w": 0.04})}

    by_rate, by_cpu = run.goals([of_peer], None, None)

    assert (by_rate.value, by_rate.holds) == (pytest.approx(1.5), True)
    assert (by_cpu.value, by_cpu.holds) == (pytest.approx(0.5), True)


def test_a_system_that_did_not_run_gives_no_goal():
    assert run.goals([round_of(bare=10.0)], None, None) == []


def test_the_added_time_is_the_difference_of_the_95th_percentiles():
    beside = LiveFigures(alone=(0.1,) * 20, beside=(0.25,) * 20, campaign_images=7)

    (found,) = run.goals([], beside, None)

    assert found.value == pytest.approx(150.0)
    assert not found.holds


def test_status_is_held_against_time_and_memory():
    many = PlannedFigures(100_000, 9.0, 0.8, 0.7, 250.0)

    seconds, memory = run.goals([], None, many)

    assert seconds.holds
    assert not memory.holds


def test_drawn_studies_have_uids_of_their_own(tmp_path):
    files = archives.draw(tmp_path, 3, 64, 48)

    assert len({file.name for file in files}) == 6
    assert len({file.parent for file in files}) == 3


def test_a_figure_of_a_result_is_plain_json():
    goals = run.goals([round_of(bare=10.0, files=9.5)], None, None)

    assert json.loads(json.dumps([goal.as_json() for goal in goals]))[0]["holds"] is True

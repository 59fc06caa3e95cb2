"""When studies start, and that nothing but the schedule decides it."""

from __future__ import annotations

import statistics
import threading
import time
from itertools import pairwise

import pytest

from load_tests.load.arrivals import bursts, constant, poisson, ramp, starts
from testing.network.sending import OnPermit, OnTime


def test_constant_is_evenly_spaced():
    assert list(constant(4, 1.0)) == [0.0, 0.25, 0.5, 0.75]
    assert list(constant(0.01, 1.0)) == [0.0]


def test_poisson_has_the_rate_and_the_spread_of_independent_arrivals_and_repeats_by_its_seed():
    moments = list(poisson(10, 1000, seed=3))
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    assert len(moments) == pytest.approx(10_000, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.05)
    assert moments == list(poisson(10, 1000, seed=3)) != list(poisson(10, 1000, seed=4))
    assert moments[-1] < 1000


def test_bursts_keep_the_mean_rate():
    moments = list(bursts(2, 60, 20))
    assert len(moments) == 120
    assert sorted(set(moments)) == [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]


@pytest.mark.parametrize(("first", "last"), [(1, 9), (9, 1), (5, 5)])
def test_a_ramp_has_the_rate_of_its_moment(first: float, last: float):
    moments = list(ramp(first, last, 100))
    assert len(moments) == (first + last) * 50
    at = {
        second: sum(second <= moment < second + 10 for moment in moments) / 10
        for second in (0, 45, 90)
    }
    assert [at[0], at[45], at[90]] == pytest.approx(
        [first + (last - first) * share for share in (0.05, 0.5, 0.95)], abs=0.25
    )


def test_a_schedule_travels_by_its_name():
    assert list(starts(("bursts", (2, 1, 2)))) == [0.0, 0.0]


def test_a_study_that_found_no_free_association_keeps_its_intended_start():
    begin = time.monotonic() - 10
    orders = OnTime(enumerate(constant(1, 3)), begin)
    assert [orders.take() for _ in range(4)] == [(0, begin), (1, begin + 1), (2, begin + 2), None]


def test_a_stopped_schedule_wakes_who_waits_for_the_next_study():
    orders, taken = OnTime(enumerate(constant(0.001, 3000)), time.monotonic() + 1000), []
    waiting = threading.Thread(target=lambda: taken.append(orders.take()))
    waiting.start()
    orders.stop()
    waiting.join(10)
    assert taken == [None]


def test_a_permit_is_one_study():
    orders = OnPermit()
    orders.permit(2)
    first, second = orders.take(), orders.take()
    assert first is not None
    assert second is not None
    assert (first[0], second[0]) == (0, 1)
    orders.stop()
    assert orders.take() is None

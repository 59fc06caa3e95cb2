"""When studies are to start, whatever the server does.

Schedules of an open loop, as iterators of seconds from the beginning.

Rates are studies a second. A schedule is the same each time it is iterated with the same arguments.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping


def constant(rate: float, seconds: float) -> Iterator[float]:
    """Evenly spaced; the first at 0."""
    for number in range(max(1, round(rate * seconds))):
        yield number / rate


def poisson(rate: float, seconds: float, seed: float) -> Iterator[float]:
    """Independent arrivals: the gaps are exponential, so that studies come in clusters as they do in a hospital."""
    source = random.Random(seed)
    moment = source.expovariate(rate)
    while moment < seconds:
        yield moment
        moment += source.expovariate(rate)


def bursts(rate: float, seconds: float, studies: float) -> Iterator[float]:
    """`studies` at one moment, then nothing, so that the mean is `rate`.

    A router that empties its queue.
    """
    for number in range(max(1, round(rate * seconds / studies))):
        yield from [number * studies / rate] * int(studies)


def ramp(first_rate: float, last_rate: float, seconds: float) -> Iterator[float]:
    """A rate that changes evenly from `first_rate` to `last_rate`."""
    slope = (last_rate - first_rate) / seconds
    for number in range(max(1, round((first_rate + last_rate) / 2 * seconds))):
        # Study n is due when the area below the rate is n: first_rate t + slope t²/2 = n, in the
        # form that bears a slope of zero.
        yield 2 * number / (first_rate + math.sqrt(max(0.0, first_rate**2 + 2 * slope * number)))


SCHEDULES: Mapping[str, Callable[..., Iterator[float]]] = {
    "constant": constant,
    "poisson": poisson,
    "bursts": bursts,
    "ramp": ramp,
}

Schedule = tuple[str, tuple[float, ...]]
"""Name of a schedule and its arguments, as it travels to the sender's processes."""


def starts(schedule: Schedule) -> Iterator[float]:
    """Intended starts in seconds from the beginning."""
    name, arguments = schedule
    return SCHEDULES[name](*arguments)

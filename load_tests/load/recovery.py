"""After the load: how soon a study is again as quick as in an idle street."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from load_tests.load.ground import Ground
from testing.network.senders import Senders
from testing.network.sending import Sent

_IN_A_ROW = 3


def senders_afterwards(ground: Ground) -> Senders:
    """A study each second, sent when the load is over.

    The process waits from the beginning, because it takes a second to start.
    """
    seconds = ground.scenario.recovery_seconds
    return ground.senders(
        ("constant", (1.0, seconds)),
        replace(ground.manners, patience_seconds=0.0),
        processes=1 if seconds else 0,
    )


def recover(ground: Ground, senders: Senders, ended_at: float) -> float | None:
    """Seconds from `ended_at` to the first of three studies in a row that are as quick as in an idle street; None: it never came."""
    ground.say("load over; one study a second until the latency is that of an idle street")
    senders.go(time.monotonic())
    for _ in ground.looks(senders.sent, ended_at):
        if (found := _first_quick(ground, senders.sent)) is not None:
            senders.stop()
            return max(0.0, found.intended_at - ended_at)
        if senders.is_done:
            break
    return None


def _first_quick(ground: Ground, sent: Sequence[Sent]) -> Sent | None:
    """The first of so many studies in a row whose reports came in time."""
    for at in range(len(sent) - _IN_A_ROW + 1):
        row = sent[at : at + _IN_A_ROW]
        if all(_is_quick(ground, study) for study in row):
            return row[0]
    return None


def _is_quick(ground: Ground, study: Sent) -> bool:
    since = study.promised_at
    reported = (
        ground.receiver.arrivals.first_after(study.study_instance_uid, since)
        if since and study.failure is None
        else None
    )
    return (
        reported is not None
        and since is not None
        and reported - since - ground.quiet_seconds <= ground.scenario.recovered_below_seconds
    )

"""pacs_down and pacs_times_out.

A receiver that is away, and one that takes reports and never answers.
"""

from __future__ import annotations

from load_tests.load.measure import Goal
from load_tests.proof.part import Found, Plan, pause
from load_tests.proof.street.street import Street, wait_for

TIMEOUT_SECONDS = 2.0
_BACK_SECONDS = 60.0


def pacs_down(plan: Plan, street: Street) -> Found:
    """Refuses connections for 30 s; the short form for 5."""
    seconds = plan.of(30, 5)
    street.begin()
    plan.say(f"the PACS is down for {seconds:g} s")
    street.pacs.behave("down")
    pause(seconds)
    waiting = street.outstanding()
    _recover(street)
    return Found({"seconds_down": seconds, "studies_that_waited_for_the_pacs": waiting})


def pacs_times_out(plan: Plan, street: Street) -> Found:
    """Takes reports for 30 s, in the short form for 5, and answers nothing.

    They come again, the same bytes under the same UID.
    """
    seconds = plan.of(30, 5)
    before = street.pacs.arrivals.repeated
    street.begin()
    plan.say(f"the PACS takes reports and does not answer for {seconds:g} s")
    street.pacs.behave("silent")
    pause(seconds)
    _recover(street)
    wait_for(
        lambda: street.pacs.arrivals.repeated > before, _BACK_SECONDS, "a report that comes again"
    )
    repeated = street.pacs.arrivals.repeated - before
    return Found(
        {"seconds_silent": seconds},
        (Goal("reports that came again", repeated, "reports", 1, at_most=False),),
    )


def _recover(street: Street) -> None:
    street.pacs.behave("well")
    street.fault()

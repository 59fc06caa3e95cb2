"""The phases of a run: warm-up, probe for the saturation, and the load with what follows it.

Each waits on what the receiver saw.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from load_tests.load.arrivals import Schedule
from load_tests.load.ground import LOOK_SECONDS, Ground, NotMeasured, drain
from load_tests.load.recovery import recover, senders_afterwards
from load_tests.load.scrapes import Scrape
from load_tests.load.watch import Sample
from testing.accounting import Snapshot, spent
from testing.network.senders import Senders
from testing.network.sending import Sent

_WARM_UP_STUDIES = 4
_PROBE_BEGINS_SECONDS = 4.0  # beyond the quiet period: until the street is full
_PROBE_STUDIES = (
    4  # counted at least: a machine whose cores are all busy may report none in a short probe
)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the load left behind; moments of `time.monotonic`."""

    sent: list[Sent]
    sent_afterwards: list[Sent]
    begin: float
    ended_at: float
    samples: list[Sample]
    before: Scrape
    after: Scrape
    hilum: Snapshot
    own_cpu_seconds: dict[str, float]  # generator, receiver, measuring
    recovery_seconds: float | None = None


def warm_up(ground: Ground) -> None:
    """A few studies that are not counted: first use of models, templates and associations.

    Raises NotMeasured: none is reported.
    """
    ground.say("warming up")
    with ground.senders(
        None, replace(ground.manners, associations=1, patience_seconds=0.0), processes=1
    ) as senders:
        senders.go(time.monotonic())
        senders.permit(_WARM_UP_STUDIES)
        _wait(lambda: len(senders.sent) >= _WARM_UP_STUDIES, ground.manners.timeout_seconds)
    drained = drain(ground, senders.sent)
    if not drained or not any(study.failure is None for study in senders.sent):
        reasons = (
            ", ".join(sorted({study.failure for study in senders.sent if study.failure}))
            or "accepted, but no report came"
        )
        raise NotMeasured(
            f"no report on the warm-up: {reasons}. Does its destination send here, and accept"
            " untrained results?"
        )


def probe(ground: Ground) -> float:
    """Saturation, studies a second: what comes out while as many studies are open as keep it busy.

    Raises NotMeasured.

    It takes `probe_seconds`, or longer until a few reports are counted, but not longer than an
    association waits for an answer.
    """
    ground.say(f"looking for the saturation, {ground.scenario.probe_seconds:g} s")
    with ground.senders(None, replace(ground.manners, patience_seconds=0.0)) as senders:
        begin = time.monotonic()
        end = begin + ground.scenario.probe_seconds
        counted_from = max(
            begin, min(begin + ground.quiet_seconds + _PROBE_BEGINS_SECONDS, end - 1)
        )
        senders.go(begin)
        ended_at = _keep_busy(ground, senders, counted_from, end)
        senders.stop()
    count = _reports_between(ground, counted_from, ended_at)
    if not drain(ground, senders.sent) or count < _PROBE_STUDIES:
        reason = (
            f"the probe for the saturation counted {count} reports, or did not get all it"
            " waited for"
        )
        raise NotMeasured(f"{reason}; make probe_seconds longer")
    saturation = count / (ended_at - counted_from)
    ground.say(f"saturation {saturation:.2f} studies/s")
    return saturation


def _keep_busy(ground: Ground, senders: Senders, counted_from: float, end: float) -> float:
    """As many open studies as the quiet period holds, twice, and a few.

    Every stage has work, and it is drained soon. → when it ended.

    That is `end`, or later when too few are reported then.
    """
    permitted = 0
    count_before = ground.receiver.arrivals.count()
    latest = end + ground.manners.timeout_seconds
    while (now := time.monotonic()) < end or (
        _reports_between(ground, counted_from, now) < _PROBE_STUDIES and now < latest
    ):
        recent = _reports_between(ground, now - 2, now) / 2
        # A refused study is not replaced at once: a second later, as a router would try again.
        refused = sum(
            study.failure is not None and study.ended_at < now - 1 for study in senders.sent
        )
        done = ground.receiver.arrivals.count() - count_before + refused
        more = max(0, int(12 + 2 * recent * (ground.quiet_seconds + 1)) - (permitted - done))
        senders.permit(more)
        permitted += more
        time.sleep(LOOK_SECONDS)
    return now


def load(ground: Ground, unit_rate: float) -> Loaded:
    """The load that counts, then the way back to an idle latency, then everything drained."""
    scenario = ground.scenario
    receiver = ground.receiver
    watch = ground.watch
    schedule = scenario.arrivals.schedule(scenario.seconds, unit_rate)
    ground.say(f"load: {_words(schedule)} for {scenario.seconds:g} s")
    with ground.senders(schedule) as senders, senders_afterwards(ground) as few:
        before = watch.scrape()
        used = watch.used()
        received = receiver.cpu_seconds()
        ours = time.process_time()
        begin = time.monotonic() + 0.2
        senders.go(begin)
        _watch_load(ground, senders, begin)
        ended_at = time.monotonic()
        recovery = recover(ground, few, ended_at) if scenario.recovery_seconds else None
    drain(ground, [*senders.sent, *few.sent])
    hilum = spent(used, watch.used())
    received = receiver.cpu_seconds() - received
    cpu = {
        "generator": senders.cpu_seconds,
        "receiver": received,
        "measuring": time.process_time() - ours,
    }
    samples = [sample for sample in watch.samples if sample.at >= begin]
    return Loaded(
        senders.sent,
        few.sent,
        begin,
        ended_at,
        samples,
        before,
        watch.scrape(),
        hilum,
        cpu,
        recovery,
    )


def _watch_load(ground: Ground, senders: Senders, begin: float) -> None:
    """Until all studies are answered, or the reports are further behind than the scenario bears."""
    for _ in ground.looks(senders.sent, begin):
        if senders.is_done:
            return
        if 0 < ground.scenario.stop_behind_seconds < _behind(ground, senders.sent):
            ground.say(
                f"reports are {ground.scenario.stop_behind_seconds:g} s behind: the load ends here"
            )
            senders.stop()
            _wait(lambda: senders.is_done, ground.manners.timeout_seconds)
            return


def _behind(ground: Ground, sent: list[Sent]) -> float:
    """How late the oldest report is, the quiet period apart, in seconds."""
    waiting = (study.promised_at for study in ground.unreported(list(sent)))
    oldest = min((since for since in waiting if since is not None), default=time.monotonic())
    return time.monotonic() - oldest - ground.quiet_seconds


def _reports_between(ground: Ground, start: float, end: float) -> int:
    arrivals = ground.receiver.arrivals
    with arrivals.lock:
        return sum(start <= moments[0] < end for moments in arrivals.by_study.values())


def _wait(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)


def _words(schedule: Schedule) -> str:
    name, values = schedule
    return f"{name}, {values[0]:.3g}{f' to {values[1]:.3g}' if name == 'ramp' else ''} studies/s"

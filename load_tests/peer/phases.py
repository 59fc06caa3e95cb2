"""What is done to each system.

Studies far apart, and as many as it takes; its sender and its PACS stand beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from testing.accounting import Accountant, spent
from testing.network.peer_address import Peer
from testing.network.receiver import Receiver
from testing.network.senders import Senders
from testing.network.sending import Manners, Sent

_STALL_SECONDS = 90.0
_LOOK_SECONDS = 0.02


class RunBroken(Exception):
    """A study was refused, or none was reported for a long time: there is nothing to compare."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """A window in which a fixed number of studies was always on its way.

    CPU of the system alone, in seconds per reported study.
    """

    studies: int
    studies_per_second: float
    cpu_seconds_per_study: Mapping[str, float]
    last_image_to_sr: tuple[float, ...]


class Offering:
    """Studies on permit to one system, and their reports. A context manager."""

    def __init__(
        self, address: Peer, mix_folder: Path, receiver: Receiver, associations: int
    ) -> None:
        self._senders = Senders(address, mix_folder, Manners(associations))
        self._arrivals = receiver.arrivals
        self._reported_before = receiver.arrivals.count()
        self._permitted = 0

    def __enter__(self) -> Self:
        """Start the sender."""
        self._senders.__enter__()
        self._senders.go(time.monotonic())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the sender."""
        self._senders.stop()
        self._senders.__exit__(kind, error, traceback)

    @property
    def generator_cpu_seconds(self) -> float:
        """CPU of the sender; 0 until the block has ended."""
        return self._senders.cpu_seconds

    @property
    def repeated(self) -> int:
        """Reports beyond the first on a study."""
        return sum(len(moments) - 1 for moments in list(self._arrivals.by_study.values()))

    def reported(self) -> int:
        """Studies with a report. Raises RunBroken: one was refused."""
        if failures := {
            study.failure for study in list(self._senders.sent) if study.failure is not None
        }:
            raise RunBroken(f"studies were not accepted: {', '.join(sorted(failures))}")
        return self._arrivals.count() - self._reported_before

    def accepted(self) -> int:
        """Studies that the system has taken."""
        return len(self._senders.sent)

    def keep(self, outstanding: int) -> None:
        """See to it that so many are on their way."""
        more = outstanding - (self._permitted - self.reported())
        self._senders.permit(more)
        self._permitted += max(0, more)

    def send(self, studies: int, outstanding: int) -> None:
        """So many in all, of which `outstanding` are on their way at once, until all are reported.

        Raises RunBroken.
        """
        end = self._permitted + studies
        self._wait_for(end, lambda: self.keep(min(outstanding, end - self.reported())))

    def drain(self) -> None:
        """Until all are reported. Raises RunBroken."""
        self._wait_for(self._permitted, lambda: None)

    def _wait_for(self, reports: int, meanwhile: Callable[[], None]) -> None:
        """Until so many have come; raises RunBroken when none comes for a long time."""
        count = self.reported()
        deadline = time.monotonic() + _STALL_SECONDS
        while self.reported() < reports:
            meanwhile()
            if self.reported() > count:
                count = self.reported()
                deadline = time.monotonic() + _STALL_SECONDS
            _pause(deadline)

    def latencies(self, after: float, until: float) -> list[float]:
        """Seconds from the last image's Success to the report, of the reports that came in this time."""
        pairs = [(study, self._report(study)) for study in list(self._senders.sent)]
        return [
            at - study.ended_at for study, at in pairs if at is not None and after <= at < until
        ]

    def _report(self, study: Sent) -> float | None:
        return self._arrivals.first_after(study.study_instance_uid, study.ended_at)


def warm_up(offering: Offering, studies: int) -> None:
    """First use of everything, not counted."""
    offering.keep(studies)
    offering.drain()


def idle(offering: Offering, studies: int, wait_seconds: float) -> list[float]:
    """One study at a time: seconds from its last image to its report, beyond the wait that closes a study."""
    began = time.monotonic()
    for _ in range(studies):
        offering.keep(1)
        offering.drain()
        time.sleep(0.5)
    return [latency - wait_seconds for latency in offering.latencies(began, time.monotonic())]


def saturate(
    offering: Offering, accountant: Accountant, outstanding: int, seconds: float
) -> Saturation:
    """`outstanding` studies are always on their way.

    The window begins when as many are accepted, so that the ramp is not counted.
    """
    _fill(offering, outstanding)
    before = accountant.snapshot()
    began = time.monotonic()
    done = offering.reported()
    while time.monotonic() < began + seconds:
        offering.keep(outstanding)
        time.sleep(_LOOK_SECONDS)
    used = spent(before, accountant.snapshot())
    ended = time.monotonic()
    studies = offering.reported() - done
    if studies == 0:
        raise RunBroken(f"no report in {seconds:g} s of saturation")
    latencies = offering.latencies(began, ended)
    offering.drain()
    costs = {role: use.cpu_seconds / studies for role, use in sorted(used.items())}
    return Saturation(studies, studies / (ended - began), costs, tuple(latencies))


def _fill(offering: Offering, outstanding: int) -> None:
    """Until the system owes that many reports, and has delivered a quarter of them."""
    accepted = offering.accepted()
    reported = offering.reported()
    deadline = time.monotonic() + _STALL_SECONDS
    while (
        offering.accepted() < accepted + outstanding
        or offering.reported() < reported + outstanding // 4
    ):
        offering.keep(outstanding)
        _pause(deadline)


def _pause(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise RunBroken(f"no report for {_STALL_SECONDS:.0f} s")
    time.sleep(_LOOK_SECONDS)

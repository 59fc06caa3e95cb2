"""Where a run takes place: Hilum, the generator, the receiver, and what is looked at."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from load_tests.load.arrivals import Schedule
from load_tests.load.scenario import Scenario
from load_tests.load.watch import Watch
from testing.network.peer_address import Peer
from testing.network.receiver import Receiver
from testing.network.senders import Senders
from testing.network.sending import Manners, Sent

Say = Callable[[str], None]
LOOK_SECONDS = 0.1
_SAY_SECONDS = 5.0


class NotMeasured(Exception):
    """The run did not take place; the text says why."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where a run takes place."""

    scenario: Scenario
    peer: Peer
    receiver: Receiver
    mix_folder: Path
    watch: Watch
    quiet_seconds: float
    say: Say

    @property
    def manners(self) -> Manners:
        """Of the sender."""
        sender = self.scenario.sender
        return Manners(
            sender.associations,
            sender.keeps_associations,
            sender.patience_seconds,
            sender.timeout_seconds,
        )

    def senders(
        self,
        schedule: Schedule | None,
        manners: Manners | None = None,
        processes: int | None = None,
    ) -> Senders:
        """The generator's processes; without a schedule they wait for permits."""
        count = self.scenario.sender.processes if processes is None else processes
        return Senders(self.peer, self.mix_folder, manners or self.manners, count, schedule)

    def unreported(self, sent: Sequence[Sent]) -> list[Sent]:
        """Studies for which the server owes a report."""
        first_after = self.receiver.arrivals.first_after
        return [
            study
            for study in sent
            if (since := study.promised_at) is not None
            and first_after(study.study_instance_uid, since) is None
        ]

    def looks(self, sent: Sequence[Sent], begin: float) -> Iterator[None]:
        """For a loop that waits: ten looks a second, and a line of progress each five seconds."""
        said = time.monotonic()
        while True:
            yield
            time.sleep(LOOK_SECONDS)
            if time.monotonic() - said >= _SAY_SECONDS:
                said = time.monotonic()
                accepted = sum(study.failure is None for study in sent)
                waiting = len(self.unreported(list(sent)))
                self.say(
                    f"{said - begin:5.0f} s: {len(sent)} sent, {accepted} accepted, {waiting} wait"
                    " for their report"
                )


def drain(ground: Ground, sent: Sequence[Sent]) -> bool:
    """Wait until every accepted study has its report.

    False: some have none after the quiet period and `drain_seconds` without any.
    """
    patience = ground.quiet_seconds + ground.scenario.drain_seconds
    open_studies = ground.unreported(sent)
    since = time.monotonic()
    for _ in ground.looks(sent, since):
        left = ground.unreported(open_studies)
        since = time.monotonic() if len(left) < len(open_studies) else since
        open_studies = left
        if not open_studies or time.monotonic() - since > patience:
            break
    return not open_studies

"""Several images of one request at the same time, each with an outcome of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from hilum.domain import ExpectedImage
from hilum.retrieve.source import FetchReport, FetchRequest, PartOutcome, SourceError

_AT_ONCE: Final = 4
_NAMED: Final = 3  # images that a report names; a series may have thousands


class FetchInterrupted(Exception):
    """A fetch that ends early: it is to stop, or its time is over."""


@dataclass(frozen=True, slots=True)
class FetchLimit:
    """When a fetch ends early: `stop` is set, or the monotonic clock reaches `ends_at`."""

    stop: threading.Event
    ends_at: float

    @property
    def is_over(self) -> bool:
        """Whether its time is over."""
        return time.monotonic() >= self.ends_at

    def check(self) -> None:
        """Raise FetchInterrupted if the fetch is to end."""
        if self.stop.is_set() or self.is_over:
            raise FetchInterrupted


class ParallelFetch:
    """Copies the images of a request, four at a time: the disk then syncs several at once."""

    def __init__(self, at_once: int = _AT_ONCE) -> None:
        self._pool = ThreadPoolExecutor(at_once, "hilum-fetch")

    def fetch(
        self,
        wanted: FetchRequest,
        stop: threading.Event,
        copy: Callable[[ExpectedImage, FetchLimit], PartOutcome],
    ) -> FetchReport:
        """Return when each image has its outcome.

        `copy`: store one image. It runs in several threads. SourceError in it ends the fetch.
        """
        limit = FetchLimit(stop, time.monotonic() + wanted.limit_seconds)
        broken = threading.Event()

        def copy_one(image: ExpectedImage) -> PartOutcome | SourceError | None:
            try:
                if broken.is_set():
                    return None
                limit.check()
                return copy(image, limit)
            except FetchInterrupted:
                return None
            except SourceError as error:
                broken.set()
                return error

        return _report(list(self._pool.map(copy_one, wanted.images)), limit)

    def close(self) -> None:
        """End the threads; may be called twice."""
        self._pool.shutdown(cancel_futures=True)


def _report(outcomes: Sequence[PartOutcome | SourceError | None], limit: FetchLimit) -> FetchReport:
    for outcome in outcomes:
        if isinstance(outcome, SourceError):
            return FetchReport("error", outcome.detail, outcome.is_outage, outcome.is_final)
    if None in outcomes:
        return _cut_short(outcomes, limit)
    problems = [item for item in outcomes if isinstance(item, PartOutcome) and item.problem]
    return _incomplete(problems, len(outcomes)) if problems else FetchReport("stored")


def _incomplete(problems: Sequence[PartOutcome], images: int) -> FetchReport:
    named = "; ".join(f"{item.sop_instance_uid}: {item.problem}" for item in problems[:_NAMED])
    return FetchReport(
        "incomplete",
        f"{len(problems)} of {images} images: {named}",
        may_repeat=any(item.is_transient for item in problems),
    )


def _cut_short(
    outcomes: Sequence[PartOutcome | SourceError | None], limit: FetchLimit
) -> FetchReport:
    left = sum(1 for outcome in outcomes if outcome is None)
    if limit.stop.is_set():
        return FetchReport("stopped", f"stopped with {left} of {len(outcomes)} images left")
    return FetchReport("timed out", f"the time is over with {left} of {len(outcomes)} images left")

"""Look-ups of the priority of new studies in a modality worklist, beside the indexing.

No reading waits for an answer: images have their rows, and are read, before the worklist is asked.
Studies that wait in memory are lost with their process; the next image of a study asks again.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from sqlalchemy.exc import SQLAlchemyError

from hilum.backoff import Backoff
from hilum.domain import Priority, WorklistAnswer
from hilum.observability import telemetry
from hilum.receive.headers.patient import identity_of
from hilum.receive.indexing.indexer import Seen, unseen
from hilum.receive.threads import start_thread
from hilum.retrieve.pace.source_breaker import SourceBreaker
from hilum.retrieve.source import SourceError
from hilum.retrieve.worklist.entries import OrderPriority, is_askable
from hilum.settings import Settings, Worklist
from hilum.store.ledger import Arrival, Ledger

_PLACES: Final = 100
_KEPT_SECONDS: Final = 300.0
_KEPT: Final = 10_000
_PAUSES: Final = Backoff(5.0, 60.0)
_CLOSE_SECONDS: Final = 3.0
_log = telemetry.logger("receive")


class OrderClient(Protocol):
    """A client of a worklist; see `retrieve.worklist.client.WorklistClient`."""

    def ask(self, accession: str) -> OrderPriority:
        """Return the priority of an order. Raises SourceError."""

    def close(self) -> None:
        """Release the association."""


class _Question(NamedTuple):
    study_instance_uid: str
    accession: str


@contextlib.contextmanager
def priority_lookup(settings: Settings, ledger: Ledger) -> Iterator[Seen]:
    """Yield the function that takes new images; it does nothing without a worklist."""
    if not settings.worklist.host:
        yield unseen
        return
    # pynetdicom is not needed without a worklist.
    from hilum.retrieve.worklist.client import WorklistClient  # noqa: PLC0415

    lookup = PriorityLookup(settings.worklist, ledger, WorklistClient(settings.worklist))
    lookup.start()
    try:
        yield lookup.see
    finally:
        lookup.close()


class PriorityLookup:
    """Asks once for each study, on a thread of its own.

    At most 100 studies wait. An answer is kept for five minutes, so that the same order is asked
    for once. While the worklist is away, one look-up after each pause asks whether it is back.
    """

    def __init__(
        self,
        settings: Worklist,
        ledger: Ledger,
        client: OrderClient,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._client = client
        self._clock = clock
        self._breaker = SourceBreaker(_PAUSES)
        self._is_away = False
        # Until when a study is not asked for again. Changed by one operation each.
        self._asked: dict[str, float] = {}
        self._answers: OrderedDict[str, tuple[float, OrderPriority]] = OrderedDict()
        self._waiting: queue.SimpleQueue[_Question | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = start_thread("worklist", self._run)

    def close(self) -> None:
        """End the thread after its look-up. Studies that wait are not asked for."""
        self._stopping.set()
        self._waiting.put(None)
        if self._thread is not None:
            self._thread.join(self._settings.timeout_seconds + _CLOSE_SECONDS)

    def see(self, arrivals: Sequence[Arrival]) -> None:
        """Take images that have just got their rows. Never waits."""
        now = self._clock()
        for arrival in arrivals:
            uid = arrival.instance.study_instance_uid
            if not _is_for_worklist(arrival) or self._asked.get(uid, 0.0) > now:
                continue
            if len(self._asked) >= _KEPT:
                self._asked.clear()
            self._asked[uid] = now + _KEPT_SECONDS
            self._put(_Question(uid, identity_of(arrival.instance).accession_number))

    def _put(self, question: _Question) -> None:
        if not question.accession:
            _count("no_accession")
        elif not is_askable(question.accession):
            _count("unsuitable")
        elif self._waiting.qsize() >= _PLACES:
            self._give_up(question, "queue_full")
        else:
            self._waiting.put(question)

    def _run(self) -> None:
        while (question := self._waiting.get()) is not None and not self._stopping.is_set():
            if (answer := self._answer(question)) is not None:
                self._write(question, answer)
            if self._waiting.empty():
                self._client.close()
        self._client.close()

    def _answer(self, question: _Question) -> OrderPriority | None:
        """Return the priority of an order, as it is kept or as the worklist says; None: none."""
        kept_until, answer = self._answers.get(question.accession, (0.0, None))
        if answer is not None and kept_until > self._clock():
            return answer
        if self._breaker.closed_until(self._clock()) is not None:
            self._give_up(question, "away")
            return None
        answer = self._ask(question)
        if answer is None:
            self._give_up(question, "failed")
            return None
        self._answers[question.accession] = (self._clock() + _KEPT_SECONDS, answer)
        self._answers.move_to_end(question.accession)
        if len(self._answers) > _KEPT:
            self._answers.popitem(last=False)
        return answer

    def _ask(self, question: _Question) -> OrderPriority | None:
        """Ask the worklist; None: it gave no usable answer."""
        started = time.monotonic()
        try:
            answer = self._client.ask(question.accession)
        except SourceError as error:
            self._fail(error.detail)
            return None
        except Exception as error:  # noqa: BLE001 - any error ends this look-up only
            self._fail(f"{self._settings.address}: {type(error).__name__}")
            return None
        finally:
            telemetry.WORKLIST_SECONDS.observe(time.monotonic() - started)
        self._breaker.ended(self._clock(), is_outage=False)
        if self._is_away:
            self._is_away = False
            _log.info("worklist_available", worklist=self._settings.address)
        return answer

    def _fail(self, detail: str) -> None:
        self._client.close()
        self._breaker.ended(self._clock(), is_outage=True)
        if not self._is_away:
            self._is_away = True
            advice = "studies keep their priority; `hilum worklist probe` says more"
            _log.warning("worklist_unavailable", detail=detail, advice=advice)

    def _write(self, question: _Question, answer: OrderPriority) -> None:
        if not answer.words:
            _count("no_priority" if answer.entries else "no_order")
            return
        said = WorklistAnswer(
            answer.words, self._settings.address, self._clock(), is_urgent=answer.is_urgent
        )
        uid = question.study_instance_uid
        try:
            written = self._ledger.take_worklist_answer(uid, said)
        except SQLAlchemyError as error:
            self._give_up(question, "not_written")
            _log.warning(
                "worklist_answer_lost",
                study_instance_uid=uid,
                problem=type(error).__name__,
                advice="the next image of the study asks again",
            )
            return
        if written is None:  # it was erased meanwhile
            self._give_up(question, "not_written")
            return
        _count("urgent" if answer.is_urgent else "not_urgent")

    def _give_up(self, question: _Question, outcome: str) -> None:
        """Count a study without an answer. Its next image asks again."""
        self._asked.pop(question.study_instance_uid, None)
        _count(outcome)


def _is_for_worklist(arrival: Arrival) -> bool:
    """Return whether no rule, folder or campaign has fixed the priority of its study."""
    is_fixed = arrival.decision is not None and arrival.decision.priority is not None
    is_read = not arrival.not_analysed
    return arrival.priority is Priority.LIVE and not is_fixed and not arrival.campaigns and is_read


def _count(outcome: str) -> None:
    telemetry.WORKLIST_LOOKUPS.labels(outcome=outcome).inc()

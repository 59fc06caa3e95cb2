"""Documents that a receiver takes without an answer: when the document is the cause, and when not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from hilum.deliver import Probe, ReceiverBusy, UnknownOutcome
from hilum.deliver.circuit_breaker import CircuitBreaker
from hilum.domain import Document
from hilum.errors import Retry
from hilum.settings import Pipeline
from tests.support.deliver.stow_receiver import REPORT

SHORT = Pipeline(backoff_seconds=1e-4, maximum_backoff_seconds=1e-3)
AT_ONCE = 8  # documents that are claimed together


class ScriptedClient:
    """Fails for the documents that `fails` returns an error for; remembers what it was given."""

    def __init__(self, fails: Callable[[int], Retry | None]) -> None:
        self.fails = fails
        self.given: list[int] = []

    def deliver(self, document: Document) -> None:
        """Take it, or fail."""
        self.given.append(document.id)
        error = self.fails(document.id)
        if error is not None:
            raise error

    def probe(self, limit_seconds: float | None = None) -> Probe:
        """Nothing asks for it."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is open."""


def silent(_number: int) -> Retry:
    return UnknownOutcome("no answer")


def sent(breaker: CircuitBreaker, numbers: Iterable[int]) -> list[Retry | None]:
    """What becomes of documents that are tried one after the other, each when a try is due."""
    found: list[Retry | None] = []
    for number in numbers:
        while breaker.is_open:
            pass
        try:
            breaker.deliver(replace(REPORT, id=number))
        except Retry as error:
            found.append(error)
        else:
            found.append(None)
    return found


def counts(found: Iterable[Retry | None]) -> list[bool]:
    """Whether each try counts toward the last one."""
    return [error is not None and not error.is_outage for error in found]


def test_a_receiver_that_answers_no_document_is_an_outage_after_eight() -> None:
    client = ScriptedClient(silent)
    breaker = CircuitBreaker("pacs", client, SHORT)
    found = sent(breaker, range(AT_ONCE))
    assert counts(found) == [True] * 7 + [False]
    assert breaker.is_away


@pytest.mark.parametrize("error", [UnknownOutcome, ReceiverBusy])
def test_while_it_lasts_no_try_counts(error: type[Retry]) -> None:
    """A night of it must not make dead letters of a queue."""
    breaker = CircuitBreaker("pacs", ScriptedClient(lambda _: error("as the test says")), SHORT)
    sent(breaker, range(AT_ONCE))
    assert not any(counts(sent(breaker, range(100, 140))))
    assert breaker.is_away


def test_within_an_outage_two_documents_are_tried_before_the_next_pause() -> None:
    breaker = CircuitBreaker("pacs", ScriptedClient(silent), SHORT)
    sent(breaker, range(AT_ONCE))
    sent(breaker, [100])
    assert not breaker.is_open, "that one may be the cause itself"
    long = CircuitBreaker("pacs", ScriptedClient(silent), Pipeline(backoff_seconds=100.0))
    for number in range(AT_ONCE):
        with pytest.raises(Retry):
            long.deliver(replace(REPORT, id=number))
    assert long.is_open


def test_one_document_that_never_gets_an_answer_does_not_keep_the_others_away() -> None:
    """First in the queue after an outage, as an urgent one is."""
    client = ScriptedClient(silent)
    breaker = CircuitBreaker("pacs", client, SHORT)
    sent(breaker, range(AT_ONCE))
    client.fails = lambda number: UnknownOutcome("no answer") if number == 100 else None
    found = sent(breaker, [100, 101, 100, 102])
    assert [error is None for error in found] == [False, True, False, True]
    assert counts(found) == [False, False, True, False], "once others are taken, its tries count"
    assert not breaker.is_away


def test_a_document_that_waits_alone_counts_from_its_second_try_on() -> None:
    breaker = CircuitBreaker("pacs", ScriptedClient(silent), SHORT)
    sent(breaker, range(AT_ONCE))
    assert counts(sent(breaker, [100, 100, 100])) == [False, True, True]


def test_silence_is_no_answer_that_ends_an_outage() -> None:
    client = ScriptedClient(lambda _: Retry("no connection", is_outage=True))
    breaker = CircuitBreaker("pacs", client, SHORT)
    sent(breaker, [1])
    client.fails = silent
    assert counts(sent(breaker, [2, 3])) == [False, False]
    assert breaker.is_away

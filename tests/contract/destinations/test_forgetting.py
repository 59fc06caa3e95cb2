"""A destination that was taken out of the settings.

What waits for it is given up, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hilum.domain import (
    Advance,
    CommitmentRequest,
    CommitmentState,
    DeliveryState,
    Job,
    Priority,
    ReportJob,
    SopReference,
)
from hilum.settings import DicomDestination
from hilum.store.admin.operator import Forgotten
from hilum.store.archive.archive import Archive
from hilum.store.ledger import Ledger
from hilum.store.queries.views import LedgerViews
from hilum.store.queue.commitments import LeaseOwner
from hilum.store.retention.policy import RetentionPolicy, Rule
from hilum.store.schema.tables import commitment, delivery
from tests.support.ledger.street import Clock, Street

GONE, PACS = "gone", "pacs"


@pytest.fixture
def street(ledger_url: str, clock: Clock) -> Iterator[Street]:
    ledger = Ledger(ledger_url, clock)
    yield Street(ledger, clock, (PACS, GONE))
    ledger.close()


def reported(street: Street, *studies: str) -> None:
    for study in studies:
        street.receive(study, 1)
    street.read()
    street.assemble()
    street.report()


def claimed(street: Street, name: str, seconds: float = 60.0) -> Job:
    (job,) = street.ledger.claim("deliver", 1, "d", seconds, destination_name=name)
    return job


def dead(street: Street, name: str, reason: str) -> None:
    street.ledger.advance(
        "deliver", [(claimed(street, name).lease, Advance(DeliveryState.DEAD, {"reason": reason}))]
    )


def ends(street: Street, name: str) -> list[tuple[str, str | None, int]]:
    return [
        (row.state, row.reason, row.attempts)
        for row in street.rows(delivery)
        if row.destination == name
    ]


def test_what_is_due_or_dead_or_left_behind_ends_and_what_is_in_work_does_not(
    street: Street, ledger_url: str, clock: Clock
) -> None:
    reported(street, "1.1", "1.2", "1.3", "1.4")
    street.ledger.acquire_destination(GONE, "d", 100.0)
    dead(street, GONE, "attempts_exhausted")
    claimed(street, GONE, 30.0)
    in_work = claimed(street, GONE, 90.0)
    clock.now += 31
    assert street.ledger.forget_destination(GONE) == Forgotten(3, 1)
    given_up = ("cancelled", "destination_forgotten")
    assert ends(street, GONE) == [
        (*given_up, 1),
        (*given_up, 1),
        ("leased", None, 1),
        (*given_up, 0),
    ], "what was tried stays known as that"
    assert {state for state, _, _ in ends(street, PACS)} == {"due"}
    clock.now += 70
    assert street.ledger.forget_destination(GONE) == Forgotten(1, 0)
    assert street.ledger.advance(
        "deliver", [(in_work.lease, Advance(DeliveryState.DELIVERED))]
    ) == [False]
    views = LedgerViews(ledger_url, clock)
    assert [item["name"] for item in views.destination_states({})] == [PACS]
    views.close()


@pytest.mark.parametrize(
    ("reason", "is_named"), [("attempts_exhausted", True), ("sop_class_refused", False)]
)
def test_the_next_report_names_what_a_forgotten_destination_may_have(
    street: Street, reason: str, is_named: bool
) -> None:
    street.destinations = (GONE,)
    reported(street, "1.1")
    dead(street, GONE, reason)
    street.ledger.forget_destination(GONE)
    street.receive("1.1", 2)
    street.read()
    street.assemble()
    (job,) = street.claim("report")
    assert isinstance(job, ReportJob)
    assert set(job.delivered_reports) == ({GONE} if is_named else set())
    assert ("sr" in job.predecessors) == is_named


def test_pixels_leave_when_only_a_forgotten_destination_was_waited_for(
    street: Street, ledger_url: str, clock: Clock, tmp_path: Path
) -> None:
    retention = RetentionPolicy(ledger_url, Archive(tmp_path), clock)
    reported(street, "1.1")
    street.ledger.advance(
        "deliver", [(claimed(street, PACS).lease, Advance(DeliveryState.DELIVERED))]
    )
    clock.now += 7200
    assert retention.release(Rule(frozenset(Priority), clock.now - 3600, "age")) == 0
    street.ledger.forget_destination(GONE)
    clock.now += 7200
    assert retention.release(Rule(frozenset(Priority), clock.now - 3600, "age")) == 1000
    retention.close()


def test_dead_letters_are_due_again_only_for_destinations_that_there_are(street: Street) -> None:
    reported(street, "1.1")
    for name in (GONE, PACS):
        dead(street, name, "attempts_exhausted")
    assert street.ledger.requeue("deliver", among={PACS: DicomDestination()}) == 1
    assert (ends(street, GONE)[0][0], ends(street, PACS)[0][0]) == ("dead", "due")


def test_the_dead_reports_of_one_asker_are_given_up(street: Street) -> None:
    for requester in ("CR1", "CR1", "CR2"):
        uid = f"1.{len(street.rows(commitment))}"
        request = CommitmentRequest(
            uid,
            (SopReference("1.2.840.10008.5.1.4.1.1.1.1", "1.2.3.1"),),
            requester,
            "HILUM",
            "10.0.0.7",
        )
        job = street.ledger.request_commitment(request, LeaseOwner("listener-1", 60.0))
        if uid != "1.0":
            assert job is not None
            street.ledger.advance(
                "commit", [(job.lease, Advance(CommitmentState.DEAD, {"reason": "no_address"}))]
            )
    assert street.ledger.forget_commitments("CR1") == 1
    assert [(row.calling_ae_title, row.state) for row in street.rows(commitment)] == [
        ("CR1", "leased"),
        ("CR2", "dead"),
    ]

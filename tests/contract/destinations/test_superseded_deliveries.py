"""A delivery whose result is superseded while a try has it.

Whatever ends the try, the old report is not sent behind the new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from hilum.domain import (
    Advance,
    DeliveryJob,
    DeliveryState,
    Document,
    Job,
    NewDocument,
    ReportJob,
    ResultState,
)
from hilum.pipeline import STAGES, StageLoop
from hilum.settings import Pipeline
from hilum.store.ledger import Ledger
from hilum.store.schema.tables import delivery, result
from tests.support.ledger.street import Clock, Street

STUDY, PACS = "1.2.3", "pacs"


@pytest.fixture
def street(ledger_url: str, clock: Clock) -> Iterator[Street]:
    ledger = Ledger(ledger_url, clock)
    yield Street(ledger, clock, (PACS,))
    ledger.close()


def claimed(street: Street) -> list[DeliveryJob]:
    jobs = street.ledger.claim("deliver", 8, "d", 60.0, destination_name=PACS)
    assert all(isinstance(job, DeliveryJob) for job in jobs)
    return [job for job in jobs if isinstance(job, DeliveryJob)]


def superseded_on_the_wire(street: Street) -> DeliveryJob:
    """The first report is being sent when a late image revises the study."""
    street.receive(STUDY, 1)
    street.read()
    street.assemble()
    street.report()
    (job,) = claimed(street)
    street.receive(STUDY, 2)
    street.read()
    street.assemble()
    assert [row.is_current for row in street.rows(result)] == [False, True]
    return job


def refused(street: Street, job: DeliveryJob) -> None:
    street.ledger.retry("deliver", job.lease, "nobody answers", 0.0, counts=False)


def unknown(street: Street, job: DeliveryJob) -> None:
    street.ledger.retry("deliver", job.lease, "no response", 0.0)


def stopped(street: Street, _job: DeliveryJob) -> None:
    street.ledger.end_leases("d", is_clean=True)


def killed(street: Street, _job: DeliveryJob) -> None:
    street.ledger.end_leases("d", is_clean=False)


def dead(street: Street, job: DeliveryJob) -> None:
    """And a person wants it to be tried again."""
    street.ledger.advance(
        "deliver", [(job.lease, Advance(DeliveryState.DEAD, {"reason": "attempts_exhausted"}))]
    )
    assert street.ledger.requeue("deliver") == 0


@pytest.mark.parametrize("ends", [refused, unknown, stopped, killed, dead])
def test_the_new_report_alone_is_sent(
    street: Street, ends: Callable[[Street, DeliveryJob], None]
) -> None:
    ends(street, superseded_on_the_wire(street))
    street.report()
    sent = [job.document.sop_instance_uid for _ in range(3) for job in claimed(street)]
    assert sent == [street.rows(result)[1].identifiers["sr"]]
    old, new = street.rows(delivery)
    assert (old.state, old.reason, old.lease_token, old.leased_until) == (
        "cancelled",
        "superseded",
        None,
        None,
    )
    assert new.state == "leased"


def test_who_was_killed_for_a_receiver_that_does_not_answer_has_tried(street: Street) -> None:
    """As often as it may be: no lapse, of which three end a delivery."""
    street.receive(STUDY, 1)
    street.read()
    street.assemble()
    street.report()
    for count in range(1, 6):
        (job,) = claimed(street)
        assert (job.lease.attempts, job.lease.lapses) == (count, 0)
        street.ledger.end_leases("d", is_clean=True, counts=True)


def test_the_next_report_does_not_wait_for_one_that_ended_at_its_claim(street: Street) -> None:
    """A loop that got nothing looks again at once, and not at its next poll."""
    superseded_on_the_wire(street)
    street.report()
    street.ledger.end_leases("d", is_clean=False)
    sent = []

    async def deliver() -> None:
        async def handle(job: Job) -> Advance:
            assert isinstance(job, DeliveryJob)
            sent.append(job.document.sop_instance_uid)
            loop.stop()
            return Advance(DeliveryState.DELIVERED)

        loop = StageLoop(
            STAGES["deliver"], street.ledger, Pipeline(poll_seconds=3600), "d", handle, PACS
        )
        await asyncio.wait_for(loop.run(), 60)

    asyncio.run(deliver())
    assert sent == [street.rows(result)[1].identifiers["sr"]]


@pytest.mark.parametrize(
    ("ends", "is_named"),
    [(refused, False), (stopped, False), (unknown, True), (killed, True), (dead, True)],
)
def test_it_is_named_where_the_pacs_may_have_it(
    street: Street, ends: Callable[[Street, DeliveryJob], None], is_named: bool
) -> None:
    job = superseded_on_the_wire(street)
    ends(street, job)
    claimed(street)
    (second,) = street.claim("report")
    assert isinstance(second, ReportJob)
    held = {name: item.sop_instance_uid for name, item in second.delivered_reports.items()}
    assert held == ({PACS: job.document.sop_instance_uid} if is_named else {})


def test_what_is_taken_after_all_is_delivered(street: Street) -> None:
    job = superseded_on_the_wire(street)
    assert street.ledger.advance("deliver", [(job.lease, Advance(DeliveryState.DELIVERED))]) == [
        True
    ]
    assert claimed(street) == []
    (second,) = street.claim("report")
    assert isinstance(second, ReportJob)
    assert set(second.delivered_reports) == {PACS}


def test_a_class_that_was_refused_is_still_known_as_that(street: Street) -> None:
    street.receive(STUDY, 1)
    street.read()
    street.assemble()
    street.report()
    (job,) = claimed(street)
    street.ledger.advance(
        "deliver", [(job.lease, Advance(DeliveryState.DEAD, {"reason": "sop_class_refused"}))]
    )
    street.receive(STUDY, 2)
    street.read()
    street.assemble()
    (second,) = street.claim("report")
    assert isinstance(second, ReportJob)
    assert second.delivered_reports == {}
    assert set(second.predecessors) == {"json"}


def test_who_may_have_a_heat_map_is_known_and_who_never_was_sent_it_not(street: Street) -> None:
    street.receive(STUDY, 1)
    street.read()
    street.assemble()
    (job,) = street.claim("report")
    picture = Document(
        "heatmap", "application/dicom", b"picture", "1.2.840.10008.5.1.4.1.1.7", "2.25.7", "2.25.6"
    )
    street.ledger.advance(
        "report",
        [
            (
                job.lease,
                Advance(ResultState.REPORTED, documents=[NewDocument(picture, (PACS, "paused"))]),
            )
        ],
    )
    (sent,) = claimed(street)
    street.ledger.advance("deliver", [(sent.lease, Advance(DeliveryState.DELIVERED))])
    street.receive(STUDY, 2)
    street.read()
    street.assemble()
    (second,) = street.claim("report")
    assert isinstance(second, ReportJob)
    assert (second.holders, second.delivered_reports, list(second.predecessors)) == (
        {"heatmap": frozenset({PACS})},
        {},
        ["heatmap"],
    )

"""A delivered report is sent again.

The same bytes under the same UID, once for each time that a person asks.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import update

from hilum.domain import (
    Actor,
    Advance,
    Channel,
    DeliveryJob,
    DeliveryState,
    Outcome,
    ReportJob,
    ReportState,
)
from hilum.settings import DicomDestination
from hilum.store.admin.erase import Erasure
from hilum.store.archive.archive import Archive
from hilum.store.audit.log import AuditFilter, AuditLog, Deed
from hilum.store.queries.views import LedgerViews
from hilum.store.queue.resend import Resent
from hilum.store.schema import tables
from hilum.verbs import Verb
from tests.support.ledger.database import change
from tests.support.ledger.street import Street

DESTINATIONS = {name: DicomDestination(accept_untrained=True) for name in ("pacs", "lab")}


@pytest.fixture
def delivered(street: Street) -> Street:
    street.destinations = ("pacs", "lab")
    street.walk("1.2.1", 1)
    return street


def resend(
    street: Street, uid: str | None = None, to: str | None = None, deed: Deed | None = None
) -> Resent:
    found = street.ledger.resend(
        "1.2.1", sop_instance_uid=uid, destination_name=to, among=DESTINATIONS, deed=deed
    )
    assert found is not None
    return found


def why(found: Resent) -> list[str]:
    assert not found.due
    return [item["why"] for item in found.left]


def states(street: Street) -> dict[str, str]:
    return {row.destination: row.state for row in street.rows(tables.delivery)}


def test_the_same_bytes_go_out_under_the_same_uid(delivered: Street) -> None:
    (before,) = {
        (row.sop_instance_uid, bytes(row.content))
        for row in delivered.rows(tables.document)
        if row.kind == "sr"
    }
    found = resend(delivered)
    jobs = delivered.claim("deliver")
    assert [(item["destination"], item["sop_instance_uid"]) for item in found.due] == [
        ("pacs", before[0]),
        ("lab", before[0]),
    ]
    assert [
        (job.document.sop_instance_uid, job.document.content)
        for job in jobs
        if isinstance(job, DeliveryJob)
    ] == [before, before]


def test_a_named_destination_alone_gets_it(delivered: Street) -> None:
    assert [item["destination"] for item in resend(delivered, to="lab").due] == ["lab"]
    assert states(delivered) == {"pacs": "delivered", "lab": "due"}


def test_a_named_document_alone_is_sent(delivered: Street) -> None:
    uid = next(row.sop_instance_uid for row in delivered.rows(tables.document) if row.kind == "sr")
    assert {item["sop_instance_uid"] for item in resend(delivered, uid).due} == {uid}
    assert (
        delivered.ledger.resend("1.2.1", sop_instance_uid="1.2.1.1", among=DESTINATIONS) is None
    ), "an image is no document"
    assert delivered.ledger.resend("1.9", among=DESTINATIONS) is None


def test_who_asks_twice_sends_once(delivered: Street) -> None:
    resend(delivered, to="pacs")
    assert why(resend(delivered, to="pacs")) == ["it is on its way already"]
    delivered.claim("deliver")
    assert why(resend(delivered, to="pacs")) == ["it is on its way already"]


def test_of_many_who_ask_at_once_one_sends(delivered: Street) -> None:
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: resend(delivered, to="pacs"), range(8)))
    assert sorted(len(item.due) for item in found) == [0] * 7 + [1]


def test_it_may_be_sent_as_often_as_somebody_asks(delivered: Street, views: LedgerViews) -> None:
    first = delivered.rows(tables.delivery)[0].finished_at
    for _ in range(3):
        delivered.clock.now += 100
        resend(delivered, to="pacs")
        delivered.deliver()
    (row,) = [row for row in delivered.rows(tables.delivery) if row.destination == "pacs"]
    assert (row.state, row.delivered_at, row.attempts) == ("delivered", first, 1)
    assert row.finished_at > row.requeued_at > first
    found = views.study("1.2.1")
    assert found is not None
    assert (found["report_state"], found["timing"]["first_delivered"]) == (
        ReportState.DELIVERED,
        first,
    )


def test_a_dispatcher_that_dies_with_it_leaves_it_to_another(delivered: Street) -> None:
    resend(delivered, to="pacs")
    (job,) = delivered.claim("deliver")
    delivered.clock.now += 3600
    (again,) = delivered.claim("deliver")
    assert (again.lease.row_id, again.lease.lapses) == (job.lease.row_id, 1)


def test_what_a_destination_has_is_named_by_a_successor_whatever_becomes_of_the_second_time(
    delivered: Street,
) -> None:
    resend(delivered, to="pacs")
    delivered.clock.now += 100
    delivered.receive("1.2.1", 2)
    delivered.read()
    delivered.assemble(Outcome.ANALYSED)
    (job,) = delivered.claim("report")
    assert isinstance(job, ReportJob)
    assert sorted(job.delivered_reports) == ["lab", "pacs"]
    assert states(delivered) == {"pacs": "delivered", "lab": "delivered"}, (
        "it is not sent again, and was delivered all along"
    )


def test_a_lease_that_outlives_its_result_ends_as_what_was_before(delivered: Street) -> None:
    resend(delivered, to="pacs")
    (job,) = delivered.claim("deliver")
    delivered.clock.now += 1
    delivered.receive("1.2.1", 2)
    delivered.read()
    delivered.assemble(Outcome.ANALYSED)
    delivered.ledger.retry("deliver", job.lease, "away", 0.0)
    assert delivered.claim("deliver") == []
    assert states(delivered) == {"pacs": "delivered", "lab": "delivered"}


def test_a_replaced_report_is_not_sent_again(delivered: Street) -> None:
    uid = next(row.sop_instance_uid for row in delivered.rows(tables.document) if row.kind == "sr")
    delivered.clock.now += 100
    delivered.walk("1.2.1", 2)
    assert why(resend(delivered, uid, "pacs")) == [
        "a newer result has replaced it; send the report of that one"
    ]


@pytest.mark.parametrize(
    ("state", "reason", "said"),
    [
        (
            "dead",
            "sop_class_refused",
            "it was not delivered (sop_class_refused); mend that, then requeue it",
        ),
        ("withheld", "untrained_weights", "it was withheld (untrained_weights)"),
        ("cancelled", "destination_forgotten", "it was never delivered (destination_forgotten)"),
    ],
)
def test_what_never_arrived_is_not_sent_again(
    delivered: Street, state: str, reason: str, said: str
) -> None:
    change(delivered.ledger, update(tables.delivery).values(state=state, reason=reason))
    found = why(resend(delivered))
    assert len(found) == 2
    assert all(item.startswith(said) for item in found)
    assert set(states(delivered).values()) == {state}


def test_of_a_report_that_went_in_another_class_that_one_alone_goes_again(
    delivered: Street,
) -> None:
    change(
        delivered.ledger,
        update(tables.delivery)
        .where(tables.delivery.c.destination == "lab")
        .values(state="cancelled", reason="class_ladder"),
    )
    found = resend(delivered)
    assert ([item["destination"] for item in found.due], found.left) == (["pacs"], [])


def test_what_would_be_withheld_now_is_not_sent_again(delivered: Street) -> None:
    refusing = {"pacs": DicomDestination()}
    found = delivered.ledger.resend("1.2.1", among=refusing)
    assert found is not None
    assert [item["destination"] for item in found.left] == ["pacs", "lab"]
    assert why(found)[0].startswith("it would be withheld now (untrained_weights)")
    assert why(found)[1] == "the settings name no such destination any more"


def test_of_an_erased_study_nothing_can_be_sent(
    delivered: Street, ledger_url: str, tmp_path
) -> None:
    resend(delivered, to="pacs")
    erasure = Erasure(ledger_url, Archive(tmp_path / "archive"), delivered.clock)
    erased = erasure.erase_study("1.2.1")
    erasure.close()
    assert erased.delivered == {"pacs": 1, "lab": 1}, (
        "the destinations have it, whatever was to be done again"
    )
    assert delivered.ledger.resend("1.2.1", among=DESTINATIONS) is None
    assert delivered.claim("deliver") == []


def test_a_second_time_that_fails_needs_a_person_and_can_be_requeued(delivered: Street) -> None:
    resend(delivered, to="pacs")
    dead = Advance(DeliveryState.DEAD, {"reason": "data_set_refused"})
    delivered.ledger.advance("deliver", [(job.lease, dead) for job in delivered.claim("deliver")])
    assert states(delivered)["pacs"] == "dead"
    assert delivered.ledger.requeue("deliver", destination_name="pacs", among=DESTINATIONS) == 1


def test_it_is_audited_with_the_study_and_nothing_is_where_nothing_was_sent(
    delivered: Street, ledger_url: str
) -> None:
    for _ in range(2):
        deed = Deed(Verb.RESEND, Actor("alice", Channel.REST), "1.2.1", detail="to pacs")
        resend(delivered, to="pacs", deed=deed)
    audit = AuditLog(ledger_url)
    rows, _ = audit.list(AuditFilter(study_instance_uid="1.2.1"))
    audit.close()
    assert [(row["verb"], row["outcome"], row["count"], row["detail"]) for row in rows] == [
        ("resend", "done", 1, "to pacs")
    ]

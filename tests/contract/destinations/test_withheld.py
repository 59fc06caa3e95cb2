"""Reports that the settings keep from a destination.

Counted, released when the cause is gone, and never sooner.
"""

from __future__ import annotations

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
from hilum.settings import DicomDestination, SenderDestination
from hilum.store.audit.log import AuditFilter, AuditLog, Deed
from hilum.store.queries.studies import StudyFilter
from hilum.store.queries.views import LedgerViews
from hilum.store.schema.tables import delivery, study
from hilum.verbs import Thing, Verb
from tests.support.ledger.database import change
from tests.support.ledger.street import Street

PACS = "pacs"
REFUSING, ACCEPTING = {PACS: DicomDestination()}, {PACS: DicomDestination(accept_untrained=True)}


@pytest.fixture
def withholding(street: Street) -> Street:
    """Its reports of untrained weights do not go to the PACS."""
    street.destinations, street.withheld = (), {PACS: "untrained_weights"}
    street.walk("1.2.1", 1)
    return street


def states(street: Street) -> list[tuple[str, str | None]]:
    return [(row.state, row.reason) for row in street.rows(delivery)]


def test_a_withheld_report_is_no_report_that_arrived(
    withholding: Street, views: LedgerViews
) -> None:
    assert states(withholding) == [("withheld", "untrained_weights")]
    (listed,), _ = views.list_studies(StudyFilter(is_withheld=True), limit=10, cursor=None)
    shown = views.study("1.2.1")
    assert shown is not None
    assert (listed["report_state"], listed["deliveries"]) == (ReportState.WITHHELD, {"withheld": 1})
    assert (shown["report_state"], shown["timing"]["first_delivered"]) == (
        ReportState.WITHHELD,
        None,
    )


def test_while_the_cause_persists_nothing_is_released(
    withholding: Street, views: LedgerViews
) -> None:
    before = withholding.rows(delivery)
    for chosen in (
        {},
        {"destination_name": PACS},
        {"reason": "untrained_weights"},
        {"study_uid": "1.2.1"},
    ):
        assert withholding.ledger.requeue("deliver", **chosen, among=REFUSING) == 0
    assert withholding.rows(delivery) == before
    (said,) = views.withheld(REFUSING)
    assert (said["destination"], said["reason"], said["items"], said["releasable"]) == (
        PACS,
        "untrained_weights",
        1,
        0,
    )
    assert "destinations.pacs.accept_untrained = true" in said["advice"]


def test_a_report_is_released_once_when_its_cause_is_gone(
    withholding: Street, views: LedgerViews
) -> None:
    assert [item["releasable"] for item in views.withheld(ACCEPTING)] == [1]
    withholding.clock.now += 60
    released_at = withholding.clock.now
    assert withholding.ledger.requeue("deliver", destination_name=PACS, among=ACCEPTING) == 1
    assert withholding.ledger.requeue("deliver", destination_name=PACS, among=ACCEPTING) == 0
    withholding.deliver()
    assert states(withholding) == [("delivered", None)]
    assert withholding.rows(delivery)[0].requeued_at == released_at
    assert views.withheld(ACCEPTING) == []
    found = views.study("1.2.1")
    assert found is not None
    assert found["report_state"] is ReportState.DELIVERED


def test_only_the_study_that_is_named_is_released(withholding: Street, views: LedgerViews) -> None:
    withholding.walk("1.2.2", 1)
    assert withholding.ledger.requeue("deliver", study_uid="1.2.2", among=ACCEPTING) == 1
    assert [item["items"] for item in views.withheld(ACCEPTING)] == [1]
    assert [item["items"] for item in views.withheld(ACCEPTING, "1.2.2")] == []


def test_nothing_is_released_to_a_destination_that_the_settings_do_not_name(
    withholding: Street,
) -> None:
    assert (
        withholding.ledger.requeue(
            "deliver", among={"other": DicomDestination(accept_untrained=True)}
        )
        == 0
    )
    assert withholding.ledger.requeue("deliver") == 0, "nobody has said that the cause is gone"


def test_a_report_to_an_unknown_sender_is_released_when_its_port_is_named(
    withholding: Street, views: LedgerViews
) -> None:
    change(
        withholding.ledger,
        update(delivery).values(reason="sender_unknown"),
        update(study).values(peer_address="10.0.0.1"),
    )
    other, named = (
        {PACS: SenderDestination(ports={title: 104}, accept_untrained=True)}
        for title in ("ELSEWHERE", "CR1")
    )
    assert [item["releasable"] for item in views.withheld(other)] == [0]
    assert withholding.ledger.requeue("deliver", among=other) == 0
    assert [item["releasable"] for item in views.withheld(named)] == [1]
    assert withholding.ledger.requeue("deliver", among=named) == 1


def test_a_report_that_another_cause_keeps_back_stays(withholding: Street) -> None:
    both = {PACS: SenderDestination(ports={"ELSEWHERE": 104}, accept_untrained=True)}
    assert withholding.ledger.requeue("deliver", among=both) == 0
    assert states(withholding) == [("withheld", "untrained_weights")]


def test_what_a_newer_result_has_replaced_is_withheld_no_more(
    withholding: Street, views: LedgerViews
) -> None:
    withholding.clock.now += 100
    withholding.walk("1.2.1", 2)
    assert states(withholding) == [("cancelled", "superseded"), ("withheld", "untrained_weights")]
    assert withholding.ledger.requeue("deliver", among=ACCEPTING) == 1
    (job,) = withholding.claim("deliver")
    assert isinstance(job, DeliveryJob)
    assert job.is_current


def test_a_withheld_report_needs_no_successor(withholding: Street) -> None:
    """The destination has never had it: a report that names it would name what is not there."""
    withholding.clock.now += 100
    withholding.receive("1.2.1", 2)
    withholding.read()
    withholding.assemble(Outcome.ANALYSED)
    (job,) = withholding.claim("report")
    assert isinstance(job, ReportJob)
    assert "sr" not in job.predecessors
    assert job.delivered_reports == {}


def test_dead_and_withheld_ones_are_requeued_together(withholding: Street) -> None:
    withholding.destinations, withholding.withheld = (PACS,), {}
    withholding.receive("1.2.2", 1)
    withholding.read()
    withholding.assemble()
    withholding.report()
    dead = Advance(DeliveryState.DEAD, {"reason": "sop_class_refused"})
    withholding.ledger.advance(
        "deliver", [(job.lease, dead) for job in withholding.claim("deliver")]
    )
    assert withholding.ledger.requeue("deliver", destination_name=PACS, among=REFUSING) == 1
    assert withholding.ledger.requeue("deliver", destination_name=PACS, among=ACCEPTING) == 1


def test_a_forgotten_destination_has_nothing_withheld(
    withholding: Street, views: LedgerViews
) -> None:
    assert withholding.ledger.forget_destination(PACS).cancelled == 1
    assert (views.withheld({}), states(withholding)) == (
        [],
        [("cancelled", "destination_forgotten")],
    )


@pytest.mark.parametrize(
    "chosen",
    [{"study_uid": "1.2.1"}, {"destination_name": PACS}, {}],
    ids=["study", "destination", "all"],
)
def test_a_release_stands_in_the_audit_and_in_the_study(
    withholding: Street, ledger_url: str, views: LedgerViews, chosen: dict[str, str]
) -> None:
    deed = Deed(Verb.REQUEUE, Actor("alice", Channel.CLI), chosen.get("study_uid")).about(
        Thing.STAGE, "deliver"
    )
    withholding.ledger.requeue("deliver", **chosen, among=ACCEPTING, deed=deed)
    audit = AuditLog(ledger_url)
    rows, _ = audit.list(AuditFilter(study_instance_uid="1.2.1", has_looks=False))
    audit.close()
    released = [
        (row["verb"], row["actor"], row["name"], row["detail"])
        for row in rows
        if row["thing"] == Thing.DESTINATION
    ]
    assert released == [
        ("requeue", "alice", PACS, f"released for {PACS}; was withheld: untrained_weights")
    ]
    found = views.study("1.2.1")
    assert found is not None
    assert (
        found["results"][0]["documents"][0]["deliveries"][0]["requeued_at"] == withholding.clock.now
    )

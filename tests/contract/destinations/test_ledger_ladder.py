"""A report in another SOP Class on the ledger.

Stored once, sent where it was asked for, and named by its successor. Both databases.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hilum.domain import (
    SR_CLASS_PREFERENCE,
    Advance,
    DeliveryJob,
    DeliveryState,
    Document,
    NewDocument,
    ReportJob,
)
from hilum.store.ledger import Ledger
from hilum.store.schema.tables import delivery, document
from tests.support.ledger.street import Clock, Street

_, COMPREHENSIVE, _, TEXT = SR_CLASS_PREFERENCE
STUDY = "1.2.3"


@pytest.fixture
def street(ledger_url: str, clock: Clock) -> Iterator[Street]:
    ledger = Ledger(ledger_url, clock)
    yield Street(ledger, clock, ("old", "older", "new"))
    ledger.close()


def reported(street: Street, *images: int) -> None:
    street.receive(STUDY, *images)
    street.read()
    street.assemble()
    street.report()


def claimed(street: Street, destination: str) -> DeliveryJob:
    (job,) = street.ledger.claim("deliver", 1, "d", 60.0, destination_name=destination)
    assert isinstance(job, DeliveryJob)
    return job


def send(street: Street, destination: str) -> str | None:
    """The receiver takes what is due; the UID that it holds now."""
    job = claimed(street, destination)
    street.ledger.advance("deliver", [(job.lease, Advance(DeliveryState.DELIVERED))])
    return job.document.sop_instance_uid


def step_down(street: Street, destination: str, wanted: Any = COMPREHENSIVE) -> bool:
    job = claimed(street, destination)
    uid = f"{job.document.sop_instance_uid}.{wanted.sop_class_uid[-2:]}"
    derived = Document(
        wanted.kind,
        "application/dicom",
        b"lower " + job.document.content,
        wanted.sop_class_uid,
        uid,
        "2.25.0",
    )
    ended = Advance(
        DeliveryState.CANCELLED,
        {"reason": "class_ladder"},
        documents=[NewDocument(derived, (destination,))],
    )
    return street.ledger.advance("deliver", [(job.lease, ended)]) == [True]


def states(street: Street) -> list[tuple[str, str, str, str | None]]:
    kinds = {row.id: row.kind for row in street.rows(document)}
    return [
        (row.destination, kinds[row.document_id], row.state, row.reason)
        for row in street.rows(delivery)
    ]


def test_a_lower_class_is_a_document_of_its_own_and_stored_once(street: Street) -> None:
    reported(street, 1)
    send(street, "new")
    assert step_down(street, "old")
    assert step_down(street, "older")
    assert [row.kind for row in street.rows(document)] == ["sr", "json", "sr_comprehensive"]
    assert states(street) == [
        ("old", "sr", "cancelled", "class_ladder"),
        ("older", "sr", "cancelled", "class_ladder"),
        ("new", "sr", "delivered", None),
        ("old", "sr_comprehensive", "due", None),
        ("older", "sr_comprehensive", "due", None),
    ]
    assert claimed(street, "old").document == claimed(street, "older").document
    assert street.rows(document)[2].result_id == street.rows(document)[0].result_id


def test_the_successor_names_what_each_destination_really_holds(street: Street) -> None:
    reported(street, 1)
    step_down(street, "old")
    held = {name: send(street, name) for name in ("old", "new")}  # "older" is down
    street.receive(STUDY, 2)
    street.read()
    street.assemble()
    (job,) = street.claim("report")
    assert isinstance(job, ReportJob)
    assert {name: item.sop_instance_uid for name, item in job.delivered_reports.items()} == held
    assert held["old"] != held["new"]


def test_what_a_destination_missed_is_not_named_to_it(street: Street) -> None:
    """The second report never reached "old", so the third replaces the first one there."""
    reported(street, 1)
    first = {name: send(street, name) for name in ("old", "new")}
    reported(street, 2)
    second = send(street, "new")
    street.receive(STUDY, 3)
    street.read()
    street.assemble()
    (job,) = street.claim("report")
    assert isinstance(job, ReportJob)
    assert {name: item.sop_instance_uid for name, item in job.delivered_reports.items()} == {
        "old": first["old"],
        "new": second,
    }


def test_a_report_that_was_superseded_meanwhile_is_not_sent_in_any_class(street: Street) -> None:
    reported(street, 1)
    job = claimed(street, "old")
    street.receive(STUDY, 2)
    street.read()
    street.assemble()
    derived = Document(
        TEXT.kind, "application/dicom", b"text", TEXT.sop_class_uid, "2.25.7", "2.25.0"
    )
    ended = Advance(
        DeliveryState.CANCELLED,
        {"reason": "class_ladder"},
        documents=[NewDocument(derived, ("old",))],
    )
    assert street.ledger.advance("deliver", [(job.lease, ended)]) == [True]
    assert ("old", "sr_basic_text", "cancelled", "superseded") in states(street)
    (again,) = street.claim("report")
    assert isinstance(again, ReportJob)
    assert again.delivered_reports == {}, "nobody ever held the first one"


def test_a_lost_lease_stores_no_document(street: Street) -> None:
    reported(street, 1)
    job = claimed(street, "old")
    street.ledger.end_leases("d", is_clean=True)
    derived = Document(
        TEXT.kind, "application/dicom", b"text", TEXT.sop_class_uid, "2.25.7", "2.25.0"
    )
    ended = Advance(
        DeliveryState.CANCELLED,
        {"reason": "class_ladder"},
        documents=[NewDocument(derived, ("old",))],
    )
    assert street.ledger.advance("deliver", [(job.lease, ended)]) == [False]
    assert [row.kind for row in street.rows(document)] == ["sr", "json"]


def test_two_steps_down(street: Street) -> None:
    reported(street, 1)
    step_down(street, "old")
    step_down(street, "old", TEXT)
    assert [row for row in states(street) if row[0] == "old"] == [
        ("old", "sr", "cancelled", "class_ladder"),
        ("old", "sr_comprehensive", "cancelled", "class_ladder"),
        ("old", "sr_basic_text", "due", None),
    ]

"""Requests for storage commitment as rows, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import pytest
from sqlalchemy import event

from hilum.domain import (
    Advance,
    CommitmentJob,
    CommitmentRequest,
    CommitmentState,
    CommitmentVerdict,
    SopReference,
)
from hilum.store.queries.views import LedgerViews
from hilum.store.queue.commitments import LeaseOwner, rename, reported
from hilum.store.schema.tables import commitment
from tests.support.ledger.database import transaction
from tests.support.ledger.street import Clock, Street

CR = "1.2.840.10008.5.1.4.1.1.1.1"
FIRST, SECOND = SopReference(CR, "1.2.3.1"), SopReference(CR, "1.2.3.2")


def request(
    *references: SopReference, transaction_uid: str = "1.9", calling: str = "CR1"
) -> CommitmentRequest:
    return CommitmentRequest(transaction_uid, references or (FIRST,), calling, "HILUM", "10.0.0.7")


def claim(street: Street) -> list[CommitmentJob]:
    street.clock.now += 2.0
    return [job for job in street.claim("commit") if isinstance(job, CommitmentJob)]


def test_a_request_is_owed_a_report_until_it_is_answered(street: Street) -> None:
    asked = request(FIRST, SECOND)
    assert street.ledger.request_commitment(asked) is None
    assert street.claim("commit") == [], "its own answer goes first"
    (job,) = claim(street)
    assert (job.request, job.is_duplicate) == (asked, False)
    street.ledger.end_leases("worker-1", is_clean=False)
    (again,) = claim(street)
    assert again.request == asked
    verdict = CommitmentVerdict((FIRST,), ((SECOND, 0x0112),))
    assert street.ledger.advance(
        "commit", [(job.lease, Advance(CommitmentState.REPORTED, reported(verdict)))]
    ) == [False]
    assert street.ledger.advance(
        "commit", [(again.lease, Advance(CommitmentState.REPORTED, reported(verdict)))]
    ) == [True]
    (row,) = street.rows(commitment)
    assert (row.state, row.committed, row.failed, row.failures, row.instances) == (
        "reported",
        1,
        1,
        [["1.2.3.2", 0x0112]],
        [],
    )


def test_who_holds_a_request_gets_its_job_and_nobody_else_does(street: Street) -> None:
    job = street.ledger.request_commitment(request(), LeaseOwner("listener-1", 60.0))
    assert job is not None
    assert claim(street) == []
    street.clock.now += 61.0
    (lapsed,) = claim(street)
    assert lapsed.lease.row_id == job.lease.row_id
    assert street.ledger.advance("commit", [(job.lease, Advance(CommitmentState.REPORTED))]) == [
        False
    ]


def test_a_repeated_request_begins_anew_and_fences_the_first_off(street: Street) -> None:
    first = street.ledger.request_commitment(request(FIRST, SECOND), LeaseOwner("listener-1", 60.0))
    street.ledger.request_commitment(request(SECOND, FIRST))
    (job,) = claim(street)
    assert not job.is_duplicate
    assert first is not None
    assert street.ledger.advance("commit", [(first.lease, Advance(CommitmentState.DEAD))]) == [
        False
    ]
    assert len(street.rows(commitment)) == 1


def test_other_objects_under_an_open_transaction_uid_are_a_duplicate(street: Street) -> None:
    street.ledger.request_commitment(request(FIRST))
    street.ledger.request_commitment(request(SECOND))
    street.ledger.request_commitment(request(SECOND, calling="CR2"))
    jobs = {
        (job.request.calling_ae_title, job.request.references): job.is_duplicate
        for job in claim(street)
    }
    assert jobs == {("CR1", (FIRST,)): False, ("CR1", (SECOND,)): True, ("CR2", (SECOND,)): False}


def test_a_transaction_uid_that_is_not_open_any_more_may_be_used_again(street: Street) -> None:
    job = street.ledger.request_commitment(request(FIRST), LeaseOwner("listener-1", 60.0))
    assert job is not None
    street.ledger.advance(
        "commit", [(job.lease, Advance(CommitmentState.DEAD, {"reason": "no_address"}))]
    )
    street.ledger.request_commitment(request(SECOND))
    (second,) = claim(street)
    assert not second.is_duplicate


def test_dead_reports_are_requeued_by_reason(street: Street) -> None:
    job = street.ledger.request_commitment(request(), LeaseOwner("listener-1", 60.0))
    assert job is not None
    street.ledger.advance(
        "commit", [(job.lease, Advance(CommitmentState.DEAD, {"reason": "no_address"}))]
    )
    assert street.ledger.requeue("commit", study_uid="1.2.3") == 0
    assert street.ledger.requeue("commit", reason="no_address") == 1
    assert [item.request for item in claim(street)] == [request()]


def test_who_is_erased_is_not_named_by_a_request_that_has_ended(street: Street) -> None:
    job = street.ledger.request_commitment(request(FIRST, SECOND), LeaseOwner("listener-1", 60.0))
    assert job is not None
    street.ledger.advance(
        "commit", [(job.lease, Advance(CommitmentState.DEAD, {"failures": [["1.2.3.1", 0x0112]]}))]
    )
    with transaction(street.ledger) as connection:
        rename(connection, {"1.2.3.1": "2.25.7", "1.2.3": "2.25.8"})
    (row,) = street.rows(commitment)
    assert (row.instances, row.failures) == (
        [[CR, "2.25.7"], [CR, "1.2.3.2"]],
        [["2.25.7", 0x0112]],
    )


def test_all_names_of_a_study_are_looked_for_at_once_and_only_in_rows_that_hold_some(
    street: Street,
) -> None:
    for references in ((FIRST,), (SECOND,)):
        job = street.ledger.request_commitment(request(*references), LeaseOwner("listener-1", 60.0))
        assert job is not None
        values = reported(CommitmentVerdict(references, ())) if references == (FIRST,) else {}
        street.ledger.advance("commit", [(job.lease, Advance(CommitmentState.REPORTED, values))])
    asked: list[str] = []
    with transaction(street.ledger) as connection:
        event.listen(
            connection, "before_cursor_execute", lambda *call: asked.append(call[2].split()[0])
        )
        rename(connection, {f"1.2.3.{number}": f"2.25.{number}" for number in range(1, 61)})
    assert asked == ["SELECT", "SELECT", "UPDATE"]
    assert [row.instances for row in street.rows(commitment)] == [[], [[CR, "2.25.2"]]]


def erase(street: Street) -> None:
    """The first one, whose Study Instance UID is nobody's business here."""
    with transaction(street.ledger) as connection:
        rename(connection, {"1.2.3.1": "2.25.7"})


@pytest.mark.parametrize("is_held", [True, False])
def test_who_is_erased_while_a_request_is_open_is_named_by_its_report_and_by_no_row(
    street: Street, *, is_held: bool
) -> None:
    held = street.ledger.request_commitment(
        request(FIRST, SECOND), LeaseOwner("listener-1", 60.0) if is_held else None
    )
    erase(street)
    job = held or claim(street)[0]
    assert job.request.references == (FIRST, SECOND)
    verdict = CommitmentVerdict((SECOND,), ((FIRST, 0x0112),))
    assert street.ledger.advance(
        "commit", [(job.lease, Advance(CommitmentState.REPORTED, reported(verdict)))]
    ) == [True]
    (row,) = street.rows(commitment)
    assert (row.committed, row.failed, row.failures, row.instances) == (
        1,
        1,
        [["2.25.7", 0x0112]],
        [],
    )


def test_who_is_erased_while_a_request_is_open_is_not_named_by_a_dead_one(street: Street) -> None:
    street.ledger.request_commitment(request(FIRST, SECOND))
    erase(street)
    (job,) = claim(street)
    street.ledger.advance(
        "commit", [(job.lease, Advance(CommitmentState.DEAD, {"reason": "no_address"}))]
    )
    (row,) = street.rows(commitment)
    assert (row.state, row.instances, row.failures) == (
        "dead",
        [[CR, "2.25.7"], [CR, "1.2.3.2"]],
        [],
    )
    street.ledger.requeue("commit")
    (again,) = claim(street)
    assert again.request.references == (SopReference(CR, "2.25.7"), SECOND)


def test_who_is_erased_while_a_request_is_open_is_not_named_by_one_whose_leases_lapsed(
    street: Street,
) -> None:
    street.ledger.request_commitment(request(FIRST, SECOND))
    erase(street)
    for _ in range(4):
        claim(street)
        street.clock.now += 100.0
    (row,) = street.rows(commitment)
    assert (row.state, row.reason, row.instances) == (
        "dead",
        "worker_crashed",
        [[CR, "2.25.7"], [CR, "1.2.3.2"]],
    )


def test_images_and_our_own_documents_are_kept(street: Street) -> None:
    street.walk("1.2.3", 1)
    (sop_instance_uid, sop_class_uid), *_ = street.ledger.kept(["1.2.3.1"], "CR1")[0].items()
    assert (sop_instance_uid, sop_class_uid) == ("1.2.3.1", CR)
    own = "2.25.11"
    assert street.ledger.kept(["1.2.3.1", own, "1.2.3.9"], "CR1")[0] == {
        "1.2.3.1": CR,
        own: "1.2.840.10008.5.1.4.1.1.88.34",
    }


def test_operators_see_who_asked_and_what_became_of_it(
    street: Street, ledger_url: str, clock: Clock
) -> None:
    views = LedgerViews(ledger_url, clock)
    street.ledger.request_commitment(request(FIRST, SECOND))
    (found,), _ = views.commitments()
    assert (found["state"], found["instances"], found["committed"]) == ("due", 2, None)
    assert found["next_try_at"] == clock.now + 1.0
    (job,) = claim(street)
    verdict = CommitmentVerdict((FIRST,), ((SECOND, 0x0112),))
    street.ledger.advance(
        "commit", [(job.lease, Advance(CommitmentState.REPORTED, reported(verdict)))]
    )
    (found,), _ = views.commitments(state="reported")
    assert (found["instances"], found["committed"], found["failed"]) == (2, 1, 1)
    assert found["failures"] == [{"sop_instance_uid": "1.2.3.2", "failure_reason": "0x0112"}]
    assert views.commitments(state="dead") == ([], None)
    views.close()

"""Our own requests for storage commitment as rows, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hilum.domain import (
    Advance,
    AskedCommitment,
    CommitmentVerdict,
    DeliveryState,
    RecordedReport,
    SopReference,
)
from hilum.settings import DicomDestination, Settings
from hilum.store.queue import asked_commitments
from hilum.store.queue.asked_commitments import AskedScp
from hilum.store.schema.tables import asked_commitment, delivery
from hilum.supervisor.clock_recovery import ClockStepMonitor
from tests.support.ledger.street import Street

PACS = AskedScp("pacs", "ORTHANC", 2)
TRIES = {"pacs": 2}
DAY = 86400.0
SECONDS = 100.0


def delivered(street: Street, *studies: str) -> None:
    """Documents that the PACS has accepted and is to be asked for."""
    for study in studies:
        street.receive(study, 1)
    street.read()
    street.assemble()
    street.report()
    accept(street)


def accept(street: Street) -> None:
    columns = asked_commitments.due(street.clock.now)
    done = [
        (job.lease, Advance(DeliveryState.DELIVERED, columns)) for job in street.claim("deliver")
    ]
    assert done
    street.ledger.advance("deliver", done)


def ask(street: Street, scp: AskedScp = PACS) -> AskedCommitment:
    """Ask, and be answered success."""
    request = street.ledger.begin_commitment(scp, SECONDS)
    assert request is not None
    street.ledger.commitment_asked(request.transaction_uid, DAY)
    return request


def report(
    street: Street,
    request: AskedCommitment,
    *,
    kept: tuple[SopReference, ...] = (),
    failed: tuple[SopReference, ...] = (),
    reason: int = 0x0112,
    ae_title: str = "ORTHANC",
) -> RecordedReport | None:
    verdict = CommitmentVerdict(kept, tuple((item, reason) for item in failed))
    return street.ledger.record_commitment_report(request.transaction_uid, ae_title, verdict, TRIES)


def ways(street: Street) -> list[tuple[str, str | None, str | None]]:
    return [(row.state, row.commitment, row.reason) for row in street.rows(delivery)]


def way(street: Street) -> Any:
    (row,) = street.rows(delivery)
    return row


def test_what_is_reported_as_kept_is_committed_and_stays_delivered(street: Street) -> None:
    delivered(street, "1.1", "1.2")
    request = ask(street)
    assert ways(street) == [("delivered", "asked", None)] * 2
    assert report(street, request, kept=request.references) == RecordedReport("pacs", committed=2)
    assert ways(street) == [("delivered", "committed", None)] * 2
    assert street.ledger.seconds_to_commitment("pacs") is None


def test_the_same_report_again_changes_nothing_whatever_it_says(street: Street) -> None:
    delivered(street, "1.1")
    request = ask(street)
    report(street, request, kept=request.references)
    assert report(street, request, kept=request.references) == RecordedReport("pacs")
    assert report(street, request, failed=request.references) == RecordedReport("pacs")
    assert ways(street) == [("delivered", "committed", None)]


def test_a_document_that_is_not_kept_is_sent_again_then_needs_a_person(street: Street) -> None:
    delivered(street, "1.1")
    first = way(street).finished_at
    request = ask(street)
    assert report(street, request, failed=request.references) == RecordedReport("pacs", resent=1)
    assert ways(street) == [("due", None, None)]
    assert "0x0112, no such object instance" in way(street).detail
    assert street.claim("deliver") == [], "not at once"
    street.clock.now += 61
    accept(street)
    second = ask(street)
    assert second.transaction_uid != request.transaction_uid
    assert report(street, second, failed=second.references) == RecordedReport("pacs", dead=1)
    assert ways(street) == [("dead", "failed", "commitment_failed")]
    assert "asked 2 times" in way(street).detail
    assert way(street).delivered_at == first, "the PACS has accepted it"
    assert street.ledger.requeue("deliver", reason="commitment_failed") == 1
    row = way(street)
    assert (row.state, row.commitment, row.commitment_tries) == ("due", None, 0)


def test_a_sop_class_that_is_never_kept_is_not_sent_again(street: Street) -> None:
    delivered(street, "1.1")
    request = ask(street)
    done = report(street, request, failed=request.references, reason=0x0122)
    assert done == RecordedReport("pacs", dead=1)
    assert "of this SOP Class" in way(street).detail


def test_a_duplicate_transaction_is_asked_again_without_sending(street: Street) -> None:
    delivered(street, "1.1")
    request = ask(street)
    report(street, request, failed=request.references, reason=0x0131)
    assert ways(street) == [("delivered", "due", None)]


def test_without_a_report_it_is_asked_again_then_needs_a_person(street: Street) -> None:
    delivered(street, "1.1")
    first = ask(street)
    street.clock.now += DAY + 1
    assert street.ledger.give_up_commitments(PACS, "nothing came") == 0
    second = ask(street)
    assert second.references == first.references
    assert second.transaction_uid != first.transaction_uid
    street.clock.now += DAY + 1
    assert street.ledger.give_up_commitments(PACS, "nothing came") == 1
    assert ways(street) == [("dead", "failed", "commitment_unanswered")]
    assert way(street).detail == "nothing came"
    assert street.ledger.begin_commitment(PACS, SECONDS) is None


def test_a_late_report_to_an_earlier_request_still_commits_and_fails_nothing(
    street: Street,
) -> None:
    delivered(street, "1.1", "1.2")
    first = ask(street)
    one, other = first.references
    street.clock.now += DAY + 1
    ask(street)
    assert report(street, first, kept=(one,), failed=(other,)) == RecordedReport(
        "pacs", committed=1
    )
    assert ways(street) == [("delivered", "committed", None), ("delivered", "asked", None)]


def test_a_request_survives_the_end_of_its_process_before_the_answer(street: Street) -> None:
    delivered(street, "1.1")
    request = street.ledger.begin_commitment(PACS, SECONDS)
    assert request is not None
    assert street.ledger.begin_commitment(PACS, SECONDS) is None, "it may be on its way"
    assert report(street, request, kept=request.references) == RecordedReport("pacs", committed=1)


def test_a_request_of_which_nothing_is_heard_is_due_again(street: Street) -> None:
    delivered(street, "1.1")
    first = street.ledger.begin_commitment(PACS, SECONDS)
    street.clock.now += SECONDS + 1
    second = street.ledger.begin_commitment(PACS, SECONDS)
    assert first is not None
    assert second is not None
    assert first.references == second.references


def test_an_outage_does_not_count_and_leaves_no_request(street: Street) -> None:
    delivered(street, "1.1")
    for _ in range(3):
        request = street.ledger.begin_commitment(PACS, SECONDS)
        assert request is not None
        street.ledger.put_off_commitment(request.transaction_uid, "away", 10.0, was_sent=False)
        street.clock.now += 11
    assert way(street).commitment_tries == 0
    assert way(street).detail == "away"
    assert street.rows(asked_commitment) == []


def test_a_refused_request_counts_and_at_last_needs_a_person(street: Street) -> None:
    delivered(street, "1.1")
    for _ in range(2):
        request = street.ledger.begin_commitment(PACS, SECONDS)
        assert request is not None
        street.ledger.put_off_commitment(request.transaction_uid, "0x0211", 10.0, was_sent=True)
        street.clock.now += 11
    assert street.ledger.give_up_commitments(PACS, "nothing came") == 1
    assert ways(street) == [("dead", "failed", "commitment_refused")]
    assert way(street).detail == "0x0211"


@pytest.mark.parametrize("ae_title", ["STRANGER", ""])
def test_another_system_cannot_answer(street: Street, ae_title: str) -> None:
    delivered(street, "1.1")
    request = ask(street)
    assert report(street, request, kept=request.references, ae_title=ae_title) is None
    assert ways(street) == [("delivered", "asked", None)]


def test_a_report_on_a_part_leaves_the_rest_waiting(street: Street) -> None:
    delivered(street, "1.1", "1.2")
    request = ask(street)
    stranger = SopReference("1.2.3", "1.2.3.4")
    done = report(street, request, kept=(request.references[0], stranger))
    assert done == RecordedReport("pacs", committed=1, unasked=1, missing=1)
    assert ways(street) == [("delivered", "committed", None), ("delivered", "asked", None)]


def test_an_object_that_is_in_both_lists_is_not_kept(street: Street) -> None:
    delivered(street, "1.1")
    request = ask(street)
    done = report(street, request, kept=request.references, failed=request.references)
    assert done == RecordedReport("pacs", resent=1)


def test_a_document_sent_again_by_a_person_begins_anew(street: Street) -> None:
    delivered(street, "1.1")
    request = ask(street)
    report(street, request, kept=request.references)
    among = {"pacs": DicomDestination(accept_untrained=True)}
    assert street.ledger.resend("1.1", among=among) is not None
    assert ways(street) == [("due", None, None)]


def test_one_request_goes_to_one_sender(street: Street) -> None:
    for study, sender in (("1.1", "CR1"), ("1.2", "CR2"), ("1.3", "CR1")):
        street.receive(study, 1, calling_ae_title=sender)
    street.read()
    street.assemble()
    street.report()
    accept(street)
    senders = AskedScp("pacs", "", 2)
    first, second = ask(street, senders), ask(street, senders)
    assert [(one.ae_title, len(one.references)) for one in (first, second)] == [
        ("CR1", 2),
        ("CR2", 1),
    ]


def test_a_destination_that_is_no_longer_asked_leaves_its_documents_delivered(
    street: Street,
) -> None:
    delivered(street, "1.1")
    ask(street)
    assert street.ledger.forget_commitments_of_others(["pacs"]) == 0
    assert street.ledger.forget_commitments_of_others(["other"]) == 1
    assert ways(street) == [("delivered", None, None)]


def test_a_request_names_a_bounded_number_of_documents(street: Street) -> None:
    for start in (1, 61):
        delivered(street, *(f"1.{number}" for number in range(start, start + 60)))
    counts = [len(ask(street).references), len(ask(street).references)]
    assert counts == [100, 20]


def test_a_document_that_is_not_kept_is_not_sent_behind_a_newer_result(street: Street) -> None:
    delivered(street, "1.1")
    request = ask(street)
    street.receive("1.1", 2)
    street.read()
    street.assemble()
    report(street, request, failed=request.references)
    street.clock.now += 61
    assert [job.lease.row_id for job in street.claim("deliver")] == []
    assert ways(street) == [("delivered", None, None)], "the PACS has accepted it"


def test_documents_that_were_asked_for_often_enough_are_not_asked_for_again(
    street: Street,
) -> None:
    delivered(street, "1.1")
    ask(street)
    street.clock.now += DAY + 1
    ask(street)
    street.clock.now += DAY + 1
    assert street.ledger.begin_commitment(PACS, SECONDS) is None


def test_after_the_clock_was_set_back_it_is_asked_and_a_report_is_awaited_anew(
    street: Street,
) -> None:
    street.clock.now = time.time() + 10 * DAY
    delivered(street, "1.1")
    ask(street)
    street.receive("1.2", 1)
    street.read()
    street.assemble()
    street.report()
    accept(street)
    street.clock.now -= 10 * DAY
    assert street.ledger.begin_commitment(PACS, SECONDS) is None
    ClockStepMonitor(Settings(), street.clock, lambda: 0.0).look(street.ledger)
    request = street.ledger.begin_commitment(PACS, SECONDS)
    assert request is not None
    assert len(request.references) == 1
    moments = [row.commitment_due_at - street.clock.now for row in street.rows(delivery)]
    assert moments == [DAY, SECONDS]


def test_what_waits_rightly_is_not_asked_for_when_another_host_starts(street: Street) -> None:
    street.clock.now = time.time()
    delivered(street, "1.1")
    ask(street)
    ClockStepMonitor(Settings(), street.clock, lambda: 0.0).look(street.ledger)
    assert street.ledger.seconds_to_commitment("pacs") == DAY

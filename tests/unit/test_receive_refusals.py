"""From exception to DIMSE status, and from what happened to a row."""

from __future__ import annotations

import errno

import pytest
from pydicom.uid import DigitalXRayImageStorageForPresentation

from hilum.receive import refusals
from hilum.receive.account import NOT_DICOM, Account
from hilum.receive.advice import NotAccepted
from hilum.receive.policy import Rejection

DX = str(DigitalXRayImageStorageForPresentation)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (refusals.OutOfResources("full"), 0xA700),
        (OSError(errno.ENOSPC, "No space left on device"), 0xA700),
        (OSError(errno.EROFS, "Read-only file system"), 0xA700),
        (MemoryError(), 0xA700),
        (refusals.DataSetDoesNotMatch("differs"), 0xA900),
        (refusals.SopClassNotNegotiated("other class"), 0x0122),
        (refusals.CannotUnderstand("missing"), 0xC000),
        (KeyError("a bug"), 0xC000),
    ],
)
def test_each_failure_has_its_status(error: Exception, status: int) -> None:
    answer = refusals.answer(error)
    assert answer.status == status
    assert answer.label == f"0x{status:04X}"
    assert 0 < len(answer.comment) <= refusals.COMMENT_LENGTH


def test_a_bug_tells_the_sender_nothing_about_the_data() -> None:
    assert "Doe" not in refusals.answer(ValueError("Doe^Jane")).comment
    assert "secret" not in refusals.answer(OSError(errno.EACCES, "Permission denied", "/secret/path")).comment


def test_a_long_comment_is_cut_to_what_the_standard_allows() -> None:
    assert refusals.answer(refusals.CannotUnderstand("x" * 100)).comment == "x" * 64


def account(**facts: object) -> Account:
    made = Account("10.0.0.1", started_at=1.0, calling_ae_title="MODALITY", called_ae_title="HILUM", is_requested=True)
    for name, value in facts.items():
        setattr(made, name, value)
    return made


def test_a_health_check_that_asks_for_nothing_makes_no_row() -> None:
    assert Account("10.0.0.1", started_at=1.0).outcome(is_released=False) is None


def test_what_is_not_dicom_is_said() -> None:
    made = Account("10.0.0.1", started_at=1.0, unheard=NOT_DICOM)
    row = made.record("not_dicom", 2.0)
    assert made.outcome(is_released=False) == "not_dicom"
    assert "without TLS" in str(row.advice)
    assert (row.calling_ae_title, row.called_ae_title) == ("", "")


def test_a_request_that_cannot_be_read_is_a_row_that_names_its_sender_and_says_why() -> None:
    made = account(calling_ae_title="R%D6NTGEN", abort_reason="protocol_error", request_problem="a Presentation Context ID occurs twice")
    row = made.record("aborted", 2.0)
    assert (row.calling_ae_title, row.reason) == ("R%D6NTGEN", "protocol_error")
    assert row.advice == "Its A-ASSOCIATE-RQ cannot be read: a Presentation Context ID occurs twice. Correct the sender."


def test_an_association_without_trouble_needs_no_words() -> None:
    row = account(stored=3, accepted=frozenset({DX})).record("released", 2.0)
    assert (row.outcome, row.reason, row.stored, row.refused, row.advice) == ("released", None, 3, 0, None)


def test_a_rejection_is_a_row_with_its_advice() -> None:
    made = account(rejection=Rejection(1, 1, 7, "called_ae_title_not_recognised", "Set it to HILUM."))
    row = made.record(str(made.outcome(is_released=False)), 2.0)
    assert (row.outcome, row.reason, row.advice) == ("rejected", "called_ae_title_not_recognised", "Set it to HILUM.")


def test_refused_classes_beside_accepted_ones_are_advice_but_no_trouble() -> None:
    ct = NotAccepted("1.2.840.10008.5.1.4.1.1.2", is_known=False)
    row = account(accepted=frozenset({DX}), not_accepted=(ct,), advice_on_contexts="Send no CT.", stored=1).record("released", 2.0)
    assert (row.reason, row.advice) == (None, "Send no CT.")
    row = account(not_accepted=(ct,)).record("released", 2.0)
    assert row.reason == "sop_class_not_accepted"
    row = account(not_accepted=(NotAccepted(DX, is_known=True),)).record("released", 2.0)
    assert row.reason == "transfer_syntax_not_accepted"


def test_failed_requests_are_counted_with_the_last_cause() -> None:
    last = refusals.answer(refusals.CannotUnderstand("Study Instance UID (0020,000D) is missing; fill it in"))
    row = account(refused=2, last_refusal=last, stored=5).record("released", 2.0)
    assert (row.stored, row.refused, row.reason) == (5, 2, "0xC000")
    assert row.advice == "2 C-STORE refused, the last with 0xC000: Study Instance UID (0020,000D) is missing; fill it in."


def test_an_abort_says_by_whom() -> None:
    assert account().record("aborted", 2.0).reason == "connection_lost"
    assert account(abort_reason="aborted_by_peer").record("aborted", 2.0).reason == "aborted_by_peer"

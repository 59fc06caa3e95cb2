"""From exception to DIMSE status, and from what happened to a row."""

from __future__ import annotations

import errno
from collections import Counter
from typing import Any

import pytest
from pydicom.uid import DigitalXRayImageStorageForPresentation

from hilum.receive import statuses
from hilum.receive.policy.advice import NotAccepted
from hilum.receive.policy.association_policy import AssociationRejection
from hilum.receive.policy.association_record import NOT_DICOM, AssociationRecorder

DX = str(DigitalXRayImageStorageForPresentation)
CT = NotAccepted("1.2.840.10008.5.1.4.1.1.2", is_known=False)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (statuses.OutOfResources("full"), 0xA700),
        (OSError(errno.ENOSPC, "No space left on device"), 0xA700),
        (OSError(errno.EROFS, "Read-only file system"), 0xA700),
        (MemoryError(), 0xA700),
        (statuses.DataSetDoesNotMatch("differs"), 0xA900),
        (statuses.SopClassNotNegotiated("other class"), 0x0122),
        (statuses.CannotUnderstand("missing"), 0xC000),
        (KeyError("a bug"), 0xC000),
    ],
)
def test_each_failure_has_its_status(error: Exception, status: int) -> None:
    answer = statuses.answer(error)
    assert answer.status == status
    assert answer.label == f"0x{status:04X}"
    assert 0 < len(answer.comment) <= statuses.COMMENT_LENGTH


def test_a_bug_tells_the_sender_nothing_about_the_data() -> None:
    assert "Doe" not in statuses.answer(ValueError("Doe^Jane")).comment
    assert (
        "secret"
        not in statuses.answer(OSError(errno.EACCES, "Permission denied", "/secret/path")).comment
    )


def test_a_long_comment_is_cut_to_what_the_standard_allows() -> None:
    assert statuses.answer(statuses.CannotUnderstand("x" * 100)).comment == "x" * 64


def account(**facts: object) -> AssociationRecorder:
    made = AssociationRecorder(
        "10.0.0.1",
        started_at=1.0,
        calling_ae_title="MODALITY",
        called_ae_title="HILUM",
        is_requested=True,
    )
    for name, value in facts.items():
        setattr(made, name, value)
    return made


def test_a_health_check_that_asks_for_nothing_makes_no_row() -> None:
    assert AssociationRecorder("10.0.0.1", started_at=1.0).outcome(is_released=False) is None


def test_what_is_not_dicom_is_said() -> None:
    made = AssociationRecorder("10.0.0.1", started_at=1.0, unheard=NOT_DICOM)
    row = made.record("not_dicom", 2.0)
    assert made.outcome(is_released=False) == "not_dicom"
    assert "without TLS" in str(row.advice)
    assert (row.calling_ae_title, row.called_ae_title) == ("", "")


def test_a_request_that_cannot_be_read_is_a_row_that_names_its_sender_and_says_why() -> None:
    made = account(
        calling_ae_title="R%D6NTGEN",
        abort_reason="protocol_error",
        request_problem="a Presentation Context ID occurs twice",
    )
    row = made.record("aborted", 2.0)
    assert (row.calling_ae_title, row.reason) == ("R%D6NTGEN", "protocol_error")
    assert (
        row.advice
        == "Its A-ASSOCIATE-RQ cannot be read: a Presentation Context ID occurs twice. Correct the"
        " sender."
    )


def test_an_association_without_trouble_needs_no_words() -> None:
    row = account(stored=3, accepted=frozenset({DX})).record("released", 2.0)
    assert (row.outcome, row.reason, row.stored, row.refused, row.advice) == (
        "released",
        None,
        3,
        0,
        None,
    )


def test_a_rejection_is_a_row_with_its_advice() -> None:
    made = account(
        rejection=AssociationRejection(
            1, 1, 7, "called_ae_title_not_recognised", "Set it to HILUM."
        )
    )
    row = made.record(str(made.outcome(is_released=False)), 2.0)
    assert (row.outcome, row.reason, row.advice) == (
        "rejected",
        "called_ae_title_not_recognised",
        "Set it to HILUM.",
    )


@pytest.mark.parametrize(
    "taken",
    [{"stored": 1}, {"own_documents": 1}, {"stored": 0, "discarded": Counter({"1.2.3": 1})}],
)
def test_refused_classes_are_no_news_where_what_was_sent_was_taken(taken: dict[str, Any]) -> None:
    """A router proposes all that it knows, with each study."""
    row = account(
        accepted=frozenset({DX}), not_accepted=(CT,), advice_on_contexts="Send no CT.", **taken
    ).record("released", 2.0)
    assert "Send no CT." not in str(row.advice)
    assert row.reason in (None, "other_objects_discarded")
    row = account(
        accepted=frozenset(), not_accepted=(CT,), advice_on_contexts="Send no CT.", **taken
    ).record("released", 2.0)
    assert row.reason in (None, "other_objects_discarded")


def test_refused_classes_are_told_where_an_object_may_have_been_lost_by_them() -> None:
    known = {
        "accepted": frozenset({DX}),
        "not_accepted": (CT,),
        "advice_on_contexts": "Send no CT.",
    }
    assert account(**known).record("released", 2.0).advice == "Send no CT.", "nothing was stored"
    aborted = account(**known, stored=1, abort_reason="aborted_by_peer").record("aborted", 2.0)
    assert (aborted.reason, aborted.advice) == ("aborted_by_peer", "Send no CT."), "it gave up"
    row = account(**known, refused=1, last_refusal=statuses.StatusResponse(0xC000, "no")).record(
        "released", 2.0
    )
    assert row.advice == "Send no CT. 1 C-STORE refused, the last with 0xC000: no."


def test_objects_that_are_no_images_are_counted_by_their_classes() -> None:
    discarded = Counter(
        {
            "1.2.840.10008.5.1.4.1.1.88.11": 3,
            "1.2.840.10008.5.1.4.1.1.104.1": 1,
            "1.2.3": 2,
            "1.2.4": 1,
        }
    )
    row = account(stored=1, discarded=discarded).record("released", 2.0)
    assert (row.reason, row.refused) == ("other_objects_discarded", 0)
    said = "3 Basic Text SR Storage, 2 1.2.3, 1 Encapsulated PDF Storage and 1 of other classes"
    assert (
        row.advice == f"Acknowledged and not kept, being no images: {said} (receive.other_objects)."
    )


def test_without_a_class_that_is_accepted_the_reason_says_which_was_missing() -> None:
    row = account(not_accepted=(CT,)).record("released", 2.0)
    assert row.reason == "sop_class_not_accepted"
    row = account(not_accepted=(NotAccepted(DX, is_known=True),)).record("released", 2.0)
    assert row.reason == "transfer_syntax_not_accepted"


def test_failed_requests_are_counted_with_the_last_cause() -> None:
    last = statuses.answer(
        statuses.CannotUnderstand("Study Instance UID (0020,000D) is missing; fill it in")
    )
    row = account(refused=2, last_refusal=last, stored=5).record("released", 2.0)
    assert (row.stored, row.refused, row.reason) == (5, 2, "0xC000")
    assert (
        row.advice
        == "2 C-STORE refused, the last with 0xC000: Study Instance UID (0020,000D) is missing;"
        " fill it in."
    )


def test_an_abort_says_by_whom() -> None:
    assert account().record("aborted", 2.0).reason == "connection_lost"
    assert (
        account(abort_reason="aborted_by_peer").record("aborted", 2.0).reason == "aborted_by_peer"
    )

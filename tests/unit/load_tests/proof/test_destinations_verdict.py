"""The verdict of the proof's part `destinations` sees each thing that can be wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from load_tests.proof.destinations.dialects import Held, digest_of
from load_tests.proof.destinations.scene import Delivery
from load_tests.proof.destinations.verdict import judge

FIRST = b"MSH|^~\\&|HILUM|SITE|RIS|SITE|20260101||ORU^R01|1|P|2.5.1\rOBX|1"
SECOND = FIRST.replace(b"|1|P|", b"|2|P|")
ROWS = [
    Delivery("ris", "hl7", content, "delivered", None, None, finished_at)
    for content, finished_at in ((FIRST, 11.0), (SECOND, 12.0))
]
COPIES = [Held("1", digest_of(FIRST)), Held("2", digest_of(SECOND))]


def test_all_documents_there_once_is_clean() -> None:
    found = judge(ROWS, COPIES, COPIES, ended_at=10.0)
    assert found.is_clean
    assert (found.documents, found.repeated, found.seconds) == (2, 0, 2.0)


def test_a_document_that_the_receiver_does_not_hold_is_lost() -> None:
    assert judge(ROWS, COPIES[:1], COPIES).lost == 1


def test_a_dead_document_is_not_lost_but_needs_words() -> None:
    dead = replace(ROWS[1], state="dead", reason="refused", detail="see its log")
    silent = replace(dead, detail=None)
    assert judge([ROWS[0], dead], COPIES[:1], COPIES).is_clean
    assert judge([ROWS[0], silent], COPIES[:1], COPIES).unadvised == 1


def test_a_second_copy_and_other_content_are_seen() -> None:
    other = Held("1", digest_of(b"other"))
    assert judge(ROWS, [*COPIES, COPIES[0]], COPIES).altered == 1
    assert judge(ROWS, [other, COPIES[1]], COPIES).altered == 1
    assert judge(ROWS, COPIES, [*COPIES, other]).altered == 1


def test_the_same_document_again_is_counted_and_allowed() -> None:
    found = judge(ROWS, COPIES, [*COPIES, COPIES[0]])
    assert found.is_clean
    assert found.repeated == 1


@pytest.mark.parametrize("state", ["due", "leased"])
def test_a_row_that_has_not_ended_is_seen(state: str) -> None:
    assert judge([replace(ROWS[0], state=state, finished_at=None)], COPIES, COPIES).unfinished == 1


def test_copies_of_other_documents_do_not_count() -> None:
    assert judge(ROWS[:1], COPIES, COPIES).documents == 1
    assert judge(ROWS[:1], [COPIES[0], COPIES[1], COPIES[1]], COPIES).is_clean

"""The priority of an order, from encoded entries of a worklist."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pydicom.dataset import Dataset
from pydicom.uid import UID, ExplicitVRLittleEndian, ImplicitVRLittleEndian

from hilum.retrieve.dimse.answers import encoded
from hilum.retrieve.worklist.entries import (
    OrderPriority,
    UnreadableEntry,
    entry_identifier,
    is_askable,
    judged,
    words_of_entry,
)
from tests.support.worklist.worklists import entry

ORDER = "0042"
URGENT = ("STAT", "HIGH")


def priority_of(entries: Sequence[Dataset], syntax: UID = ImplicitVRLittleEndian) -> OrderPriority:
    found = [words_of_entry(encoded(item, syntax), syntax, ORDER) for item in entries]
    return judged((words for words in found if words is not None), URGENT)


@pytest.mark.parametrize("syntax", [ImplicitVRLittleEndian, ExplicitVRLittleEndian])
@pytest.mark.parametrize("word", ["STAT", "HIGH"])
def test_stat_and_high_are_urgent(word: str, syntax: UID) -> None:
    assert priority_of([entry(ORDER, word)], syntax) == OrderPriority((word,), 1, is_urgent=True)


@pytest.mark.parametrize("word", ["ROUTINE", "MEDIUM", "LOW"])
def test_routine_medium_and_low_are_not(word: str) -> None:
    assert priority_of([entry(ORDER, word)]) == OrderPriority((word,), 1, is_urgent=False)


@pytest.mark.parametrize("word", ["SOON", "STATUS", "DOE^JANE", ""])
def test_a_word_that_is_not_known_is_none_and_is_not_repeated(word: str) -> None:
    assert priority_of([entry(ORDER, word)]) == OrderPriority((), 1, is_urgent=False)


def test_the_retired_study_priority_counts() -> None:
    assert priority_of([entry(ORDER, retired="HIGH")]).words == ("HIGH",)


def test_a_priority_in_the_scheduled_step_counts() -> None:
    assert priority_of([entry(ORDER, in_step="STAT")]).words == ("STAT",)


def test_the_most_urgent_of_several_answers_counts() -> None:
    entries = [entry(ORDER, "LOW"), entry(ORDER, "HIGH"), entry(ORDER, "STAT")]
    found = priority_of(entries)
    assert found == OrderPriority(("STAT", "HIGH", "LOW"), 3, is_urgent=True)


def test_spaces_and_small_letters_do_not_count() -> None:
    assert priority_of([entry(f" {ORDER} ", "stat ")]).words == ("STAT",)


@pytest.mark.parametrize("accession", ["42", "00042", "9999", "", "0042B"])
def test_an_entry_of_another_order_is_left_out(accession: str) -> None:
    assert priority_of([entry(accession, "STAT")]) == OrderPriority((), 0, is_urgent=False)


@pytest.mark.parametrize(
    "answer",
    [
        b"\x08\x00\x50\x00SH\xff\xff0042",
        b"\x08\x00\x50\x00\x04\x00\x00\x00" + b"0042" + b"\x40\x00\x00\x01\xff\xff\xff\xff\x01",
        b"\x00" * 7,
        b"\x08\x00\x50\x00\x04\x00\x00\x00" + b"0042" * 300_000,
    ],
)
def test_an_answer_that_is_no_entry_makes_nothing_urgent(answer: bytes) -> None:
    try:
        words = words_of_entry(answer, ImplicitVRLittleEndian, ORDER)
    except UnreadableEntry:
        return
    assert not words


@pytest.mark.parametrize("accession", ["0042", "A 1-2/3", "x" * 64])
def test_an_accession_number_is_asked_for_as_it_is(accession: str) -> None:
    assert is_askable(accession)
    assert entry_identifier(accession).AccessionNumber == accession


@pytest.mark.parametrize("accession", ["4*", "4?", "4\\5", "", "é42", "4\n2", "x" * 65])
def test_an_accession_number_that_would_be_a_pattern_or_a_list_is_never_sent(
    accession: str,
) -> None:
    assert not is_askable(accession)

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hilum.deliver.scu.statuses import check_status
from hilum.errors import Refused, Retry

PEER = "PACS@host:104"


@pytest.mark.parametrize("status", [0x0000, 0x0001, 0x0107, 0x0111, 0x0116, 0xB000, 0xB006, 0xB007])
def test_success_warning_and_a_duplicate_of_our_own_are_delivered(status):
    check_status(status, PEER)


@pytest.mark.parametrize("status", [0xA700, 0xA701, 0xA7FF, 0xFE00, 0x0213])
def test_a_full_receiver_costs_the_document_no_try(status):
    with pytest.raises(Retry, match=f"0x{status:04X}") as caught:
        check_status(status, PEER)
    assert caught.value.is_outage


@pytest.mark.parametrize("status", [0x0110, 0x0112, 0x0105, 0x0210])
def test_an_unclear_failure_is_tried_again_and_counted(status):
    with pytest.raises(Retry) as caught:
        check_status(status, PEER)
    assert not caught.value.is_outage


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (0xA900, "data_set_refused"),
        (0xA9FF, "data_set_refused"),
        (0xC000, "data_set_refused"),
        (0xCFFF, "data_set_refused"),
        (0x0117, "data_set_refused"),
        (0x0122, "sop_class_refused"),
        (0x0124, "not_authorised"),
        (0x0211, "operation_refused"),
        (0x0212, "operation_refused"),
    ],
)
def test_a_refusal_says_what_to_do(status, reason):
    with pytest.raises(Refused, match=r"PACS@host:104 answered 0x.{4}: .+ then requeue") as caught:
        check_status(status, PEER)
    assert caught.value.reason == reason


@given(st.integers(0, 0xFFFF))
def test_every_status_has_one_meaning(status):
    try:
        check_status(status, PEER)
    except (Retry, Refused) as error:
        assert f"0x{status:04X}" in str(error)  # noqa: PT017 - either of two errors, or none

"""Command sets of the streaming loop, against pydicom and pynetdicom."""

from __future__ import annotations

from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydicom.filereader import read_dataset

from hilum.dicom import command_set, pdu
from hilum.receive.upper_layer import command
from hilum.receive.upper_layer.command import Command
from hilum.receive.upper_layer.protocol import ProtocolError
from tests.support.peers.raw_scu import DX
from tests.support.peers.wire import store, us

REQUEST = Command(command_set.C_STORE_RQ, 7, True, DX, "1.2.3", 0, {})


def test_a_request_is_read() -> None:
    assert command.decode(store("1.2.3", message_id=7))[:-1] == REQUEST[:-1]


def test_a_response_says_what_the_standard_wants_in_ascending_tags() -> None:
    said = read_dataset(BytesIO(command.response(REQUEST, 0xA700, "Odd length")), True, True)
    assert (said.CommandField, said.MessageIDBeingRespondedTo, said.CommandDataSetType) == (
        0x8001,
        7,
        0x0101,
    )
    assert (
        said.Status,
        said.ErrorComment,
        said.AffectedSOPClassUID,
        said.AffectedSOPInstanceUID,
    ) == (0xA700, "Odd length", DX, "1.2.3")
    encoded = command.response(REQUEST, 0xA700, "Odd length")
    assert said.CommandGroupLength == len(encoded) - 12
    assert [element.tag for element in said] == sorted(element.tag for element in said)


def test_an_action_is_answered_with_the_uids_and_the_action_that_it_asks_for() -> None:
    asked = {
        command_set.REQUESTED_SOP_CLASS_UID: command_set.uid("1.2.840.10008.1.20.1"),
        command_set.COMMAND_FIELD: command_set.us(command_set.N_ACTION_RQ),
        command_set.MESSAGE_ID: command_set.us(9),
        command_set.COMMAND_DATA_SET_TYPE: command_set.us(0),
        command_set.REQUESTED_SOP_INSTANCE_UID: command_set.uid("1.2.840.10008.1.20.1.1"),
        command_set.ACTION_TYPE_ID: command_set.us(1),
    }
    request = command.decode(command_set.encode(asked))
    said = read_dataset(BytesIO(command.response(request, 0x0123, "No")), True, True)
    assert (said.CommandField, said.MessageIDBeingRespondedTo, said.Status, said.ActionTypeID) == (
        0x8130,
        9,
        0x0123,
        1,
    )
    assert (said.AffectedSOPClassUID, said.AffectedSOPInstanceUID) == (
        "1.2.840.10008.1.20.1",
        "1.2.840.10008.1.20.1.1",
    )
    assert [element.tag for element in said] == sorted(element.tag for element in said)


@given(st.binary(max_size=300))
def test_whatever_comes_is_a_command_or_a_protocol_error(encoded: bytes) -> None:
    try:
        found = command.decode(encoded)
    except ProtocolError:
        return
    assert 0 <= found.field <= 0xFFFF


@given(st.binary(max_size=60), st.integers(0, 200))
def test_a_broken_command_is_a_command_or_a_protocol_error(piece: bytes, at: int) -> None:
    encoded = store("1.2.3")
    try:
        found = command.decode(encoded[:at] + piece + encoded[at + len(piece) :])
    except ProtocolError:
        return
    command.response(found, 0)


@pytest.mark.parametrize("maximum", [0, 7, 8, 40, 16384])
def test_a_command_fits_into_the_peers_pdus(maximum: int) -> None:
    encoded = command.response(REQUEST, 0)
    sent, received, last = pdu.message(5, encoded, maximum, is_command=True), b"", False
    while sent:
        assert not last
        kind, length = pdu.HEADER.unpack_from(sent)
        size, context_id, control = pdu.ITEM.unpack_from(sent, pdu.HEADER.size)
        assert (kind, size, context_id, control & pdu.IS_COMMAND) == (4, length - 4, 5, 1)
        assert not maximum or length <= max(maximum, 7)
        received += sent[12 : 6 + length]
        last, sent = bool(control & pdu.IS_LAST), sent[6 + length :]
    assert (last, received) == (True, encoded)


def test_numbers_of_another_length_are_missing() -> None:
    assert command.decode(store("1.2.3", e0700=us(0) * 2)).priority is None

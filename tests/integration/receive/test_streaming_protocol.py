"""What a peer may and may not say behind the A-ASSOCIATE-AC, at the real listener.

Served, refused, or aborted with the right reason.
"""

from __future__ import annotations

import errno
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydicom.uid import ExplicitVRLittleEndian

from hilum.receive.headers.file_meta import decode
from preprocessing.compile_c import TRANSFER, compiled
from tests.support.ledger.storing import data_set
from tests.support.machine.waiting import wait_for
from tests.support.peers.peers import missing
from tests.support.peers.raw_scu import DX
from tests.support.peers.wire import (
    ABORT,
    CANCEL_RQ,
    ECHO_RQ,
    FIND_RQ,
    RELEASE,
    VERIFICATION,
    Wire,
    association_request,
    command,
    item,
    message,
    pdu,
    pdv,
    store,
    us,
)
from tests.support.server.listening import ListenerProcess, make_settings, unindexed

PROVIDER = 2
UNRECOGNISED, UNEXPECTED, UNEXPECTED_PARAMETER, INVALID_PARAMETER = 1, 2, 5, 6


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ListenerProcess]:
    with ListenerProcess(make_settings(tmp_path_factory.mktemp("protocol") / "state")) as running:
        yield running


def test_echo_store_and_release_right_behind_the_acceptance_lose_nothing_in_100_associations(
    listener: ListenerProcess,
) -> None:
    for number in range(100):
        uid = f"1.2.100.{number}"
        with Wire(listener.port, calling="BACKTOBACK") as wire:
            wire.send(
                message(command(ECHO_RQ), context=3), message(store(uid), data_set(uid)), RELEASE
            )
            assert wire.answer[0] == 2
            assert (wire.status(), wire.status(), wire.next_pdu()[0]) == (0, 0, 6)
    ended = (
        "SELECT 1 FROM association WHERE calling_ae_title = 'BACKTOBACK' AND outcome = 'released'"
    )
    wait_for(lambda: len(listener.rows(ended)) == 100, what="the rows")


ENCODED = data_set("1.2.3")
COMMAND = pdu(4, pdv(store("1.2.3"), is_command=True))
WRONG: dict[str, tuple[bytes, int]] = {
    "an unknown PDU": (pdu(0x55, bytes(10)), UNRECOGNISED),
    "a second request": (pdu(1, bytes(100)), UNEXPECTED),
    "a release response": (pdu(6, bytes(4)), UNEXPECTED),
    "a PDU of 2 GiB": (struct.pack(">BxL", 4, 2 << 30), INVALID_PARAMETER),
    "a release of another length": (pdu(5, bytes(8)), INVALID_PARAMETER),
    "a PDV that is longer than its PDU": (
        pdu(4, struct.pack(">LBB", 100, 1, 3) + bytes(10)),
        INVALID_PARAMETER,
    ),
    "a PDV without a header": (pdu(4, struct.pack(">LB", 1, 1) + bytes(3)), INVALID_PARAMETER),
    "a PDU with a broken PDV": (pdu(4, bytes(3)), INVALID_PARAMETER),
    "a context that was not accepted": (
        pdu(4, pdv(store("1.2.3"), context=99, is_command=True)),
        INVALID_PARAMETER,
    ),
    "data before a command": (pdu(4, pdv(ENCODED)), UNEXPECTED_PARAMETER),
    "data in another context": (COMMAND + pdu(4, pdv(ENCODED, context=3)), UNEXPECTED_PARAMETER),
    "a command inside a data set": (COMMAND + COMMAND, UNEXPECTED_PARAMETER),
    "half a command and data": (
        pdu(4, pdv(b"abc", is_command=True, is_last=False)) + pdu(4, pdv(ENCODED)),
        UNEXPECTED_PARAMETER,
    ),
    "a command of 65 KiB": (pdu(4, pdv(bytes(65 << 10), is_command=True)), INVALID_PARAMETER),
    "a broken command": (pdu(4, pdv(store("1.2.3")[:-3], is_command=True)), INVALID_PARAMETER),
    "a command that ends in a header": (
        pdu(4, pdv(store("1.2.3") + b"\0\0", is_command=True)),
        INVALID_PARAMETER,
    ),
    "another group": (pdu(4, pdv(ENCODED, is_command=True)), INVALID_PARAMETER),
    "no command field": (message(store("1.2.3", e0100=None)), INVALID_PARAMETER),
    "no message ID": (message(store("1.2.3", e0110=None), ENCODED), INVALID_PARAMETER),
    "no data set type": (message(store("1.2.3", e0800=None)), INVALID_PARAMETER),
    "a response": (message(store("1.2.3", e0100=us(0x8001))), INVALID_PARAMETER),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_must_not_be_is_aborted_with_its_reason(listener: ListenerProcess, name: str) -> None:
    sent, reason = WRONG[name]
    calling = f"WRONG{list(WRONG).index(name)}"
    with Wire(listener.port, calling=calling) as wire:
        wire.send(sent)
        assert wire.next_pdu() == (7, bytes((0, 0, PROVIDER, reason)))
    row = listener.association_of(calling)
    assert (row["outcome"], row["reason"], row["stored"]) == ("aborted", "protocol_error", 0)
    wait_for(lambda: not list(unindexed(listener.archive)), what="the files in their places")


def halves(content: bytes) -> list[bytes]:
    return [content[: len(content) // 2], content[len(content) // 2 :]]


def cut_small(command_bytes: bytes, encoded: bytes) -> bytes:
    """Every PDV in pieces of a few bytes, several PDVs in one PDU."""
    size = 7
    pieces = [
        [
            pdv(
                part[begin : begin + size], is_command=is_command, is_last=begin + size >= len(part)
            )
            for begin in range(0, len(part), size)
        ]
        for part, is_command in ((command_bytes, True), (encoded, False))
    ]
    items = pieces[0] + pieces[1]
    return b"".join(
        pdu(4, b"".join(items[begin : begin + 300])) for begin in range(0, len(items), 300)
    )


SHAPES: dict[str, Callable[[str], bytes]] = {
    "small PDVs": lambda uid: cut_small(store(uid), data_set(uid)),
    "one large PDU": lambda uid: message(
        store(uid), data_set(uid, pixels=bytes(3 << 20)), pdu_bytes=4 << 20
    ),
    "odd PDUs": lambda uid: message(
        store(uid), data_set(uid, pixels=bytes(700_001)), pdu_bytes=4099
    ),
    "command and data set in one PDU": lambda uid: pdu(
        4, pdv(store(uid), is_command=True) + pdv(data_set(uid))
    ),
    "an empty last fragment": lambda uid: (
        message(store(uid)) + pdu(4, pdv(data_set(uid), is_last=False)) + pdu(4, pdv(b""))
    ),
    "an empty PDU before it": lambda uid: pdu(4, b"") + message(store(uid), data_set(uid)),
    "a cancel before it": lambda uid: (
        message(command(CANCEL_RQ), context=3) + message(store(uid), data_set(uid))
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_data_set_in_any_shape_is_stored(listener: ListenerProcess, name: str) -> None:
    uid = f"1.2.200.{list(SHAPES).index(name)}"
    with Wire(listener.port, calling="SHAPES") as wire:
        for part in halves(SHAPES[name](uid)):
            wire.send(part)
            time.sleep(0.01)
        response = wire.response()
        assert (response[0x0900], response[0x1000].rstrip(b"\0").decode()) == (b"\0\0", uid)
        wire.send(RELEASE)
        assert wire.next_pdu()[0] == 6
        assert wire.next_pdu() == (0, b"")


def test_a_message_that_dribbles_in(listener: ListenerProcess) -> None:
    with Wire(listener.port) as wire:
        for byte in message(command(ECHO_RQ), context=3):
            wire.send(bytes((byte,)))
        assert wire.status() == 0


def test_an_operation_that_is_not_ours_is_answered_so(listener: ListenerProcess) -> None:
    with Wire(listener.port) as wire:
        wire.send(message(command(FIND_RQ)))
        assert wire.status() == 0x0211


def test_a_store_in_the_context_of_verification_is_refused(listener: ListenerProcess) -> None:
    with Wire(listener.port) as wire:
        for sop_class in (DX, VERIFICATION):
            wire.send(
                message(
                    store("1.2.3", sop_class=sop_class),
                    data_set("1.2.3").replace(DX.encode(), sop_class.encode()),
                    context=3,
                )
            )
            assert wire.status() in (0x0122, 0xA900, 0xC000)
        assert wire.status_of_echo() == 0


def test_responses_in_pdus_as_small_as_the_peer_wants_them(listener: ListenerProcess) -> None:
    with Wire(listener.port, maximum_pdu_bytes=40) as wire:
        wire.send(message(store("1.2.300.1"), data_set("1.2.300.1")))
        assert wire.status() == 0


@pytest.mark.parametrize(
    ("last", "outcome", "reason"),
    [
        (ABORT, "aborted", "aborted_by_peer"),
        (b"", "aborted", "connection_lost"),
        (RELEASE, "released", None),
    ],
)
def test_an_end_inside_an_object_leaves_nothing(
    listener: ListenerProcess, last: bytes, outcome: str, reason: str | None
) -> None:
    calling = f"END{outcome[0]}{reason or ''}"[:16]
    with Wire(listener.port, calling=calling) as wire:
        wire.send(COMMAND, pdu(4, pdv(data_set("1.2.3", pixels=bytes(1 << 20)), is_last=False)))
        wire.send(last)
    row = listener.association_of(calling)
    assert (row["outcome"], row["reason"], row["stored"]) == (outcome, reason, 0)
    wait_for(lambda: not list(unindexed(listener.archive)), what="the files in their places")


def test_an_abort_in_mid_object_is_noticed_at_once(listener: ListenerProcess) -> None:
    with Wire(listener.port, calling="MIDABORT") as wire:
        wire.send(
            COMMAND, pdu(4, pdv(data_set("1.2.3", pixels=bytes(1 << 20)), is_last=False)), ABORT
        )
        assert (
            listener.association_of("MIDABORT")["reason"] == "aborted_by_peer"
        )  # while the connection is open
        wait_for(lambda: not list(unindexed(listener.archive)), what="the files in their places")


def test_a_peer_that_does_not_close_after_its_release_is_cut_off(listener: ListenerProcess) -> None:
    with Wire(listener.port, calling="LINGERS") as wire:
        wire.send(RELEASE)
        assert wire.next_pdu()[0] == 6
        assert listener.association_of("LINGERS")["outcome"] == "released"


def test_an_object_behind_the_request_is_stored(listener: ListenerProcess) -> None:
    """Read only after the acceptance is sent, it is as one that came after it."""
    with Wire(
        listener.port, calling="EAGER", behind=message(store("1.2.400.1"), data_set("1.2.400.1"))
    ) as wire:
        assert wire.answer[0] == 2
        assert wire.status() == 0
        wire.send(RELEASE)
        assert wire.next_pdu()[0] == 6
    assert (
        listener.association_of("EAGER")["outcome"],
        listener.association_of("EAGER")["stored"],
    ) == (
        "released",
        1,
    )


@pytest.mark.parametrize(
    ("called", "calling", "shown"),
    [
        (b"HILUM\0\0\0\0\0\0\0\0\0\0\0", b"NULPADDED\0\0\0\0\0\0\0", "NULPADDED"),
        (b"  HILUM         ", b"  BLANKS BEFORE ", "BLANKS BEFORE"),
        (b"HILUM           ", "RÖNTGEN".encode("latin-1").ljust(16), "R%D6NTGEN"),
        (b"HILUM           ", "胸部".encode("shift_jis").ljust(16), "%8B%B9%95%94"),
        (b"HILUM           ", b" " * 16, ""),
    ],
)
def test_a_sender_of_any_title_that_says_odd_things_of_itself_stores(
    listener: ListenerProcess, called: bytes, calling: bytes, shown: str
) -> None:
    uid = f"1.2.410.{len(shown)}.{len(called.strip())}"
    with socket.create_connection(("127.0.0.1", listener.port), timeout=20) as connection:
        connection.sendall(odd_request(called, calling))
        assert connection.recv(1) == b"\x02"
        connection.sendall(message(store(uid), data_set(uid)) + RELEASE)
        wait_for(
            lambda: listener.rows(f"SELECT 1 FROM instance WHERE sop_instance_uid = '{uid}'"),
            what="the image",
        )
    row = listener.association_of(shown)
    assert (row["outcome"], row["reason"], row["stored"], row["called_ae_title"]) == (
        "released",
        None,
        1,
        "HILUM",
    )
    (image,) = listener.rows(f"SELECT * FROM instance WHERE sop_instance_uid = '{uid}'")
    assert image["calling_ae_title"] == shown
    assert decode(listener.archive.locate(image["path"]).read_bytes())[0].calling_ae_title == shown


@pytest.mark.parametrize(
    ("called", "shown"),
    [(b"\0" * 16, ""), (b" " * 16, ""), ("HÏLUM".encode("latin-1").ljust(16), "H%CFLUM")],
)
def test_a_title_that_is_not_ours_is_rejected_and_named(
    listener: ListenerProcess, called: bytes, shown: str
) -> None:
    calling = f"TO{len(shown)}{called[0]}".encode()
    assert answers(listener, odd_request(called, calling.ljust(16)))[:10] == pdu(
        3, bytes((0, 1, 1, 7))
    )
    row = listener.association_of(calling.decode())
    assert (row["outcome"], row["reason"], row["called_ae_title"]) == (
        "rejected",
        "called_ae_title_not_recognised",
        shown,
    )


def odd_request(called: bytes, calling: bytes) -> bytes:
    """For DX, with UIDs padded by NUL, a version name of 30 bytes of Latin-1 and an unknown sub-item."""
    context = (
        bytes((1, 0, 0, 0))
        + item(0x30, DX.encode() + b"\0")
        + item(0x40, ExplicitVRLittleEndian.encode() + b"\0")
    )
    user = (
        item(0x51, bytes(4))
        + item(0x52, b"\xe9")
        + item(0x55, "Röntgen".encode("latin-1").ljust(30, b"\0"))
        + item(0x5E, b"?")
    )
    items = item(0x10, b"1.2.840.10008.3.1.1.1\0") + item(0x20, context) + item(0x50, user)
    return pdu(1, struct.pack(">H2x16s16s32x", 1, called, calling) + items)


def test_a_request_with_an_even_context_is_aborted_and_has_a_row(listener: ListenerProcess) -> None:
    request = association_request("EVEN", [(DX, ExplicitVRLittleEndian)], 0)
    at = (
        request.index(b"\x20\0", 74) + 4
    )  # PS3.8 9.3.2.2: the Presentation Context ID, which must be odd
    assert answers(listener, request[:at] + b"\2" + request[at + 1 :]) == pdu(
        7, bytes((0, 0, PROVIDER, INVALID_PARAMETER))
    )
    row = listener.association_of("EVEN")
    assert (row["outcome"], row["reason"]) == ("aborted", "protocol_error")
    assert "the Presentation Context ID 2 is even" in row["advice"]


def test_a_request_with_a_context_of_no_class_is_aborted_and_has_a_row(
    listener: ListenerProcess,
) -> None:
    request = association_request("NOCLASS", [("", ExplicitVRLittleEndian)], 0)
    assert answers(listener, request) == pdu(7, bytes((0, 0, PROVIDER, INVALID_PARAMETER)))
    row = listener.association_of("NOCLASS")
    assert (row["outcome"], row["reason"]) == ("aborted", "protocol_error")


def answers(listener: ListenerProcess, sent: bytes) -> bytes:
    """All that comes back until the listener closes the connection."""
    with socket.create_connection(("127.0.0.1", listener.port), timeout=20) as connection:
        connection.sendall(sent)
        found = b""
        while more := connection.recv(1 << 16):
            found += more
        return found


def test_what_is_compiled_is_used_behind_the_header(tmp_path: Path) -> None:
    """By one that fails behind its self-test, of less than a megabyte.

    A listener that went on in Python would store the object.
    """
    text = TRANSFER.read_text()
    begin = "        take_more(transfer, &spans);"
    assert text.count(begin) == 1
    source = tmp_path / "transfer.c"
    source.write_text(
        text.replace(
            begin,
            "        if (transfer->limit > 1 << 20) transfer->file_problem ="
            f" {errno.ENOSPC};\n{begin}",
        )
    )
    if (problem := compiled(source)) is not None:
        missing(problem)
    with (
        ListenerProcess(
            make_settings(tmp_path / "state"), library=source.with_suffix(".so")
        ) as broken,
        Wire(broken.port) as wire,
    ):
        wire.send(message(store("1.2.500.1"), data_set("1.2.500.1", pixels=bytes(100))))
        assert wire.status() == 0
        wire.send(
            message(
                store("1.2.500.2"), data_set("1.2.500.2", pixels=bytes(200_000)), pdu_bytes=16384
            )
        )
        assert wire.status() == 0xA700
        assert "receive_not_compiled" not in broken.log.read_text()


def test_eight_large_objects_at_once_are_not_held_in_memory(listener: ListenerProcess) -> None:
    size, pdu_bytes = 32 << 20, 1 << 17

    def send(number: int) -> int:
        uid = f"1.2.600.{number}"
        with Wire(listener.port, calling="LARGE") as wire:
            wire.send(message(store(uid), data_set(uid, pixels=bytes(size)), pdu_bytes=pdu_bytes))
            return wire.status()

    assert send(0) == 0
    assert listener.child is not None
    before = peak_memory_mib(listener.child.pid)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(send, range(1, 9))) == {0}
    assert peak_memory_mib(listener.child.pid) - before < 32


def peak_memory_mib(pid: int) -> int:
    return (
        int(Path(f"/proc/{pid}/status").read_text(encoding="ascii").split("VmHWM:")[1].split()[0])
        >> 10
    )

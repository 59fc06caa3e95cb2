"""What somebody can do to the listener before anybody knows who it is: next to nothing.

Each address is one of this host.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian

from hilum.receive.upper_layer.first_pdu import MAXIMUM_BYTES
from tests.support.ledger.storing import data_set
from tests.support.machine.waiting import wait_for
from tests.support.peers.committing import INSTANCE, PUSH_MODEL
from tests.support.peers.raw_scu import DX
from tests.support.peers.wire import (
    RELEASE,
    VERIFICATION,
    Wire,
    association_request,
    command_set,
    item,
    message,
    pdu,
    store,
    uid,
    us,
)
from tests.support.server.listening import ListenerProcess, make_settings

SENDER, STRANGER = "127.0.0.1", "127.0.0.2"
PROVIDER, INVALID_PARAMETER = 2, 6
MAXIMUM_MIB = 400


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[ListenerProcess]:
    """Only for the sender's address."""
    with ListenerProcess(make_settings(tmp_path / "state", peers=(f"{SENDER}/32",))) as running:
        yield running


@pytest.fixture(scope="module")
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ListenerProcess]:
    """For any address."""
    with ListenerProcess(make_settings(tmp_path_factory.mktemp("strangers") / "state")) as running:
        yield running


def connect(listener: ListenerProcess, source: str = STRANGER) -> socket.socket:
    return socket.create_connection(
        ("127.0.0.1", listener.port), timeout=30, source_address=(source, 0)
    )


def answer_of(connection: socket.socket) -> bytes:
    """All that comes until the listener closes."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(1 << 16):
            found += more
    return found


def require_served(listener: ListenerProcess, calling: str = "SENDER") -> None:
    """At the first try, with its object."""
    number = f"1.2.{threading.get_ident() % 1000}.{time.monotonic_ns()}"
    with Wire(listener.port, calling=calling, source=SENDER) as wire:
        assert wire.answer[0] == 2
        wire.send(message(store(number), data_set(number)))
        assert wire.status() == 0
        wire.send(RELEASE)
        assert wire.next_pdu()[0] == 6


def status_of(listener: ListenerProcess, name: str) -> int:
    """Of /proc: VmHWM and VmRSS in KiB, Threads."""
    assert listener.child is not None
    text = Path(f"/proc/{listener.child.pid}/status").read_text(encoding="ascii")
    return int(text.split(f"{name}:")[1].split()[0])


def count_of(listener: ListenerProcess, condition: str) -> tuple[int, int]:
    """Rows, and associations that they stand for."""
    ((rows, count),) = listener.rows(
        f"SELECT count(*), coalesce(sum(count), 0) FROM association WHERE {condition}"
    )
    return int(rows), int(count)


def test_an_address_that_may_not_connect_is_answered_unread_and_gets_no_thread(
    closed: ListenerProcess,
) -> None:
    require_served(closed)
    before = status_of(closed, "Threads")
    connections = [connect(closed) for _ in range(60)]
    assert [connection.recv(100) for connection in connections] == [
        pdu(3, bytes((0, 1, 1, 1)))
    ] * 60
    assert status_of(closed, "Threads") <= before
    require_served(closed)
    wait_for(
        lambda: count_of(closed, "reason = 'peer_address_not_allowed'") == (1, 60),
        what="one row that counts them",
    )
    (row,) = closed.rows("SELECT * FROM association WHERE reason = 'peer_address_not_allowed'")
    assert (row["outcome"], row["peer_address"], row["calling_ae_title"]) == (
        "rejected",
        STRANGER,
        "",
    )
    assert "receive.peers" in row["advice"]


def test_an_address_of_one_sender_may_connect_as_that_sender_only(tmp_path: Path) -> None:
    senders = {"ARCHIVE": {"peers": [STRANGER]}}
    with ListenerProcess(
        make_settings(tmp_path / "state", senders, peers=(f"{SENDER}/32",))
    ) as listener:
        with Wire(listener.port, calling="ARCHIVE", source=STRANGER) as wire:
            assert wire.answer[0] == 2
        with Wire(listener.port, calling="OTHER", source=STRANGER) as wire:
            assert (wire.answer[0], wire.answer[1][1:]) == (3, bytes((1, 1, 1)))


def test_an_address_that_keeps_many_associations_leaves_room_for_others(tmp_path: Path) -> None:
    with ListenerProcess(
        make_settings(tmp_path / "state", maximum_associations_of_address=3)
    ) as listener:
        held = [Wire(listener.port, calling=f"T{number}", source=STRANGER) for number in range(5)]
        assert [(wire.answer[0], wire.answer[1][1:]) for wire in held[3:]] == [
            (3, bytes((2, 3, 2)))
        ] * 2
        require_served(listener)
        wait_for(
            lambda: count_of(listener, "reason = 'limit_of_address_exceeded'")[1] == 2,
            what="its rows",
        )
        for wire in held:
            wire.socket.close()


@pytest.mark.parametrize(
    "source", [STRANGER, SENDER], ids=["of another address", "of the sender's address"]
)
def test_130_silent_connections_keep_nobody_out(listener: ListenerProcess, source: str) -> None:
    silent = [connect(listener, source) for _ in range(130)]
    for _ in range(3):
        require_served(listener)
    for connection in silent:
        connection.close()
    wait_for(
        lambda: (
            count_of(listener, f"reason = 'too_many_connections' AND peer_address = '{source}'")[1]
            >= 60
        ),
        what="its row",
    )
    assert (
        count_of(listener, f"reason = 'too_many_connections' AND peer_address = '{source}'")[0] <= 2
    )


def test_silent_connections_from_everywhere_keep_nobody_out(listener: ListenerProcess) -> None:
    silent = [
        connect(listener, f"127.0.{number // 200 + 1}.{number % 200 + 1}") for number in range(200)
    ]
    require_served(listener)
    for connection in silent:
        connection.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        association_request("STRANGER", [(VERIFICATION, ImplicitVRLittleEndian)], 0),
    ],
    ids=["silent", "nonsense", "requests"],
)
def test_a_stream_of_connections_keeps_nobody_out(listener: ListenerProcess, sent: bytes) -> None:
    """Some hundred a second, which neither read nor close."""
    stop, held = threading.Event(), []

    def flood() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError):
                held.append(connection := connect(listener))
                connection.sendall(sent)
            stop.wait(0.005)

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        wait_for(lambda: len(held) > 100, what="a flood")
        if not sent.startswith(
            b"\x01"
        ):  # associations have a limit of their own, see maximum_associations of a sender
            for _ in range(5):
                require_served(listener)
        assert status_of(listener, "Threads") < 2 * (50 + 128) + 20
    finally:
        stop.set()
        flooding.join()
        for connection in held:
            connection.close()
    wait_for(lambda: is_served(listener), what="a sender that is served")


def is_served(listener: ListenerProcess) -> bool:
    with Wire(listener.port, source=SENDER) as wire:
        return wire.answer[0] == 2


def test_a_half_request_is_cut_off_when_its_time_is_over_however_slowly_it_comes(
    tmp_path: Path,
) -> None:
    request = association_request("DRIPS", [(DX, ExplicitVRLittleEndian)], 0)
    with (
        ListenerProcess(make_settings(tmp_path / "state", acse_timeout_seconds=1.0)) as listener,
        connect(listener) as connection,
    ):
        connection.settimeout(0.1)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for byte in request:
                connection.sendall(bytes((byte,)))
                with contextlib.suppress(TimeoutError):
                    assert connection.recv(10) == b""
                    break
            else:
                raise AssertionError("it took all of it")
        wait_for(
            lambda: count_of(listener, "reason = 'no_request' AND outcome = 'dropped'") == (1, 1),
            what="its row",
        )


def items(kind: int, content: bytes, times: int) -> bytes:
    return item(kind, content) * times


HUGE: dict[str, Callable[[], bytes]] = {
    "2 GiB": lambda: struct.pack(">BxL", 1, 2 << 30) + bytes(1 << 20),
    "4 GiB": lambda: struct.pack(">BxL", 1, 0xFFFFFFFF) + bytes(1 << 20),
    "one byte too many": lambda: pdu(1, bytes(MAXIMUM_BYTES + 1)),
    "empty items": lambda: pdu(1, request_before_items() + items(0x21, b"", 60_000)),
    "empty sub-items": lambda: pdu(
        1, request_before_items() + items(0x20, bytes((1, 0, 0, 0)) + items(0x40, b"", 16_000), 4)
    ),
}


def request_before_items() -> bytes:
    return struct.pack(">H2x16s16s32x", 1, b"HILUM".ljust(16), b"HUGE".ljust(16))


@pytest.mark.parametrize("name", HUGE)
def test_a_request_of_any_length_is_not_held_in_memory(
    listener: ListenerProcess, name: str
) -> None:
    sent = HUGE[name]()
    for _ in range(3):
        with connect(listener) as connection:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(sent)
            assert answer_of(connection)[:10] in (
                pdu(7, bytes((0, 0, PROVIDER, INVALID_PARAMETER))),
                b"",
            )
    require_served(listener)
    assert status_of(listener, "VmHWM") >> 10 < MAXIMUM_MIB


def test_the_largest_honest_request_is_accepted(listener: ListenerProcess) -> None:
    syntaxes = b"".join(
        item(0x40, f"1.2.840.10008.1.2.4.{number}".encode()) for number in range(50, 90)
    ) + item(0x40, b"1.2.840.10008.1.2.1")
    contexts = b"".join(
        item(0x20, bytes((2 * number + 1, 0, 0, 0)) + item(0x30, DX.encode()) + syntaxes)
        for number in range(128)
    )
    user = item(
        0x50,
        item(0x51, struct.pack(">L", 0))
        + item(0x52, b"1.2.3.4")
        + item(0x58, b"\x01\0" + struct.pack(">H", 60_000) + b"u" * 60_000 + b"\0\0"),
    )
    request = pdu(
        1, request_before_items() + item(0x10, b"1.2.840.10008.3.1.1.1") + contexts + user
    )
    assert len(request) > 180_000
    with connect(listener) as connection:
        connection.sendall(request)
        assert connection.recv(1) == b"\x02"


def action(information: bytes) -> bytes:
    """An N-ACTION-RQ of storage commitment with this Action Information."""
    asked = command_set(
        {
            0x0003: uid(PUSH_MODEL),
            0x0100: us(0x0130),
            0x0110: us(1),
            0x0800: us(0),
            0x1001: uid(INSTANCE),
            0x1008: us(1),
        }
    )
    return message(asked, information, pdu_bytes=1 << 16)


def explicit(group: int, element: int, vr: bytes, value: bytes) -> bytes:
    return struct.pack("<HH2sHL", group, element, vr, 0, len(value)) + value


TRANSACTION = struct.pack("<HH2sH", 0x0008, 0x1195, b"UI", 6) + b"1.2.3\0"
BOMBS: dict[str, Callable[[], bytes]] = {
    "too large": lambda: (
        TRANSACTION
        + explicit(0x0008, 0x1199, b"SQ", struct.pack("<HHL", 0xFFFE, 0xE000, 0) * 4_000_000)
    ),
    "empty items": lambda: (
        TRANSACTION
        + explicit(0x0008, 0x1199, b"SQ", struct.pack("<HHL", 0xFFFE, 0xE000, 0) * 500_000)
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_request_for_commitment_is_bounded(listener: ListenerProcess, name: str) -> None:
    with Wire(
        listener.port, calling="COMMITS", contexts=[(PUSH_MODEL, ExplicitVRLittleEndian)]
    ) as wire:
        wire.send(action(BOMBS[name]()))
        assert wire.status() in (0x0213, 0x0115)
    assert status_of(listener, "VmHWM") >> 10 < MAXIMUM_MIB


def test_large_objects_beside_storage_commitment_are_not_held_in_memory(
    listener: ListenerProcess,
) -> None:
    contexts = [
        (DX, ExplicitVRLittleEndian),
        (VERIFICATION, ImplicitVRLittleEndian),
        (PUSH_MODEL, ExplicitVRLittleEndian),
    ]

    def send(number: int) -> int:
        name = f"1.2.700.{number}"
        with Wire(listener.port, calling="COMMITS", contexts=contexts) as wire:
            wire.send(
                message(store(name), data_set(name, pixels=bytes(256 << 20)), pdu_bytes=1 << 17)
            )
            return wire.status()

    require_served(listener)  # when it has loaded all that it needs
    before = status_of(listener, "VmHWM")
    assert send(0) == 0
    assert (status_of(listener, "VmHWM") - before) >> 10 < 64, "of 256"
    assert status_of(listener, "VmHWM") >> 10 < MAXIMUM_MIB


def test_strangers_do_not_grow_the_ledger(listener: ListenerProcess) -> None:
    for number in range(300):
        with Wire(
            listener.port,
            calling=f"T{number}",
            contexts=[("1.2.3", ImplicitVRLittleEndian)],
            source="127.0.0.9",
        ) as wire:
            wire.send(RELEASE)
            wire.next_pdu()
    wait_for(
        lambda: count_of(listener, "peer_address = '127.0.0.9'")[1] == 300,
        what="all of them in rows",
    )
    assert count_of(listener, "peer_address = '127.0.0.9'")[0] <= 3 * 65, (
        "a minute has few, and this took no three"
    )

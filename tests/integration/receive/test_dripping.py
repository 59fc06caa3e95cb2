"""A sender that sends a byte now and then, at the real listener.

It does not keep its place, and leaves nothing; a slow one is served.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hilum.receive.storage import compiled
from tests.support.ledger.storing import data_set
from tests.support.machine.waiting import wait_for
from tests.support.peers.certificates import Authority
from tests.support.peers.peers import missing
from tests.support.peers.wire import (
    ABORT,
    RELEASE,
    Wire,
    association_request,
    message,
    pdu,
    pdv,
    store,
)
from tests.support.server.listening import NOT_COMPILED, ListenerProcess, make_settings, unindexed

MINIMUM = 200  # bytes a second
TIMEOUT_SECONDS = 2.0
GAP_SECONDS = 0.25
PIXELS = bytes(400_000)

# What comes at once, and what then comes piece by piece.
BYTES = [b"\0"] * 1000
EQUAL_PDUS = message(store("1.2.3"), data_set("1.2.3", pixels=PIXELS))[:300_000]
DRIPPED = {
    "between equal PDUs": (EQUAL_PDUS, BYTES),
    "inside the first PDU of a data set": (
        message(store("1.2.3")) + pdu(4, pdv(data_set("1.2.3", pixels=PIXELS)))[:50_000],
        BYTES,
    ),
    "a command": (b"", [bytes((byte,)) for byte in message(store("1.2.3"))]),
    "fragments of a command": (
        b"",
        [pdu(4, pdv(bytes((byte,)), is_command=True, is_last=False)) for byte in store("1.2.3")],
    ),
    "fragments of a data set": (
        message(store("1.2.3")),
        [pdu(4, pdv(bytes((byte,)), is_last=False)) for byte in data_set("1.2.3")],
    ),
}


@pytest.fixture(scope="module", params=["compiled", "in Python"])
def listener(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[ListenerProcess]:
    if request.param == "compiled" and compiled.loaded()[0] is None:
        missing(compiled.loaded()[1])
    folder, limits = (
        tmp_path_factory.mktemp("dripping"),
        {"network_timeout_seconds": TIMEOUT_SECONDS, "minimum_bytes_per_second": MINIMUM},
    )
    settings = make_settings(folder / "state", **limits)
    with ListenerProcess(
        settings, library=NOT_COMPILED if request.param == "in Python" else None
    ) as running:
        yield running


def drip(connection: socket.socket, pieces: Sequence[bytes]) -> bytes:
    """A piece now and then, until the other side has something to say: that."""
    connection.settimeout(GAP_SECONDS)
    for piece in pieces:
        with contextlib.suppress(
            BrokenPipeError, ConnectionResetError
        ):  # the answer lies there all the same
            connection.sendall(piece)
        with contextlib.suppress(TimeoutError):
            return connection.recv(100)
    raise AssertionError("it took all of it")


def require_cut(listener: ListenerProcess, calling: str) -> None:
    row = listener.association_of(calling)
    assert (row["outcome"], row["reason"], row["stored"]) == ("aborted", "too_slow", 0)
    assert str(row["advice"]).startswith(
        f"It sent less than {MINIMUM} bytes a second of a message for 4 s"
    )
    wait_for(
        lambda: not list(unindexed(listener.archive)), what="an archive without half of an object"
    )
    log = listener.log.read_text()
    assert "sender_too_slow" in log
    assert calling not in log


@pytest.fixture(scope="module")
def answers(listener: ListenerProcess) -> dict[str, bytes]:
    """What each way of dripping gets in the end; all at once, as each takes two windows."""

    def told(number: int, at_once: bytes, dripped: Sequence[bytes]) -> bytes:
        with Wire(listener.port, calling=f"DRIPS{number}") as wire:
            wire.send(at_once)
            return drip(wire.socket, dripped)

    with ThreadPoolExecutor(len(DRIPPED)) as senders:
        found = [
            senders.submit(told, number, *given) for number, given in enumerate(DRIPPED.values())
        ]
        return {name: future.result() for name, future in zip(DRIPPED, found, strict=True)}


@pytest.mark.parametrize("name", DRIPPED)
def test_a_sender_that_drips_is_aborted_and_leaves_nothing(
    listener: ListenerProcess, answers: dict[str, bytes], name: str
) -> None:
    assert answers[name] == ABORT
    require_cut(listener, f"DRIPS{list(DRIPPED).index(name)}")


def test_a_slow_sender_and_one_that_only_asks_are_served(listener: ListenerProcess) -> None:
    """More than the limit, and messages of a few bytes, for more than two windows."""
    content = message(store("1.2.7"), data_set("1.2.7", pixels=bytes(6000)), pdu_bytes=600)
    with Wire(listener.port, calling="SLOW") as slow, Wire(listener.port, calling="ASKS") as asks:
        for start in range(0, len(content), 300):
            slow.send(content[start : start + 300])
            assert asks.status_of_echo() == 0
            time.sleep(GAP_SECONDS)
        assert slow.status() == 0
        for wire in (slow, asks):
            wire.send(RELEASE)
            assert wire.next_pdu()[0] == 6
    assert [listener.association_of(calling)["outcome"] for calling in ("SLOW", "ASKS")] == [
        "released",
        "released",
    ]


def test_over_tls_too(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    own = authority.identity("hilum", "IP:127.0.0.1")
    tls = {"tls_port": 2762, "tls_certificate_file": own.certificate, "tls_key_file": own.key}
    settings = make_settings(
        tmp_path / "state",
        network_timeout_seconds=TIMEOUT_SECONDS,
        minimum_bytes_per_second=MINIMUM,
        **tls,
    )
    trust = ssl.create_default_context(cafile=str(authority.file))
    with (
        ListenerProcess(settings) as running,
        socket.create_connection(("127.0.0.1", running.tls_port), timeout=30) as plain,
    ):
        with trust.wrap_socket(plain, server_hostname="127.0.0.1") as wire:
            wire.sendall(
                association_request("TLSDRIPS", [("1.2.840.10008.1.1", "1.2.840.10008.1.2")], 0)
            )
            assert wire.recv(6)[0] == 2
            wire.settimeout(0.1)
            with contextlib.suppress(TimeoutError):
                while wire.recv(4096):
                    pass
            drip(wire, DRIPPED["fragments of a command"][1])
        require_cut(running, "TLSDRIPS")

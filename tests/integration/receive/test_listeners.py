"""Several listener processes of one server.

One limit for all, a second port for TLS, and a dead process holds nothing.
"""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.serving import Hilum
from tests.support.machine.waiting import wait_for
from tests.support.models.releases import Tiny, make_tiny
from tests.support.peers.certificates import Authority
from tests.support.peers.peers import require_program
from tests.support.peers.wire import Wire
from tests.support.server import commands
from tests.support.server.installation import START_SECONDS, free_ports, hilum_with, processes

LIMIT, LIMIT_OF_ROUTER = 6, 4


@pytest.fixture(scope="module")
def tls_port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, tls_port: int, tiny: Tiny
) -> Iterator[Hilum]:
    folder = tmp_path_factory.mktemp("listeners")
    own = authority.identity("hilum", "IP:127.0.0.1")
    receive = {
        "processes": 3,
        "maximum_associations": LIMIT,
        "tls_port": tls_port,
        "tls_certificate_file": str(own.certificate),
        "tls_key_file": str(own.key),
    }
    senders = {"senders.ROUTER": {"maximum_associations": LIMIT_OF_ROUTER}}
    with hilum_with(
        folder,
        tiny,
        {},
        role="listener,dispatcher",
        receive=receive,
        **senders,
    ) as running:
        wait_for(
            lambda: ready_listeners(running) == receive["processes"], START_SECONDS, "the listeners"
        )
        yield running


def ready_listeners(server: Hilum) -> int:
    with sqlite3.connect(server.folder / "state/ledger.sqlite") as connection:
        (count,) = connection.execute(
            "SELECT count(*) FROM process WHERE role = 'listener' AND is_ready"
        ).fetchone()
    return int(count)


def is_accepted(wire: Wire) -> bool:
    return wire.answer[0] == 2


def open_until_rejected(port: int, name: str) -> list[Wire]:
    """Associations, held open, until one is rejected (2,3,2)."""
    held: list[Wire] = []
    while is_accepted(wire := Wire(port, calling=name)):
        held.append(wire)
        assert len(held) <= LIMIT, "more than the limit of all processes together"
    assert (wire.answer[0], tuple(wire.answer[1][1:4])) == (3, (2, 3, 2))
    return held


def close(held: list[Wire]) -> None:
    for wire in held:
        wire.socket.close()


def test_several_roles_run_in_one_server_and_its_health_is_theirs(server: Hilum) -> None:
    wait_for(lambda: server.get("/health/ready").is_success, START_SECONDS, "both roles")
    assert [judged["role"] for judged in server.get("/health/ready").json()["roles"]] == [
        "receive",
        "deliver",
    ]
    assert len(processes(server, "dispatcher")) > 0
    assert processes(server, "analyser") == processes(server, "api") == []


def test_another_server_of_the_host_is_told_which_port_to_set_and_that_one_server_runs_several_roles(
    server: Hilum,
) -> None:
    done = subprocess.run(
        server.command("serve", "--role", "api"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        f"hilum: api: cannot listen on 127.0.0.1 port {server.api_port}: it is taken by the running"
        " server of this "
    )
    assert "`--role listener,dispatcher`, or set api.port (HILUM_API__PORT)" in done.stderr
    assert "Traceback" not in done.stderr


def test_check_knows_the_ports_of_the_running_server(server: Hilum) -> None:
    said = commands.hilum(*server.command("check")[1:]).stdout
    for name in ("receive port", "receive tls port", "api port"):
        (line,) = [line for line in said.splitlines() if f" {name}: " in line]
        assert line.startswith("ok "), line
        assert line.endswith(" is in use by the running server of this state folder")


def test_the_limit_holds_for_all_processes_together(server: Hilum) -> None:
    held = open_until_rejected(server.dicom_port, "TOGETHER")
    assert len(held) == LIMIT
    close(held)
    wait_for(lambda: can_open(server, LIMIT), what="room again")


def test_the_limit_of_a_sender_holds_for_all_processes_together_and_leaves_room(
    server: Hilum,
) -> None:
    wait_for(lambda: can_open(server, LIMIT), what="an empty house")
    held = wait_for(
        lambda: (
            len(wires := open_until_rejected(server.dicom_port, "ROUTER")) == LIMIT_OF_ROUTER
            and wires
        ),
        what="its limit",
    )
    others = wait_for(
        lambda: (
            len(wires := open_until_rejected(server.dicom_port, "CR1")) == LIMIT - LIMIT_OF_ROUTER
            and wires
        )
    )
    close(held + others)
    wait_for(lambda: can_open(server, LIMIT), what="room again")


def can_open(server: Hilum, count: int) -> bool:
    wires = [Wire(server.dicom_port, calling="AGAIN") for _ in range(count)]
    accepted = [is_accepted(wire) for wire in wires]
    close(wires)
    return all(accepted)


def test_the_associations_of_a_killed_listener_make_room(server: Hilum) -> None:
    wait_for(lambda: can_open(server, LIMIT), what="an empty house")
    held = wait_for(
        lambda: len(wires := open_until_rejected(server.dicom_port, "KILLED")) == LIMIT and wires,
        what="a full house",
    )
    for pid in processes(server, "listener"):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: can_open(server, LIMIT), what="room again")
    close(held)


def test_tls_has_a_port_of_its_own(server: Hilum, authority: Authority, tls_port: int) -> None:
    plain = [require_program("echoscu", "dcmtk"), "-aec", "HILUM", "127.0.0.1"]
    trusting = [plain[0], "+tla", "+cf", str(authority.file), *plain[1:]]
    assert subprocess.run([*trusting, str(tls_port)], check=False, timeout=30).returncode == 0
    assert subprocess.run([*plain, str(server.dicom_port)], check=False, timeout=30).returncode == 0


def test_a_tls_port_that_is_taken_and_files_that_are_no_certificates_refuse_the_start(
    tmp_path: Path, authority: Authority
) -> None:
    own, tiny = authority.identity("another", "IP:127.0.0.1"), make_tiny(tmp_path / "tiny")
    files = {"tls_certificate_file": str(own.certificate), "tls_key_file": str(own.key)}
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as taken:
        port = taken.getsockname()[1]
        refused = hilum_with(tmp_path / "a", tiny, {}, receive={"tls_port": port, **files})
        done = subprocess.run(
            refused.command("serve"), capture_output=True, text=True, timeout=60, check=False
        )
    assert (done.returncode, "set receive.tls_port" in done.stdout + done.stderr) == (2, True)
    (tmp_path / "none.pem").write_text("none")
    broken = hilum_with(
        tmp_path / "b",
        tiny,
        {},
        receive={"tls_port": free_ports(1)[0], **files, "tls_key_file": str(tmp_path / "none.pem")},
    )
    done = subprocess.run(
        broken.command("serve"), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "give PEM files that belong together" in done.stdout + done.stderr

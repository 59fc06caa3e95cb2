"""`hilum check` and `hilum serve` on ports: whose they are, and which setting to change."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from pynetdicom import AE
from pynetdicom.sop_class import Verification

from hilum import IMPLEMENTATION_CLASS_UID
from hilum.errors import ConfigurationError
from hilum.processes.sockets import bind
from hilum.services.state_dir import hold
from hilum.settings import Settings
from hilum.supervisor.checks.check import Check
from hilum.supervisor.checks.ports import (
    ConfiguredPort,
    api_port,
    bind_port,
    dicom_ports,
    port_check,
    port_checks,
    require_distinct,
)
from testing.serving import free_ports
from tests.support.peers.certificates import Authority
from tests.support.peers.peers import StoreScp

OTHER_UID = "1.2.826.0.1.3680043.9.3811.3.0.4"


def settings_of(
    folder: Path, receive: dict[str, object] | None = None, api: dict[str, object] | None = None
) -> Settings:
    one, other = free_ports(2)
    return Settings.model_validate(
        {
            "site": {"state_dir": folder},
            "receive": {"host": "127.0.0.1", "port": one, **(receive or {})},
            "api": {"port": other, **(api or {})},
        }
    )


def receive_check(settings: Settings) -> Check:
    return port_check(settings, dicom_ports(settings)[-1])


def api_check(settings: Settings) -> Check:
    return port_check(settings, api_port(settings))


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[None]:
    """A program that takes connections and says nothing: this one."""
    with socket.create_server(
        (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
    ):
        yield


@contextlib.contextmanager
def dicom_server(
    port: int, class_uid: str, context: ssl.SSLContext | None = None
) -> Iterator[None]:
    ae = AE("ANY")
    ae.add_supported_context(Verification)
    ae.implementation_class_uid, ae.implementation_version_name = class_uid, "SOMEBODY_1"
    server = ae.start_server(("127.0.0.1", port), block=False, ssl_context=context)
    try:
        yield
    finally:
        server.shutdown()


@contextlib.contextmanager
def web_server(port: int, answer: bytes) -> Iterator[None]:
    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

    server = HTTPServer(("127.0.0.1", port), Answering)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextlib.contextmanager
def another_process_holds(folder: Path) -> Iterator[None]:
    """A server of this state folder whose sockets are not those of the port, as where a proxy of containers listens."""
    program = (
        "import sys; from pathlib import Path; from hilum.settings import Settings, Site; from"
        " hilum.services.state_dir import hold\nwith"
        " hold(Settings(site=Site(state_dir=Path(sys.argv[1]))), 'all'):\n    print('held',"
        " flush=True); sys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process, process.stdin:
        assert process.stdout.readline() == "held\n"
        yield


def test_a_free_port_is_free(tmp_path):
    settings = settings_of(tmp_path)
    assert receive_check(settings) == Check(
        "receive port",
        ok=True,
        detail=f"127.0.0.1:{settings.receive.port} is free, so no server runs there now",
    )
    assert api_check(settings).ok


def test_the_running_server_of_this_state_folder_is_known(tmp_path, monkeypatch):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    settings = settings_of(tmp_path)
    with (
        hold(settings, "listener,api"),
        listening("127.0.0.1", settings.receive.port),
        listening("127.0.0.1", settings.api.port),
    ):
        assert receive_check(settings) == Check(
            "receive port",
            ok=True,
            detail=(
                f"127.0.0.1:{settings.receive.port} is in use by the running server of this state"
                " folder"
            ),
        )
        assert api_check(settings).ok


@pytest.mark.parametrize("section", ["receive", "api"])
def test_a_server_of_another_state_folder_is_a_problem_that_names_it(
    tmp_path, section, monkeypatch
):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    settings, other = settings_of(tmp_path / "mine"), settings_of(tmp_path / "theirs")
    port = getattr(settings, section).port
    with hold(other, "all"), listening("127.0.0.1", port):
        check = receive_check(settings) if section == "receive" else api_check(settings)
    assert not check.ok
    assert (
        check.detail == f"127.0.0.1:{port} is taken by another Hilum, with the state folder"
        f" {tmp_path / 'theirs'}"
    )
    assert re.fullmatch(
        rf"Stop it, or set {section}\.port \(HILUM_{section.upper()}__PORT\), such as \d+\.",
        check.advice,
    )


def test_a_program_that_says_nothing_is_a_problem_with_its_name(tmp_path):
    settings = settings_of(tmp_path)
    with listening("127.0.0.1", settings.receive.port):
        check = receive_check(settings)
    assert not check.ok
    assert "): a program that does not answer in DICOM" in check.detail
    assert "(process " in check.detail


def test_another_dicom_server_is_a_problem_with_its_names(tmp_path):
    with StoreScp() as peer:
        check = receive_check(settings_of(tmp_path, {"port": peer.port}))
    assert not check.ok
    assert "storescp (process " in check.detail
    assert "a DICOM server that is no Hilum (OFFIS_DCMTK_" in check.detail


def test_another_dicom_server_with_tls_is_a_problem(tmp_path):
    own = Authority(tmp_path / "certificates").identity("other", "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    (port,) = free_ports(1)
    tls = {
        "allow_unencrypted": False,
        "tls_port": port,
        "tls_certificate_file": own.certificate,
        "tls_key_file": own.key,
    }
    with dicom_server(port, OTHER_UID, context):
        check = receive_check(settings_of(tmp_path, tls))
    assert (check.ok, check.name) == (False, "receive tls port")
    assert "a DICOM server that is no Hilum (SOMEBODY_1)" in check.detail
    assert "HILUM_RECEIVE__TLS_PORT" in check.advice


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"<html>", "a web server that is no Hilum"),
        (b'{"status": "UP"}', "a web server that is no Hilum"),
    ],
)
def test_another_web_server_is_a_problem(tmp_path, answer, said):
    settings = settings_of(tmp_path)
    with web_server(settings.api.port, answer):
        check = api_check(settings)
    assert (check.ok, check.detail.endswith(said)) == (False, True)


def test_a_program_that_speaks_no_http_is_a_problem(tmp_path):
    with StoreScp() as peer:
        check = api_check(settings_of(tmp_path, api={"port": peer.port}))
    assert not check.ok
    assert "storescp" in check.detail


@pytest.mark.parametrize("section", ["receive", "api"])
def test_a_hilum_behind_a_proxy_is_this_one_only_where_a_server_runs_with_this_state_folder(
    tmp_path, section
):
    settings = settings_of(tmp_path)
    answering = (
        dicom_server(settings.receive.port, IMPLEMENTATION_CLASS_UID)
        if section == "receive"
        else web_server(settings.api.port, b'{"status":"alive"}')
    )
    look = receive_check if section == "receive" else api_check
    with answering:
        alone = look(settings)
        with another_process_holds(tmp_path):
            beside = look(settings)
    assert (
        alone.ok,
        alone.detail.endswith("another Hilum: no server runs with this state folder"),
    ) == (False, True)
    assert (
        beside.ok,
        "as it seems by the running server of this state folder" in beside.detail,
    ) == (True, True)


@pytest.mark.parametrize(
    ("bound", "taken"),
    [("0.0.0.0", "127.0.0.1"), ("127.0.0.1", "0.0.0.0"), ("::1", "::1"), ("::", "::1")],
)
def test_every_kind_of_address_is_looked_at(tmp_path, bound, taken):
    settings = settings_of(tmp_path, {"host": bound})
    with listening(taken, settings.receive.port):
        check = receive_check(settings)
    assert (check.ok, "a program that does not answer in DICOM" in check.detail) == (False, True)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_two_ports_of_one_number_are_a_problem_that_names_both(tmp_path, host):
    settings = settings_of(tmp_path, {"host": host})
    settings = settings.model_copy(
        update={"api": settings.api.model_copy(update={"port": settings.receive.port})}
    )
    number = settings.receive.port
    where = f"api: cannot listen on 127.0.0.1 port {number}"
    said = (
        rf"{re.escape(where)}: receive\.port has the same number; set api\.port"
        r" \(HILUM_API__PORT\), such as \d+\."
    )
    checks = port_checks(settings)
    assert [(check.name, check.ok) for check in checks] == [
        ("receive port", True),
        ("api port", False),
    ]
    assert re.fullmatch(said, checks[1].detail)
    with pytest.raises(ConfigurationError, match="has the same number"):
        require_distinct([api_port(settings), *dicom_ports(settings)])


def test_an_address_of_another_machine_is_a_problem_whatever_listens_there(tmp_path):
    check = receive_check(settings_of(tmp_path, {"host": "192.0.2.1"}))
    assert not check.ok
    assert "set receive.host to an address of this machine" in check.detail


def test_a_second_server_says_who_has_the_port_and_which_setting_to_change(tmp_path):
    settings = settings_of(tmp_path)
    with StoreScp() as peer, pytest.raises(ConfigurationError) as refused:
        bind_port(settings, dicom_ports(settings_of(tmp_path, {"port": peer.port}))[0])
    (problem,) = refused.value.problems
    assert problem.startswith(
        f"receive: cannot listen on 127.0.0.1 port {peer.port}: it is taken by storescp (process "
    )
    assert re.search(
        r"; stop it, or set receive\.port \(HILUM_RECEIVE__PORT\), such as \d+\.$", problem
    )


def test_a_second_role_of_a_host_says_how_both_can_run(tmp_path, monkeypatch):
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    settings = settings_of(tmp_path)
    with (
        hold(settings, "listener"),
        listening("127.0.0.1", settings.api.port),
        pytest.raises(ConfigurationError) as refused,
    ):
        bind_port(settings, api_port(settings))
    (problem,) = refused.value.problems
    assert re.fullmatch(
        re.escape(
            f"api: cannot listen on 127.0.0.1 port {settings.api.port}: it is taken by the running"
            " server of this state folder; stop it and run both roles in one server, as in `--role"
            " listener,dispatcher`, or set api.port (HILUM_API__PORT), such as "
        )
        + r"\d+, for one of the two\.",
        problem,
    )


def test_the_port_that_is_proposed_is_free_and_no_other_service_of_the_settings_has_it(tmp_path):
    settings = settings_of(tmp_path)
    port = ConfiguredPort("receive", "port", "127.0.0.1", settings.receive.port, "dicom")
    given = ConfiguredPort("api", "port", "127.0.0.1", port.number + 1, "http")
    with contextlib.closing(socket.socket()) as taken:
        with contextlib.suppress(OSError):  # another program has it: so much the better
            taken.bind(("127.0.0.1", port.number + 2))
        proposed = int(port.advice([port, given]).rpartition(" ")[2])
    assert proposed > port.number + 2
    bind("receive", "127.0.0.1", proposed).close()


@pytest.mark.parametrize(("taken", "lowest"), [(104, 1024), (1023, 1024), (65535, 1024)])
def test_the_port_that_is_proposed_is_one_that_every_user_may_bind(taken, lowest):
    port = ConfiguredPort("receive", "port", "127.0.0.1", taken, "dicom")
    assert lowest <= int(port.advice([port]).rpartition(" ")[2]) < lowest + 100


def test_where_nothing_can_be_bound_the_next_port_is_proposed():
    port = ConfiguredPort("receive", "port", "192.0.2.1", 11112, "dicom")
    assert port.advice([port]).endswith(", such as 11113")

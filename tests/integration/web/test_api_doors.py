"""The web process of `hilum serve`: other accounts of the machine, HTTPS, commands, the log."""

from __future__ import annotations

import os
import pty
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import httpx
import pytest

from testing.serving import Hilum, hilum_program
from tests.support.machine.accounts import as_stranger, open_to_all
from tests.support.machine.waiting import wait_for
from tests.support.models.releases import Tiny, make_tiny
from tests.support.peers.certificates import Authority, Identity
from tests.support.peers.peers import require_program
from tests.support.server import commands
from tests.support.server.installation import hilum_with, is_up

_IS_ROOT = os.geteuid() == 0 and shutil.which("setpriv") is not None
ERASE = {"study_instance_uid": "1.2.3"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny) -> Iterator[Hilum]:
    """With the settings of a first start, in a folder into which every account may look."""
    place = open_to_all() if _IS_ROOT else nullcontext(tmp_path_factory.mktemp("doors"))
    with (
        place as folder,
        hilum_with(folder / "hilum", tiny, {}, role="api") as started,
    ):
        wait_for(lambda: is_up(started), what="the web process")
        for inner in ("", "state", "state/run"):
            (folder / "hilum" / inner).chmod(0o755)
        yield started


def by_stranger(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """What another account of this machine gets."""
    if not _IS_ROOT:
        pytest.skip("needs root and setpriv, to act as another account")
    return as_stranger(*command, folder=Path("/"), check=False)


def status_for_stranger(server: Hilum, path: str, *options: str) -> str:
    curl = require_program("curl", "curl")
    return by_stranger(
        curl,
        "--silent",
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code}",
        *options,
        server.api + path,
    ).stdout


@pytest.mark.parametrize(
    "path", ["/api/v1/studies", "/", "/metrics", "/docs", "/openapi.json", "/api/v1/queues"]
)
def test_another_account_reads_nothing(server: Hilum, path: str) -> None:
    assert status_for_stranger(server, path) == "401"
    assert server.get(path).status_code == 200, "the control"


@pytest.mark.parametrize(
    "path", ["/api/v1/erase", "/api/v1/requeue", "/dicom-web/studies", "/studies/1.2.3/requeue"]
)
def test_another_account_changes_nothing(server: Hilum, path: str) -> None:
    options = ("--request", "POST", "--json", '{"study_instance_uid": "1.2.3"}')
    assert status_for_stranger(server, path, *options) == "401"


@pytest.mark.parametrize(("place", "look"), [("run/api-token", "cat"), ("run/login", "ls")])
def test_another_account_cannot_read_what_opens_the_door(
    server: Hilum, place: str, look: str
) -> None:
    """Even where the state folder has been opened to it."""
    assert hilum(server, "login").returncode == 0
    assert by_stranger("ls", server.folder / "state/run").returncode == 0, "the control"
    done = by_stranger(look, server.folder / "state" / place)
    assert (done.returncode != 0, "Permission denied" in done.stderr) == (True, True)


def test_another_account_gets_no_link(server: Hilum) -> None:
    done = by_stranger(sys.executable, hilum_program(), "login", "--config", server.settings_file)
    assert (done.returncode, done.stdout) == (2, "")
    assert "belongs to" in done.stderr or "ermission denied" in done.stderr


def test_no_socket_of_the_server_is_open_to_another_account(server: Hilum) -> None:
    done = by_stranger("find", server.folder / "state", "-type", "s", "-writable")
    assert done.stdout == ""


def test_probes_tell_another_account_no_names(server: Hilum) -> None:
    curl = require_program("curl", "curl")
    told = by_stranger(curl, "--silent", f"{server.api}/health/ready").stdout
    assert '"is_ready"' in told
    assert "tiny" not in told


def hilum(server: Hilum, *words: str) -> subprocess.CompletedProcess[str]:
    return commands.hilum(*server.command(*words)[1:])


def test_commands_make_list_and_revoke_a_token_while_the_server_runs(server: Hilum) -> None:
    made = hilum(server, "token", "create", "prometheus", "--scope", "read", "--days", "90")
    assert (made.returncode, made.stderr) == (0, "")
    headers = {"Authorization": f"Bearer {made.stdout.strip()}"}
    assert httpx.get(f"{server.api}/metrics", headers=headers, timeout=60).status_code == 200
    assert (
        httpx.post(
            f"{server.api}/api/v1/erase", json=ERASE, headers=headers, timeout=60
        ).status_code
        == 403
    )
    again = hilum(server, "token", "create", "prometheus")
    assert (again.returncode, "take another name" in again.stderr) == (1, True)
    listed = hilum(server, "token", "list").stdout
    assert ("prometheus" in listed, made.stdout.strip() in listed) == (True, False)
    assert hilum(server, "token", "revoke", "prometheus").returncode == 0
    assert httpx.get(f"{server.api}/metrics", headers=headers, timeout=60).status_code == 401
    assert hilum(server, "token", "revoke", "prometheus").returncode == 1


@pytest.mark.parametrize("name", ["settings", "local", "two words", "", "x" * 33, "../x"])
def test_a_name_that_no_token_may_have_is_refused(server: Hilum, name: str) -> None:
    assert hilum(server, "token", "create", name).returncode == 2


def test_a_command_prints_a_link_that_logs_in_once(server: Hilum) -> None:
    link = hilum(server, "login").stdout.strip()
    assert link.startswith(f"{server.api}/login?code=")
    first, second = (httpx.get(link, timeout=60) for _ in range(2))
    assert (first.status_code, second.status_code) == (200, 401)
    assert httpx.get(f"{server.api}/", cookies=first.cookies, timeout=60).status_code == 200


def test_the_log_holds_no_token_no_code_and_no_cookie(server: Hilum) -> None:
    link = hilum(server, "login").stdout.strip()
    cookie = httpx.get(link, timeout=60).cookies[f"hilum_session_{server.api_port}"]
    log = server.log.read_text()
    assert "logged_in" in log
    token = server.headers["Authorization"].removeprefix("Bearer ")
    assert [word for word in (token, link.partition("=")[2], cookie) if word in log] == []


def test_check_says_who_gets_in(server: Hilum) -> None:
    said = hilum(server, "check").stdout
    assert "api TLS: none: only this machine is served" in said
    assert "api.token: none, named tokens only" in said


def test_https_with_a_certificate_that_is_renewed_while_it_runs(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    identity = authority.identity("hilum", "IP:127.0.0.1")
    api = {"tls_certificate_file": str(identity.certificate), "tls_key_file": str(identity.key)}
    with hilum_with(
        tmp_path / "hilum", make_tiny(tmp_path / "tiny"), {}, role="api", api=api
    ) as server:
        address = f"https://127.0.0.1:{server.api_port}"
        wait_for(lambda: "process_started" in server.log.read_text(), what="the web process")
        wait_for(lambda: curl(authority, f"{address}/health/live") == "200", what="HTTPS")
        first = serial_of(server)
        renew(identity, authority.identity("renewed", "IP:127.0.0.1"))
        assert curl(authority, f"{address}/health/live") == "200"
        assert serial_of(server) != first
        identity.key.write_text("broken")
        assert curl(authority, f"{address}/health/live") == "200", "the last good pair stays"
        assert "certificate_not_usable" in server.log.read_text()
        assert (
            httpx.get(
                f"{address}/login",
                verify=ssl.create_default_context(cafile=str(authority.file)),
                timeout=60,
            ).status_code
            == 200
        )
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://127.0.0.1:{server.api_port}/health/live", timeout=60)


def renew(old: Identity, new: Identity) -> None:
    """As certbot does: one file after the other is renamed into place."""
    new.certificate.rename(old.certificate)
    new.key.rename(old.key)


def curl(authority: Authority, address: str) -> str:
    program = require_program("curl", "curl")
    options = [
        "--silent",
        "--cacert",
        str(authority.file),
        "--output",
        "/dev/null",
        "--write-out",
        "%{http_code}",
    ]
    return subprocess.run(
        [program, *options, address], capture_output=True, text=True, timeout=60, check=False
    ).stdout


def serial_of(server: Hilum) -> str:
    """Of the certificate that a new connection is shown."""
    shown = ssl.get_server_certificate(("127.0.0.1", server.api_port))
    return subprocess.run(
        ["openssl", "x509", "-noout", "-serial"],
        input=shown,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_a_session_over_https_is_never_sent_in_clear(tmp_path: Path) -> None:
    identity = Authority(tmp_path / "ca").identity("hilum", "IP:127.0.0.1")
    api = {"tls_certificate_file": str(identity.certificate), "tls_key_file": str(identity.key)}
    with hilum_with(
        tmp_path / "hilum", make_tiny(tmp_path / "tiny"), {}, role="api", api=api
    ) as server:
        wait_for(lambda: ssl_is_up(server), what="HTTPS")
        link = hilum(server, "login").stdout.strip()
        assert link.startswith("https://127.0.0.1:")
        answer = httpx.get(link, verify=False, timeout=60)
        assert "Secure" in answer.headers["set-cookie"]


def ssl_is_up(server: Hilum) -> bool:
    try:
        return bool(ssl.get_server_certificate(("127.0.0.1", server.api_port)))
    except OSError:
        return False


def test_a_server_at_a_terminal_prints_a_link(tmp_path: Path) -> None:
    server = hilum_with(tmp_path / "hilum", make_tiny(tmp_path / "tiny"), {}, role="api")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        server.command("serve", "--role", "api"),
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        with os.fdopen(ours) as terminal:
            said, _, link = terminal.readline().strip().partition(": ")
        assert said == "Pages, once and within ten minutes"
        wait_for(lambda: is_up(server), what="the web process")
        assert httpx.get(link, timeout=60).status_code == 200
    finally:
        os.close(theirs)
        process.terminate()
        process.wait(60)

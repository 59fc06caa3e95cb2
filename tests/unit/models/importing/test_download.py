"""Fetching a published file from a real HTTPS server: whole and as vouched for, or nothing."""

from __future__ import annotations

import functools
import hashlib
import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hilum.errors import ConfigurationError
from hilum.models.importing import download
from tests.support.peers.certificates import Authority

CONTENT = bytes(range(256)) * 9000


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing on the terminal."""


class _Cut(_Quiet):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """A chunk that ends before its length."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"100\r\nhalf of it")
        self.close_connection = True


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with _served(_Quiet, tmp_path, monkeypatch) as address:
        yield address


@contextmanager
def _served(
    handler: type[_Quiet], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    authority = Authority(tmp_path / "tls")
    made = authority.identity("releases", "IP:127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    (tmp_path / "served").mkdir()
    (tmp_path / "served/w.pt").write_bytes(CONTENT)
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(handler, directory=str(tmp_path / "served"))
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.certificate, made.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_file_of_the_digest_is_fetched(address: str, tmp_path: Path) -> None:
    download.fetch(f"{address}/w.pt", hashlib.sha256(CONTENT).hexdigest(), tmp_path / "w.pt")
    assert (tmp_path / "w.pt").read_bytes() == CONTENT


def test_another_file_than_the_digest_says_is_not_kept(address: str, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"has sha256 [0-9a-f]{64}, you said 0{64}: nothing was imported"
    ):
        download.fetch(f"{address}/w.pt", "0" * 64, tmp_path / "w.pt")
    assert not (tmp_path / "w.pt").exists()


def test_what_cannot_be_fetched_says_so(address: str, tmp_path: Path) -> None:
    for wrong in (f"{address}/gone.pt", "https://127.0.0.1:9/w.pt"):
        with pytest.raises(ConfigurationError, match="fetch it by other means and name the file"):
            download.fetch(wrong, "0" * 64, tmp_path / "w.pt")
        assert not (tmp_path / "w.pt").exists()


@pytest.mark.parametrize(
    "address", ["https://exa mple.org/w.pt", "https://[::1/w.pt", "https://a..b/w.pt"]
)
def test_an_address_that_is_none_says_so(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigurationError, match="fetch it by other means and name the file"):
        download.fetch(address, "0" * 64, tmp_path / "w.pt")


def test_an_answer_that_is_cut_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        _served(_Cut, tmp_path, monkeypatch) as address,
        pytest.raises(ConfigurationError, match="fetch it by other means"),
    ):
        download.fetch(f"{address}/w.pt", "0" * 64, tmp_path / "w.pt")
    assert not (tmp_path / "w.pt").exists()


def test_a_server_that_nobody_vouches_for_is_not_believed(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(ConfigurationError, match="CERTIFICATE_VERIFY_FAILED"):
        download.fetch(f"{address}/w.pt", hashlib.sha256(CONTENT).hexdigest(), tmp_path / "w.pt")

"""STOW-RS: requests by hand, and what became of their images."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import httpx
from pydicom import Dataset

from hilum.api.app import create_app
from hilum.api.auth.access import open_access
from hilum.api.dependencies import Dependencies
from hilum.api.serve import serve_api
from hilum.services.stow import stow_store
from hilum.store.archive.archive import Archive
from hilum.store.audit.access_tokens import AccessTokens
from hilum.store.ledger import Ledger
from hilum.store.migrations.migrate import migrate
from hilum.store.queries.views import LedgerViews
from testing.phantoms.phantom import make_instance
from testing.serving import Hilum
from tests.support.ledger.database import rows_of
from tests.support.server.api_client import TOKEN, settings_for
from tests.support.server.listening import data_set_of


def encoded(dataset: Dataset) -> bytes:
    buffer = BytesIO()
    dataset.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


RELATED = 'multipart/related; type="application/dicom"; boundary={}'


def body(
    *parts: bytes, boundary: str = "B", header: str = "Content-Type: application/dicom\r\n"
) -> bytes:
    inner = b"".join(f"--{boundary}\r\n{header}\r\n".encode() + part + b"\r\n" for part in parts)
    return inner + f"--{boundary}--\r\n".encode()


def post(
    server: Hilum, content: bytes, path: str = "/studies", kind: str = RELATED.format("B")
) -> httpx.Response:
    return server.post(f"/dicom-web{path}", content=content, headers={"Content-Type": kind})


def archived(server: Hilum, uid: str) -> bytes:
    """The data set of an image, as it lies in the archive."""
    (row,) = rows_of(
        server.folder / "state", "SELECT path FROM instance WHERE sop_instance_uid = ?", uid
    )
    return data_set_of(server.folder / "state/archive" / row["path"])


def failures(answer: httpx.Response) -> dict[str, int]:
    items = answer.json().get("00081198", {"Value": []})["Value"]
    return {item["00081155"]["Value"][0]: item["00081197"]["Value"][0] for item in items}


KEY = {"Authorization": f"Bearer {TOKEN}"}


HEADERS = {"Content-Type": 'multipart/related; type="application/dicom"; boundary=B', **KEY}


@contextlib.contextmanager
def served(
    folder: Path, stop: threading.Event, network_timeout_seconds: float, maximum_parts: int = 10_000
) -> Iterator[tuple[int, Archive]]:
    """A real web server on a real archive: its port. It gives requests a second at its end."""
    settings = settings_for(
        folder,
        token=TOKEN,
        network_timeout_seconds=network_timeout_seconds,
        maximum_parts=maximum_parts,
    )
    migrate(settings.ledger_url)
    ledger, views = Ledger(settings.ledger_url), LedgerViews(settings.ledger_url)
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        stow_store(settings, ledger, views, threading.Event()) as store,
    ):
        app = create_app(
            Dependencies(
                settings,
                views,
                str(folder),
                {},
                open_access(settings, views, AccessTokens(settings.ledger_url)),
                store=store,
            )
        )
        serving = threading.Thread(target=serve_api, args=(app, listening, stop, 1))
        serving.start()
        try:
            yield listening.getsockname()[1], Archive(settings.archive_dir)
        finally:
            stop.set()
            serving.join()
    views.close()
    ledger.close()


def begin(port: int) -> socket.socket:
    """A request that stops in the middle of its image."""
    image = encoded(make_instance(1, rows=2000, columns=2000))
    head = "\r\n".join(
        [
            "POST /dicom-web/studies HTTP/1.1",
            "Host: 127.0.0.1",
            *(f"{name}: {value}" for name, value in HEADERS.items()),
        ]
    )
    made = socket.create_connection(("127.0.0.1", port), timeout=30)
    made.sendall(
        f"{head}\r\nContent-Length: 99999999\r\n\r\n--B\r\n\r\n".encode() + image[:3_000_000]
    )
    return made


def everything(sender: socket.socket) -> bytes:
    """Until the server closes."""
    return b"".join(iter(lambda: sender.recv(65536), b""))

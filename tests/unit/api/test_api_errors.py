"""Errors on the wire: problem+json, nothing of what was sent, nothing of what is inside."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy.exc import DatabaseError

from hilum.api.serve import serve_api
from hilum.errors import Retry
from hilum.store.database.engines import DAMAGED, RESTORE
from tests.support.server.api_client import TOKEN, Rig, open_rig

PROBLEM = "application/problem+json"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/api/v1/studies?limit=0", "query.limit"),
        ("/api/v1/studies?limit=501", "query.limit"),
        ("/api/v1/studies?state=DOE%5EJANE", "query.state"),
        ("/api/v1/studies?release=DOE%5EJANE", "query.release"),
        ("/api/v1/studies?calling_ae_title=DOE%5CJANE%00", "query.calling_ae_title"),
        ("/api/v1/studies?received_since=DOE%5EJANE", "query.received_since"),
        ("/api/v1/studies?received_since=1795163400", "query.received_since"),
        ("/api/v1/studies?received_until=2026-11-20T08:30:00", "query.received_until"),
        ("/api/v1/studies?cursor=DOE%5EJANE", "query.cursor"),
        ("/api/v1/associations?cursor=WzEsMiwzXQ", "query.cursor"),
        ("/api/v1/studies/DOE%5EJANE", "path.study_instance_uid"),
        ("/api/v1/studies/1..2", "path.study_instance_uid"),
        ("/api/v1/studies/1.2%0A", "path.study_instance_uid"),
        (f"/api/v1/studies/{'1' * 65}", "path.study_instance_uid"),
        ("/api/v1/documents/DOE", "path.document"),
        ("/health/ready?role=DOE", "query.role.0"),
        ("/health/ready?roles=receive", "query"),
        ("/api/v1/studies?stat=closed", "query"),
        ("/api/v1/queues?DOE=1", "query"),
        ("/api/v1/studies?state=closed&limit=2&state=failed", "query.state"),
    ],
)
def test_a_bad_request_is_told_where_and_never_repeated(
    shared_rig: Rig, path: str, place: str
) -> None:
    response = shared_rig.client.get(path)
    assert (response.status_code, response.headers["content-type"]) == (422, PROBLEM)
    body = response.json()
    assert (body["title"], body["status"]) == ("Unprocessable Content", 422) or body[
        "title"
    ] == "Unprocessable Entity"
    assert [item["place"] for item in body["errors"]] == [place]
    assert "DOE" not in response.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/api/v1/../x", 404),
        ("GET", "/api/v1/studies/", 404),  # and no redirect
        ("GET", "/associations/", 404),
        ("DELETE", "/api/v1/studies", 405),
    ],
)
def test_no_such_route(shared_rig: Rig, method: str, path: str, status: int) -> None:
    response = shared_rig.client.request(method, path)
    assert (response.status_code, response.headers["content-type"], response.json()["status"]) == (
        status,
        PROBLEM,
        status,
    )
    assert (response.headers.get("allow") == "GET") is (status == 405)


@pytest.mark.parametrize(
    ("path", "status"), [("/health/live", 200), ("/api/v1/studies", 200), ("/nowhere", 404)]
)
def test_head_is_get_without_content(shared_rig: Rig, path: str, status: int) -> None:
    """Load balancers ask so (RFC 9110 9.3.2).

    Of the web server itself: it counts the bytes that it sends.
    """
    with served(shared_rig.client.app) as port:
        head, whole = (
            httpx.request(method, f"http://127.0.0.1:{port}{path}", headers=shared_rig.headers)
            for method in ("HEAD", "GET")
        )
    assert (head.status_code, whole.status_code, head.content) == (status, status, b"")
    assert (
        head.headers["content-length"] == whole.headers["content-length"] == str(len(whole.content))
    )
    assert head.headers["content-type"] == whole.headers["content-type"]


@contextlib.contextmanager
def served(app: Any) -> Iterator[int]:
    """By a real web server, on this port."""
    listening, stop = socket.create_server(("127.0.0.1", 0)), threading.Event()
    thread = threading.Thread(target=serve_api, args=(app, listening, stop))
    thread.start()
    yield listening.getsockname()[1]
    stop.set()
    thread.join(30)


def test_a_ledger_that_is_away_is_503_with_a_time(rig: Rig) -> None:
    for file in rig.folder.glob("ledger.sqlite*"):
        file.rename(file.with_name(f"{file.name}.away"))
    for path in ("/api/v1/studies", "/api/v1/studies/1.2.3", "/api/v1/queues"):
        response = rig.client.get(path)
        assert (
            response.status_code,
            response.headers["content-type"],
            response.headers["retry-after"],
        ) == (503, PROBLEM, "5")
        assert "ledger" in response.json()["detail"]


def test_a_corrupt_ledger_tells_no_secrets(rig: Rig) -> None:
    rig.views.close()
    for file in rig.folder.glob("ledger.sqlite-*"):
        file.unlink()
    (rig.folder / "ledger.sqlite").write_bytes(b"DOE^JANE" * 1000)
    response = rig.client.get("/api/v1/studies")
    assert (response.status_code, response.headers["content-type"]) == (503, PROBLEM)
    assert not [word for word in ("DOE", "SELECT", "Traceback", "sqlite") if word in response.text]
    assert response.json()["detail"] == f"{DAMAGED}. {RESTORE}", "as a verb says it"
    assert "retry-after" not in response.headers
    assert f"{DAMAGED}. {RESTORE}" in rig.client.get("/").text
    ledger = rig.get("/health/ready", 503)["roles"][0]["checks"][0]
    assert (ledger["detail"], ledger["advice"]) == (DAMAGED, RESTORE)


@pytest.mark.parametrize(
    ("path", "order"),
    [
        ("/api/v1/studies/1.2.3/complete", None),
        ("/api/v1/destinations/pacs/pause", None),
        ("/api/v1/requeue", {"stage": "deliver", "destination": "pacs"}),
    ],
)
def test_a_verb_on_a_damaged_ledger_says_what_to_do(
    rig: Rig, path: str, order: dict[str, str] | None
) -> None:
    """Not 500, which says nothing, and no Retry-After: no later try mends it."""
    rig.views.close()
    for file in rig.folder.glob("ledger.sqlite-*"):
        file.unlink()
    (rig.folder / "ledger.sqlite").write_bytes(b"DOE^JANE" * 1000)
    response = rig.client.post(path, json=order)
    assert (response.status_code, response.headers["content-type"]) == (503, PROBLEM)
    assert response.json()["detail"] == f"{DAMAGED}. {RESTORE}"
    assert "retry-after" not in response.headers


def test_a_statement_that_is_wrong_is_a_bug_and_no_damage(tmp_path: Path) -> None:
    def wrong(stage: str, **_: str | None) -> int:
        raise DatabaseError("SELECT 'DOE^JANE'", None, sqlite3.DatabaseError("no such column"))

    with open_rig(tmp_path, requeue=wrong) as rig:
        response = rig.client.post(
            "/api/v1/requeue", json={"stage": "deliver", "destination": "pacs"}
        )
    assert (response.status_code, response.headers["content-type"]) == (500, PROBLEM)
    assert "DOE" not in response.text


def test_a_bug_is_500_without_its_words(tmp_path: Path) -> None:
    def broken(stage: str, **_: str | None) -> int:
        raise ZeroDivisionError(f"DOE^JANE {stage}")

    with open_rig(tmp_path, requeue=broken) as rig:
        response = rig.client.post("/api/v1/requeue", json={"stage": "deliver", "all": True})
    assert (response.status_code, response.headers["content-type"]) == (500, PROBLEM)
    assert not [word for word in ("DOE", "ZeroDivision", "File ") if word in response.text]
    assert response.headers["x-content-type-options"] == "nosniff"


def test_a_verb_that_must_wait_is_503(tmp_path: Path) -> None:
    def busy(stage: str, **_: str | None) -> int:
        raise Retry(f"{stage} is being drained", after_seconds=17)

    with open_rig(tmp_path, requeue=busy) as rig:
        response = rig.client.post("/api/v1/requeue", json={"stage": "deliver", "all": True})
    assert (response.status_code, response.headers["retry-after"]) == (503, "17")


def test_a_token_may_have_any_letters(tmp_path: Path) -> None:
    with open_rig(tmp_path, token="schlüssel") as rig:
        given = {"Authorization": "Bearer schlüssel".encode()}
        assert rig.client.get("/api/v1/studies", headers=given).status_code == 200


@pytest.mark.parametrize(
    "given",
    [None, "Bearer ", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer t\u00f6ken"],
)
def test_a_wrong_token_is_401_before_anything_else(tmp_path: Path, given: str | None) -> None:
    headers = {"Authorization": given.encode()} if given else {}
    with open_rig(tmp_path, token=TOKEN) as rig:
        for path in (
            "/api/v1/studies",
            "/api/v1/studies?limit=0",
            "/api/v1/documents/1",
            "/api/v1/releases",
        ):
            response = rig.client.get(path, headers=headers)
            assert (response.status_code, response.headers["content-type"]) == (401, PROBLEM)
            assert response.headers["www-authenticate"] == "Bearer"
            assert TOKEN not in response.text
        assert (
            rig.client.post(
                "/api/v1/requeue", json={"stage": "deliver", "all": True}, headers=headers
            ).status_code
            == 401
        )


def test_the_token_opens_the_api_under_any_name(tmp_path: Path) -> None:
    with open_rig(tmp_path, token=TOKEN) as rig:
        headers = {"Authorization": f"Bearer {TOKEN}", "Host": "hilum.hospital.example"}
        assert rig.client.get("/api/v1/studies", headers=headers).status_code == 200


def test_a_large_body_is_refused_unread(rig: Rig) -> None:
    response = rig.client.post(
        "/api/v1/requeue", content=b" " * 65537, headers={"Content-Type": "application/json"}
    )
    assert (response.status_code, response.headers["content-type"]) == (413, PROBLEM)
    endless = rig.client.post(
        "/api/v1/requeue",
        content=(b" " for _ in range(3)),
        headers={"Content-Type": "application/json"},
    )
    assert (endless.status_code, endless.headers["cache-control"]) == (411, "no-store")


def test_answers_are_not_kept_by_browsers_and_proxies(rig: Rig) -> None:
    for path in ("/api/v1/studies", "/nowhere", "/docs", "/health/live"):
        headers = rig.client.get(path).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]

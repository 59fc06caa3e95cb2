"""A route's row names the admitted caller; one without the right is refused, an unknown one has no row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.testclient import TestClient
from starlette.exceptions import HTTPException

from hilum.api.audited_actions import AuditedRoute
from hilum.api.auth.actor import set_actor
from hilum.store.audit.log import AuditFilter, AuditLog
from hilum.verbs import Verb, performs
from tests.support.ledger.ledgers import migrated_sqlite


def admit(request: Request) -> None:
    """As the guard of named tokens does it."""
    name = request.headers.get("authorization", "").removeprefix("Bearer ")
    if not name:
        raise HTTPException(401)
    set_actor(request, name)
    if name == "reader" and request.method == "POST":
        raise HTTPException(403)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[AuditLog]:
    opened = AuditLog(migrated_sqlite(tmp_path))
    yield opened
    opened.close()


@pytest.fixture
def client(log: AuditLog) -> Iterator[TestClient]:
    router = APIRouter(prefix="/api/v1", route_class=AuditedRoute, dependencies=[Depends(admit)])

    @router.get("/studies/{study_instance_uid}")
    @performs(Verb.READ_STUDY)
    def look(study_instance_uid: str) -> str:
        return study_instance_uid

    @router.post("/broken")
    @performs(Verb.REQUEUE)
    def fail() -> None:
        raise RuntimeError("a bug")

    app = FastAPI()
    app.state.parts = SimpleNamespace(audit=log)
    app.include_router(router)
    with TestClient(app, raise_server_exceptions=False) as opened:
        yield opened


def rows(log: AuditLog) -> list[tuple[str, str, str]]:
    log.looks.flush()
    return [(row["actor"], row["verb"], row["outcome"]) for row in log.all(AuditFilter())]


def test_a_look_names_who_was_admitted(client: TestClient, log: AuditLog) -> None:
    assert (
        client.get("/api/v1/studies/1.2.3", headers={"Authorization": "Bearer ris"}).status_code
        == 200
    )
    assert rows(log) == [("ris", "read_study", "done")]


def test_who_is_known_and_may_not_is_refused(client: TestClient, log: AuditLog) -> None:
    assert (
        client.post("/api/v1/broken", headers={"Authorization": "Bearer reader"}).status_code == 403
    )
    assert rows(log) == [("reader", "requeue", "refused")]


def test_who_is_not_known_has_no_row(client: TestClient, log: AuditLog) -> None:
    assert client.post("/api/v1/broken").status_code == 401
    assert rows(log) == []


def test_what_fails_by_a_bug_is_a_row_that_failed(client: TestClient, log: AuditLog) -> None:
    assert client.post("/api/v1/broken", headers={"Authorization": "Bearer ris"}).status_code == 500
    assert rows(log) == [("ris", "requeue", "failed")]

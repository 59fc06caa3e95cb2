"""Trouble around the street, with its ledger on a real PostgreSQL: a PACS that is down, one that refuses, a Triton that is absent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, text

from load_tests.serving import Hilum
from tests.support.decoding import reading_of
from tests.support.installation import (
    START_SECONDS,
    Receiver,
    free_ports,
    hilum_with,
    receiver_section,
    save_all,
    send_to,
    small_study,
    wait_for,
)
from tests.support.models import Tiny, make_tiny
from tests.support.peers import StoreScp
from tests.support.postgres import fresh_database

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ledger_url(postgres_url: str) -> str:
    return fresh_database(postgres_url)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def refuser() -> Iterator[StoreScp]:
    with StoreScp(refuse_sr=True) as running:
        yield running


@pytest.fixture(scope="module")
def down_port() -> int:
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny, ledger_url: str, refuser: StoreScp, down_port: int) -> Iterator[Hilum]:
    destinations = {
        "down": receiver_section(down_port),
        "refuser": {"kind": "dicom", "host": "127.0.0.1", "port": refuser.port, "ae_title": "REFUSER"},
    }
    with hilum_with(tmp_path_factory.mktemp("trouble"), tiny, destinations, ledger={"url": ledger_url}) as running:
        running.wait_until_ready(START_SECONDS)
        yield running


def deliveries(server: Hilum, study_uid: str) -> dict[str, dict[str, Any]]:
    found = server.get(f"/api/v1/studies/{study_uid}").json()
    documents = [document for result in found.get("results", []) for document in result["documents"] if document["kind"] == "sr"]
    return {one["destination"]: one for document in documents for one in document["deliveries"]}


def test_a_pacs_that_is_down_and_one_that_refuses(server: Hilum, tmp_path: Path, down_port: int, ledger_url: str) -> None:
    images = small_study(31)
    study_uid = images[0].StudyInstanceUID
    assert send_to(server, save_all(tmp_path, images)).is_ok
    wait_for(lambda: deliveries(server, study_uid).get("refuser", {}).get("state") == "dead", what="the refusal")
    refused = deliveries(server, study_uid)["refuser"]
    assert refused["reason"] == "sop_class_refused"
    assert "Comprehensive 3D SR" in refused["detail"]
    wait_for(lambda: deliveries(server, study_uid)["down"]["detail"], what="a first try at the PACS that is down")
    waiting = deliveries(server, study_uid)["down"]
    assert waiting["state"] in ("due", "leased"), "an outage makes no dead letter"
    with Receiver(down_port) as pacs:
        wait_for(lambda: study_uid in pacs.arrivals.by_study, what="the report, once the PACS is up")
        wait_for(lambda: deliveries(server, study_uid)["down"]["state"] == "delivered", what="its row")
    with create_engine(ledger_url).connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM instance")).scalar_one() == 2, "the ledger really is PostgreSQL"
    answer = httpx.post(f"{server.api}/api/v1/requeue", json={"stage": "deliver", "destination": "refuser"})
    assert (answer.status_code, answer.json()["requeued"]) == (200, 1)


def test_an_absent_triton_does_not_take_the_listener_away(tmp_path: Path, tiny: Tiny) -> None:
    (nowhere,) = free_ports(1)
    with hilum_with(
        tmp_path, tiny, {}, triton={"url": f"127.0.0.1:{nowhere}"}, analyse={"canary_seconds": 1.0, "decode_processes": 1}
    ) as server:
        wait_for(lambda: _ready(server, "receive"), START_SECONDS, "the listener")
        images = small_study(32, views=("PA",))
        assert send_to(server, save_all(tmp_path / "study", images)).is_ok
        assert not _ready(server, "analyse")
        problem = server.get("/health/ready?role=analyse").text
        wait_for(lambda: f"127.0.0.1:{nowhere}" in server.get("/health/ready?role=analyse").text, what=f"the reason in {problem}")
        wait_for(lambda: reading_of(server, images[0]).get("detail"), what="the waiting image's reason")
        assert reading_of(server, images[0])["state"] in ("due", "leased"), "nothing is lost: the image waits"


def _ready(server: Hilum, role: str) -> bool:
    try:
        return server.get(f"/health/ready?role={role}").status_code == 200
    except httpx.TransportError:
        return False

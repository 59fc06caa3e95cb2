"""The commitment of a destination to a delivered document, where people and programs look."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from hilum.domain import CommitmentVerdict
from hilum.settings import DicomDestination
from hilum.store.queue import asked_commitments
from hilum.store.queue.asked_commitments import AskedScp
from hilum.store.schema.tables import delivery
from tests.support.ledger.database import transaction
from tests.support.server import commands
from tests.support.server.api_client import Rig, open_rig

STUDY = "1.2.3"
PACS = AskedScp("pacs", "PACS", 3)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """A delivered document for which the PACS was asked a minute ago."""
    with open_rig(tmp_path, destinations={"pacs": DicomDestination(commitment=True)}) as opened:
        opened.street.walk(STUDY, 1)
        with transaction(opened.street.ledger) as connection:
            connection.execute(update(delivery).values(asked_commitments.due(opened.clock.now)))
        yield opened


def asked(rig: Rig) -> Any:
    request = rig.street.ledger.begin_commitment(PACS, 100.0)
    assert request is not None
    rig.street.ledger.commitment_asked(request.transaction_uid, 3600.0)
    rig.clock.now += 60
    return request


def way_of(rig: Rig) -> dict[str, Any]:
    (result,) = rig.get(f"/api/v1/studies/{STUDY}")["results"]
    return dict(next(way for paper in result["documents"] for way in paper["deliveries"]))


def text_of(rig: Rig, path: str) -> str:
    response = rig.client.get(path)
    assert response.status_code == 200, response.text
    return " ".join(response.text.split())


def test_a_document_that_waits_for_it_stays_delivered_and_is_counted(rig: Rig) -> None:
    asked(rig)
    way = way_of(rig)
    assert (way["state"], way["commitment"]) == ("delivered", "asked")
    assert rig.get(f"/api/v1/studies/{STUDY}")["report_state"] == "delivered"
    (pacs,) = rig.get("/api/v1/destinations")["destinations"]
    assert pacs["uncommitted"] == 1
    assert pacs["uncommitted_since"] == way["delivered_at"]
    assert "1 document accepted and not committed yet" in text_of(rig, "/destinations")
    assert "to commit to keep it" in text_of(rig, f"/studies/{STUDY}")
    metrics = rig.client.get("/metrics").text
    assert 'hilum_uncommitted_documents{destination="pacs"} 1.0' in metrics
    assert 'hilum_uncommitted_oldest_age_seconds{destination="pacs"} 60.0' in metrics


def test_a_committed_document_says_since_when(rig: Rig, tmp_path: Path) -> None:
    request = asked(rig)
    verdict = CommitmentVerdict(request.references, ())
    rig.street.ledger.record_commitment_report(
        request.transaction_uid, "PACS", verdict, {"pacs": 3}
    )
    way = way_of(rig)
    assert (way["state"], way["commitment"]) == ("delivered", "committed")
    assert way["commitment_at"] > way["delivered_at"]
    assert "committed" in text_of(rig, f"/studies/{STUDY}")
    assert 'hilum_uncommitted_documents{destination="pacs"} 0.0' in rig.client.get("/metrics").text


def test_a_document_that_is_never_kept_needs_a_person(rig: Rig) -> None:
    request = asked(rig)
    verdict = CommitmentVerdict((), tuple((item, 0x0122) for item in request.references))
    rig.street.ledger.record_commitment_report(
        request.transaction_uid, "PACS", verdict, {"pacs": 3}
    )
    way = way_of(rig)
    assert (way["state"], way["commitment"], way["reason"]) == (
        "dead",
        "failed",
        "commitment_failed",
    )
    assert "see why in its log" in text_of(rig, f"/studies/{STUDY}") or "enable it" in way["detail"]
    (pacs,) = rig.get("/api/v1/destinations")["destinations"]
    assert pacs["dead"] == {"commitment_failed": 1}


def test_the_command_line_says_how_many_are_not_committed(rig: Rig, tmp_path: Path) -> None:
    asked(rig)
    (tmp_path / "hilum.toml").write_text(
        f'[site]\nstate_dir = "{tmp_path}"\n[destinations.pacs]\ncommitment = true\n'
    )
    found = commands.hilum("destinations", "list", "--config", tmp_path / "hilum.toml")
    assert "1 not committed yet" in found.stdout

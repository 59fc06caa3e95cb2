"""REST for operators: associations, conflicts, queues, releases, schema, requeue, documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hilum import __version__
from hilum.domain import (
    Advance,
    AssociationRecord,
    CommitmentRequest,
    CommitmentState,
    DeliveryState,
    ReadingState,
    SopReference,
)
from hilum.store.queue.commitments import LeaseOwner
from tests.support.server.api_client import Rig, open_rig


def test_a_refusal_says_what_the_sender_should_change(rig: Rig) -> None:
    now = rig.clock.now
    advice = "Send to Called AE Title HILUM."
    rig.street.ledger.record_associations(
        [
            AssociationRecord(
                now,
                now + 1.5,
                "10.0.0.7",
                "CR1",
                "HILUMX",
                "rejected",
                "called_ae_title",
                0,
                0,
                advice,
            )
        ]
    )
    (found,) = rig.get("/api/v1/associations", outcome="rejected")["associations"]
    assert (found["advice"], found["started_at"], found["ended_at"]) == (
        advice,
        "2026-11-20T08:30:00.000Z",
        "2026-11-20T08:30:01.500Z",
    )
    assert rig.get("/api/v1/associations", outcome="released") == {
        "associations": [],
        "next_cursor": None,
    }
    assert rig.get("/api/v1/conflicts") == {"conflicts": [], "next_cursor": None}


def test_who_asked_for_storage_commitment_and_what_became_of_it(rig: Rig) -> None:
    asked = CommitmentRequest(
        "1.9", (SopReference("1.2.840.10008.5.1.4.1.1.1.1", "1.2.3.1"),), "CR1", "HILUM", "10.0.0.7"
    )
    job = rig.street.ledger.request_commitment(asked, LeaseOwner("listener-1", 60.0))
    assert job is not None
    ended = {"reason": "no_address", "detail": "no address for the AE Title CR1"}
    rig.street.ledger.advance("commit", [(job.lease, Advance(CommitmentState.DEAD, ended))])
    (found,) = rig.get("/api/v1/commitments", state="dead")["commitments"]
    assert (
        found["transaction_uid"],
        found["calling_ae_title"],
        found["instances"],
        found["reason"],
    ) == ("1.9", "CR1", 1, "no_address")
    assert rig.get("/api/v1/commitments", state="reported") == {
        "commitments": [],
        "next_cursor": None,
    }
    stuck = rig.get("/api/v1/queues")["stuck"]
    assert [(item["stage"], item["reason"], item["items"]) for item in stuck] == [
        ("commit", "no_address", 1)
    ]


def test_the_street_at_this_moment(rig: Rig) -> None:
    rig.street.receive("1.2.3", 1)
    rig.street.read(ReadingState.FAILED, "worker_crashed")
    rig.street.walk("1.2.4", 1)
    rig.street.ledger.acquire_destination("pacs", "dispatcher-1", 30)
    rig.street.beat("listener-1", "listener")
    rig.street.receive("1.2.5", 1)
    rig.clock.now += 2
    found = rig.get("/api/v1/queues")
    depth = {
        (item["stage"], item["priority"]): (item["due"], item["oldest_age_seconds"])
        for item in found["queues"]
    }
    assert depth["analyse", "live"] == (1, 2.0)
    assert [(item["stage"], item["reason"], item["items"]) for item in found["stuck"]] == [
        ("analyse", "worker_crashed", 1)
    ]
    assert found["outcomes"][0]["results"] == 2
    assert [(item["name"], item["owner"]) for item in found["destinations"]] == [
        ("pacs", "dispatcher-1")
    ]
    assert [(item["name"], item["age_seconds"]) for item in found["processes"]] == [
        ("listener-1", 2.0)
    ]
    assert found["failing"] == []


def test_releases_say_what_they_are(rig: Rig) -> None:
    found = {item["id"]: item for item in rig.get("/api/v1/releases")["releases"]}
    assert {key: item["is_active"] for key, item in found.items()} == {
        "densenet121_untrained@1": True,
        "vit_b16_untrained@1": False,
    }
    one = found["densenet121_untrained@1"]
    assert (one["is_trained"], one["is_calibrated"], one["input_spec"]) == (
        False,
        False,
        {"recipe": "torchxrayvision_224"},
    )
    assert one["labels"][0]["operating_point"] == 0.5


def test_the_result_schema_is_served_where_there_is_one(rig: Rig, tmp_path: Path) -> None:
    assert "no result schema" in rig.get("/api/v1/schemas/result.json", 404)["detail"]
    schema, folder = tmp_path / "result.schema.json", tmp_path / "other"
    schema.write_text('{"$id": "x"}')
    folder.mkdir()
    with open_rig(folder, result_schema=schema) as other:
        response = other.client.get("/api/v1/schemas/result.json")
    assert (response.json(), response.headers["content-type"]) == (
        {"$id": "x"},
        "application/schema+json",
    )


def dead_delivery(rig: Rig) -> None:
    rig.street.receive("1.2.3", 1)
    rig.street.read()
    rig.street.assemble()
    rig.street.report()
    (job,) = rig.street.claim("deliver")
    rig.street.ledger.advance(
        "deliver", [(job.lease, Advance(DeliveryState.DEAD, {"reason": "sop_class_refused"}))]
    )


@pytest.mark.parametrize(
    ("order", "count"),
    [
        ({"destination": "pacs"}, 1),
        ({"reason": "sop_class_refused"}, 1),
        ({"reason": "attempts_exhausted"}, 0),
        ({"study_instance_uid": "1.2.3"}, 1),
        ({"study_instance_uid": "1.2.4"}, 0),
        ({"reason": "sop_class_refused", "destination": "pacs", "study_instance_uid": "1.2.3"}, 1),
        ({"all": True}, 1),
    ],
)
def test_requeue_takes_what_fits_and_sends_the_same_bytes(
    rig: Rig, order: dict[str, Any], count: int
) -> None:
    dead_delivery(rig)
    before = rig.get("/api/v1/studies/1.2.3/documents")["documents"][0]
    response = rig.client.post("/api/v1/requeue", json={"stage": "deliver", **order})
    assert (response.status_code, response.json()) == (200, {"requeued": count})
    after = rig.get("/api/v1/studies/1.2.3/documents")["documents"][0]
    assert after["deliveries"][0]["state"] == ("due" if count else "dead")
    assert {**before, "deliveries": None} == {**after, "deliveries": None}


@pytest.mark.parametrize(
    "order",
    [
        {},
        {"stage": "deliver"},
        {"stage": "deliver", "all": False},
        {"stage": "receive", "all": True},
        {"stage": "analyse", "destination": "pacs"},
        {"stage": "deliver", "reason": "'; DROP TABLE delivery"},
        {"stage": "deliver", "study_instance_uid": "DOE^JANE"},
        {"stage": "deliver", "all": True, "more": 1},
    ],
)
def test_a_vague_requeue_is_refused(rig: Rig, order: dict[str, Any]) -> None:
    dead_delivery(rig)
    response = rig.client.post("/api/v1/requeue", json=order)
    assert response.status_code == 422
    assert response.json()["errors"]
    assert "DOE" not in response.text
    assert rig.get("/api/v1/queues")["stuck"][0]["items"] == 1


def test_a_form_from_another_page_cannot_requeue(rig: Rig) -> None:
    dead_delivery(rig)
    for headers in (
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {},
    ):
        response = rig.client.post(
            "/api/v1/requeue", content=b'{"stage":"deliver","all":true}', headers=headers
        )
        assert response.status_code == 422
    assert rig.client.post(
        "/api/v1/requeue", content=b'{"stage": DOE', headers={"Content-Type": "application/json"}
    ).json()["errors"] == [{"place": "body.10", "detail": "not valid JSON"}]


def test_without_a_ledger_to_write_there_is_no_requeue(tmp_path: Path) -> None:
    with open_rig(tmp_path, requeue=None) as rig:
        assert (
            rig.client.post("/api/v1/requeue", json={"stage": "deliver", "all": True}).status_code
            == 404
        )


def test_processes_of_other_roles_serve_probes_and_metrics_only(tmp_path: Path) -> None:
    with open_rig(tmp_path, with_studies=False) as rig:
        assert rig.client.get("/health/live").status_code == 200
        assert rig.client.get("/metrics").status_code == 200
        for path in ("/api/v1/studies", "/api/v1/queues", "/docs"):
            assert rig.client.get(path).status_code == 404


def test_the_documentation_names_every_operation_and_loads_nothing(rig: Rig) -> None:
    openapi, page = rig.get("/openapi.json"), rig.client.get("/docs").text
    assert openapi["info"]["version"] == __version__
    operations = [
        (method, path, item)
        for path, methods in openapi["paths"].items()
        for method, item in methods.items()
    ]
    assert len(operations) >= 18
    for method, path, item in operations:
        assert item["summary"]
        assert item["description"]
        assert f"{method.upper()} {path}" in page
    for reference in set(
        re.findall(r'"\$ref": *"#/components/schemas/([^"]+)"', json.dumps(openapi))
    ):
        assert reference in openapi["components"]["schemas"]
    assert {"Problem", "Violation", "StudyAnswer"} <= set(openapi["components"]["schemas"])
    assert "HTTPValidationError" not in json.dumps(openapi)
    assert "<script" not in page
    assert "http://" not in page
    assert "https://" not in page


def test_the_document_on_rest_names_every_route(rig: Rig) -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "rest.md").read_text(
        encoding="utf-8"
    )
    paths = rig.get("/openapi.json")["paths"]
    documented = set(re.findall(r"^\| `(?:GET|POST) (\S+)`", text, flags=re.MULTILINE))
    assert set(paths) - documented == set()
    for parameter in paths["/api/v1/studies"]["get"]["parameters"]:
        assert f"`{parameter['name']}`" in text

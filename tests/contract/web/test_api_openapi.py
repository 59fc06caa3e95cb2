"""The API keeps what its OpenAPI document says, whatever it is sent (schemathesis)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings

from tests.support.campaigns.seeded import seed_gallery
from tests.support.server.api_client import TOKEN, Rig, open_rig

OPERATIONS = [
    "GET /health/live",
    "GET /health/ready",
    "GET /metrics",
    "GET /api/v1/studies",
    "POST /api/v1/studies/find",
    "GET /api/v1/studies/{study_instance_uid}",
    "GET /api/v1/studies/{study_instance_uid}/documents",
    "GET /api/v1/documents/{document}",
    "GET /api/v1/studies/{study_instance_uid}/results/{result}",
    "GET /api/v1/associations",
    "GET /api/v1/audit",
    "GET /api/v1/commitments",
    "GET /api/v1/conflicts",
    "GET /api/v1/queues",
    "GET /api/v1/releases",
    "GET /api/v1/campaigns",
    "GET /api/v1/campaigns/{name}",
    "GET /api/v1/campaigns/{name}/days",
    "GET /api/v1/campaigns/{name}/dead",
    "POST /api/v1/campaigns/{name}/run",
    "POST /api/v1/campaigns/{name}/pause",
    "POST /api/v1/campaigns/{name}/resume",
    "POST /api/v1/campaigns/{name}/cancel",
    "POST /api/v1/campaigns/{name}/retry",
    "GET /api/v1/rollouts",
    "GET /api/v1/rollouts/{alias}",
    "POST /api/v1/rollouts/{alias}/start",
    "POST /api/v1/rollouts/{alias}/promote",
    "POST /api/v1/rollouts/{alias}/rollback",
    "POST /api/v1/rollouts/{alias}/stop",
    "GET /api/v1/schemas/result.json",
    "POST /api/v1/requeue",
    "GET /api/v1/destinations",
    "POST /api/v1/destinations/{name}/pause",
    "POST /api/v1/destinations/{name}/resume",
    "POST /api/v1/destinations/{name}/forget",
    "POST /api/v1/commitments/forget",
    "POST /api/v1/studies/{study_instance_uid}/complete",
    "POST /api/v1/studies/{study_instance_uid}/resend",
    "POST /api/v1/erase",
    "POST /api/v1/destinations/{name}/probe",
    "POST /api/v1/conflicts/{conflict}/keep",
    "POST /api/v1/conflicts/{conflict}/replace",
    "POST /api/v1/conflicts/{conflict}/discard",
    "POST /api/v1/images/{sop_instance_uid}/reject",
]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("api")
    (folder / "archive" / "locks").mkdir(parents=True)
    with open_rig(folder, token=TOKEN, api={"show_identifiers": True}) as opened:
        for number in range(3):
            opened.street.walk(f"1.2.{number}", 1, 2)
        seed_gallery(opened.street.ledger.url, opened.clock)
        for role in ("listener", "analyser", "dispatcher"):
            opened.street.beat(f"{role}-1", role)
        yield opened


@pytest.fixture(scope="module")
def operations(rig: Rig) -> dict[str, Any]:
    schema = schemathesis.openapi.from_asgi(
        "/openapi.json", rig.client.app, headers={"Authorization": f"Bearer {TOKEN}"}
    )
    return {found.ok().label: found.ok() for found in schema.get_all_operations()}


def test_every_operation_is_tried(operations: dict[str, Any]) -> None:
    assert sorted(operations) == sorted(OPERATIONS)


def test_the_document_on_rest_lists_these_operations_and_no_others() -> None:
    text = (Path(__file__).parents[3] / "docs" / "reference" / "rest.md").read_text(
        encoding="utf-8"
    )
    documented = {
        f"{method} {path}"
        for method, path in re.findall(r"^\| `(GET|POST) (\S+)`", text, flags=re.MULTILINE)
    }
    assert {
        label
        for label in documented
        if "/api/" in label or "/health" in label or label.endswith("/metrics")
    } == set(OPERATIONS)


_WITHOUT = ("live", "metrics", "queues", "releases", "result.json", "destinations")
WITH_PARAMETERS = [label for label in OPERATIONS if label.split("/")[-1] not in _WITHOUT]


def keep_what_no_schema_says(case: schemathesis.Case) -> None:
    case.query.pop(
        "cursor", None
    )  # any text is of the right type, but only the server can make one
    if case.query.get("order") == "changed":  # which takes no filters
        case.query = {
            name: value for name, value in case.query.items() if name in ("order", "limit")
        }
    if isinstance(case.body, dict) and case.body.get("study_date_from"):
        case.body.pop("study_date_to", None)  # must not lie before it
    if isinstance(case.body, dict):
        case.body.pop("hours", None)  # each is a text of a form


def try_all(operation: Any, mode: schemathesis.GenerationMode) -> None:
    @settings(
        max_examples=20,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def try_one(case: schemathesis.Case) -> None:
        if mode is schemathesis.GenerationMode.POSITIVE:
            keep_what_no_schema_says(case)
        case.call_and_validate(headers={"Authorization": f"Bearer {TOKEN}"})

    try_one()


@pytest.mark.parametrize("label", OPERATIONS)
def test_a_valid_request_gets_a_documented_answer(operations: dict[str, Any], label: str) -> None:
    try_all(operations[label], schemathesis.GenerationMode.POSITIVE)


@pytest.mark.parametrize("label", WITH_PARAMETERS)
def test_an_invalid_request_is_refused_as_documented(
    operations: dict[str, Any], label: str
) -> None:
    try_all(operations[label], schemathesis.GenerationMode.NEGATIVE)

"""Probes and the scrape: open to everybody who reaches the port, so they name no study and no patient."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from hilum import __version__
from hilum.api.guard import only_known_parameters
from hilum.api.operation_answers import LiveAnswer, ReadyAnswer
from hilum.api.parts import PartsHere
from hilum.api.problems import documented
from hilum.api.readiness import Role, checks
from hilum.telemetry import scrape, scrape_state

router = APIRouter(tags=["Health"])


@router.get("/health/live", response_model=LiveAnswer, summary="Is this process alive?")
def live() -> dict[str, str]:
    """200 as long as the process answers. Restart it when it does not."""
    return {"status": "alive", "version": __version__}


@router.get(
    "/health/ready",
    response_model=ReadyAnswer,
    responses={
        503: {"model": ReadyAnswer, "description": "At least one role is not ready; `checks` say why and what to do."},
        **documented(422),
    },
    dependencies=[Depends(only_known_parameters)],
    summary="Can it work?",
)
def ready(
    parts: PartsHere,
    response: Response,
    role: Annotated[list[Role] | None, Query(description="Roles to judge; repeat it for several.")] = None,
) -> dict[str, Any]:
    """200 if every role is ready, else 503. A missing Triton never makes `receive` unready: routers can go on sending."""
    facts = parts.observer.facts()
    found = {name: checks(name, facts) for name in dict.fromkeys(role or parts.default_roles)}
    judged = [
        {"role": name, "is_ready": all(item.ok for item in items), "checks": list(map(asdict, items))} for name, items in found.items()
    ]
    is_ready = all(item["is_ready"] for item in judged)
    response.status_code = 200 if is_ready else 503
    return {"is_ready": is_ready, "roles": judged}


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}}, summary="Prometheus metrics")
def metrics(parts: PartsHere) -> Response:
    """Metrics of all processes of this host, and the state of the ledger's queues."""
    return Response(scrape(parts.metrics_directory) + scrape_state(parts.observer.samples()), media_type=CONTENT_TYPE_PLAIN_0_0_4)

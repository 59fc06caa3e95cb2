"""Probes and the scrape.

They name no study and no patient, and the probes tell strangers nothing but yes or no.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from hilum.api.answers.operations import LiveAnswer, ReadyAnswer
from hilum.api.answers.shared import SharedAnswer
from hilum.api.dependencies import PartsHere
from hilum.api.guard import Admission, is_stranger, only_known_parameters, require_own_name
from hilum.api.problems import documented
from hilum.api.readiness import ReadinessFacts, Role, checks
from hilum.domain import Scope

router = APIRouter(tags=["Health"])


@router.get(
    "/health/live",
    response_model=LiveAnswer,
    responses=documented(403),
    summary="Is this process alive?",
)
async def live(request: Request, parts: PartsHere) -> dict[str, str]:
    """200 as long as the process answers.

    Restart it when it does not. No token is looked at: nothing here may wait.
    """
    require_own_name(request, parts.settings.api)
    return {"status": "alive"}


@router.get(
    "/health/ready",
    response_model=ReadyAnswer,
    responses={
        503: {
            "model": ReadyAnswer,
            "description": "At least one role is not ready; `checks` say why and name the remedy.",
        },
        **documented(401, 403, 422, 429),
    },
    dependencies=[
        Depends(Admission(Scope.READ, is_open=lambda _: True)),
        Depends(only_known_parameters),
    ],
    summary="Can it work?",
)
async def ready(
    request: Request,
    parts: PartsHere,
    response: Response,
    role: Annotated[
        list[Role] | None, Query(description="Roles to judge; repeat it for several.")
    ] = None,
    *,
    destinations: Annotated[
        bool,
        Query(
            description=(
                "false: leave destinations out of `deliver`, as for a probe of one container: a"
                " receiver that is away is no fault of the container."
            )
        ),
    ] = True,
) -> dict[str, Any]:
    """200 if every role is ready, else 503; with a token, also why.

    A missing Triton never makes `receive` unready.
    """
    shared: SharedAnswer[ReadinessFacts] = request.app.state.facts
    facts = await shared.get()
    if not destinations:
        facts = replace(facts, destinations=())
    found = {name: checks(name, facts) for name in dict.fromkeys(role or parts.default_roles)}
    judged = [
        {
            "role": name,
            "is_ready": all(item.ok for item in items),
            "checks": list(map(asdict, items)),
        }
        for name, items in found.items()
    ]
    is_ready = all(item["is_ready"] for item in judged)
    response.status_code = 200 if is_ready else 503
    if is_stranger(request):  # checks name destinations, releases and answers of others
        judged = [{**item, "checks": []} for item in judged]
    return {"is_ready": is_ready, "roles": judged}


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}, **documented(401, 403, 429)},
    dependencies=[Depends(Admission(Scope.READ, is_open=lambda api: api.open_metrics))],
    summary="Prometheus metrics",
)
async def metrics(request: Request) -> Response:
    """All processes of this host, and the state of the ledger's queues, at most a second old."""
    shared: SharedAnswer[bytes] = request.app.state.scrape
    return Response(await shared.get(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

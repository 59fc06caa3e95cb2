"""The application: routes, guards and errors put together."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.responses import HTMLResponse

from hilum import __version__
from hilum.api import deciding, health, intervening, operations, probing, problems, studies
from hilum.api.around import Around
from hilum.api.docs_page import render
from hilum.api.guard import admit, only_known_parameters, refuse_other_sites
from hilum.api.pages.pictures import Pictures
from hilum.api.pages.router import icon, pages
from hilum.api.parts import Interventions, Parts, Probe, Requeue
from hilum.api.problems import documented
from hilum.api.readiness import ROLES, Role
from hilum.domain import Release
from hilum.settings import Settings
from hilum.store.decisions import Decisions
from hilum.store.views import LedgerViews

_DESCRIPTION = """Chest radiographs that were received, what the models found in them, and where the reports went.

Times are ISO 8601 in UTC. Errors are `application/problem+json` (RFC 9457). For research use only, not for diagnosis."""
_TAGS = [
    {"name": "Studies", "description": "Studies, results and documents."},
    {"name": "Operations", "description": "Queues, associations, releases; doing something again."},
    {"name": "Health", "description": "Probes and metrics, without a token."},
]
# FastAPI would record exceptions and refused input with their texts for any configured exporter: they may hold patient data.
_NO_TELEMETRY: dict[str, Any] = {
    "telemetry": {"tracing": False, "metrics": False, "logs": False, "operation_spans": False, "auto_configure": False}
}


class _Hilum(FastAPI):
    """FastAPI, whose document also holds the schema of problems: they are answered by handlers, which it does not look at."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        document = super().openapi()
        document.setdefault("components", {}).setdefault("schemas", {}).update(problems.schemas())
        return document


def create_app(
    settings: Settings,
    views: LedgerViews,
    metrics_directory: str,
    releases: Mapping[str, Release],
    *,
    requeue: Requeue | None = None,
    result_schema: Path | None = None,
    with_studies: bool = True,
    default_roles: tuple[Role, ...] = ROLES,
    host: str | None = None,
    clock: Callable[[], float] = time.time,
    probe: Probe | None = None,
    decisions: Decisions | None = None,
    interventions: Interventions | None = None,
) -> FastAPI:
    """The application. Without `with_studies` only /health and /metrics, for processes of other roles.

    `default_roles`: what /health/ready judges unasked. `host`: only heartbeats of that host count.
    """
    app = _Hilum(
        title="Hilum",
        version=__version__,
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        docs_url=None,
        redoc_url=None,
        responses=documented(503),
        **_NO_TELEMETRY,
    )
    app.state.parts = Parts(
        settings, views, metrics_directory, releases, requeue, result_schema, default_roles, host, clock, probe, decisions, interventions
    )
    app.add_middleware(Around)
    problems.install(app)
    app.include_router(health.router)
    if with_studies:
        app.include_router(_api(settings, can_requeue=requeue is not None, can_probe=probe is not None, can_decide=decisions is not None))
        if interventions is not None:
            app.include_router(intervening.router, dependencies=_guards(settings), responses=documented(401, 403, 422))
        app.include_router(pages(settings, Pictures(settings, views)))
        app.add_api_route("/icon.svg", icon, include_in_schema=False)
        app.add_api_route("/docs", lambda: HTMLResponse(render(app.openapi())), include_in_schema=False)
    return app


def _guards(settings: Settings) -> list[Any]:
    return [Depends(admit(settings.api.token)), Depends(refuse_other_sites), Depends(only_known_parameters)]


def _api(settings: Settings, *, can_requeue: bool, can_probe: bool, can_decide: bool) -> APIRouter:
    api = APIRouter(dependencies=_guards(settings), responses=documented(401, 403, 422))
    api.include_router(studies.router)
    api.include_router(operations.router)
    api.include_router(intervening.listing)
    if can_requeue:
        api.include_router(operations.writing)
    if can_probe:
        api.include_router(probing.router)
    if can_decide:
        api.include_router(deciding.router)
    return api

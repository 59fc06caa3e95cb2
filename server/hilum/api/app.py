"""The application: routes, guards and errors put together."""

from __future__ import annotations

import functools
import json
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import HTMLResponse

from hilum import __version__
from hilum.api import problems
from hilum.api.answers.shared import SharedAnswer
from hilum.api.dependencies import Dependencies
from hilum.api.docs_page import render
from hilum.api.guard import guarded
from hilum.api.middleware import Around
from hilum.api.pages import login
from hilum.api.pages.pictures import Pictures
from hilum.api.pages.router import icon, pages
from hilum.api.pages.templating import PageRoute
from hilum.api.problems import documented
from hilum.api.routes import (
    audit,
    campaigns,
    decisions,
    find,
    health,
    interventions,
    operations,
    probe,
    resend,
    rollouts,
    stow,
    studies,
)
from hilum.domain import Scope
from hilum.observability.telemetry import scrape, scrape_state

_DESCRIPTION = """Chest radiographs, the findings of the models, and the deliveries of the reports.

Times are ISO 8601 in UTC. Errors are `application/problem+json` (RFC 9457).

For research use only, not for diagnosis."""
_TAGS = [
    {"name": "Studies", "description": "Studies, results and documents."},
    {"name": "Store", "description": "Images in, by DICOMweb."},
    {"name": "Operations", "description": "Queues, associations, releases; doing something again."},
    {"name": "Health", "description": "Probes, without a token, and metrics."},
]
# FastAPI would record exceptions and refused input with their texts for any configured exporter:
# they may hold patient data.
_NO_TELEMETRY: dict[str, Any] = {
    "telemetry": {
        "tracing": False,
        "metrics": False,
        "logs": False,
        "operation_spans": False,
        "auto_configure": False,
    }
}


class _Hilum(FastAPI):
    """FastAPI, whose document also holds the schema of problems.

    They are answered by handlers, which it does not look at.
    """

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        document = super().openapi()
        document.setdefault("components", {}).setdefault("schemas", {}).update(problems.schemas())
        return document


def create_app(parts: Dependencies, *, with_studies: bool = True) -> FastAPI:
    """The application, without the routes whose part is missing.

    Without `with_studies` only /health and /metrics, for other roles.
    """
    app = _Hilum(
        title="Hilum",
        version=__version__,
        description=_DESCRIPTION,
        openapi_tags=_TAGS,
        docs_url=None,
        openapi_url=None,  # ours is guarded, and rendered once
        redoc_url=None,
        # behind a proxy that ends TLS they would go to plain http, with what is sent again there
        redirect_slashes=False,
        responses=documented(503),
        **_NO_TELEMETRY,
    )
    app.state.parts = parts
    app.state.facts = SharedAnswer(parts.observer.facts, parts.shared_seconds)
    app.state.scrape = SharedAnswer(lambda: _scrape(parts), parts.shared_seconds)
    app.add_middleware(Around)
    problems.install(app)
    app.include_router(health.router)
    if with_studies:
        app.include_router(_api(parts))
        app.include_router(pages(Pictures(parts.settings, parts.views)))
        app.include_router(login.router)
        app.add_api_route("/icon.svg", icon, include_in_schema=False)
        app.include_router(_descriptions(app))
    return app


def _scrape(parts: Dependencies) -> bytes:
    return scrape(parts.metrics_directory) + scrape_state(parts.observer.samples())


def _descriptions(app: FastAPI) -> APIRouter:
    """The OpenAPI document, for programs and as a page. Both are rendered once."""
    router = APIRouter(include_in_schema=False, dependencies=guarded(Scope.READ))
    document = functools.cache(lambda: json.dumps(app.openapi(), ensure_ascii=False).encode())
    page = functools.cache(lambda: render(app.openapi()).encode())

    async def openapi() -> Response:
        return Response(document(), media_type="application/json")

    async def docs() -> Response:
        return HTMLResponse(page())

    router.add_api_route("/openapi.json", openapi)
    router.add_api_route("/docs", docs, route_class_override=PageRoute)
    return router


def _api(parts: Dependencies) -> APIRouter:
    """Each router declares the scope that its routes need."""
    api = APIRouter(responses=documented(401, 403, 422, 429))
    for router, needed in (
        (studies.router, parts.views),
        (find.router, parts.views),
        (operations.router, parts.views),
        (interventions.listing, parts.views),
        (operations.writing, parts.requeue),
        (probe.router, parts.probe),
        (decisions.router, parts.decisions),
        (interventions.router, parts.interventions),
        (resend.router, parts.interventions),
        (interventions.erasing, parts.interventions),
        (campaigns.listing, parts.views),
        (campaigns.router, parts.campaigns),
        (rollouts.listing, parts.rollouts),
        (rollouts.router, parts.rollouts),
        (stow.router, parts.store),
        (audit.router, parts.audit),
    ):
        if needed is not None:
            api.include_router(router)
    return api

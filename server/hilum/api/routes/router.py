"""The routers of /api/v1: each declares its scope, and its verbs become rows of the audit."""

from __future__ import annotations

from fastapi import APIRouter

from hilum.api.audited_actions import AuditedRoute
from hilum.api.fields import API_PREFIX
from hilum.api.guard import guarded
from hilum.domain import Scope


def audited_router(tag: str, scope: Scope, below: str = "") -> APIRouter:
    """Return a router of /api/v1, or of a path below it, for tokens of this scope."""
    return APIRouter(
        prefix=API_PREFIX + below,
        tags=[tag],
        route_class=AuditedRoute,
        dependencies=guarded(scope),
    )

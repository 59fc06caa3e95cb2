"""The web process: REST, health and metrics; on a host of other roles health and metrics alone."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI

from hilum.api.app import create_app
from hilum.api.auth.access import open_access
from hilum.api.dependencies import Dependencies
from hilum.api.readiness import ROLES, Role
from hilum.api.serve import serve_api
from hilum.api.stow_store import Store
from hilum.processes.heartbeat import Heartbeat
from hilum.services import roles
from hilum.services.campaigns.estimate import end_of
from hilum.services.campaigns.verbs import CampaignVerbs
from hilum.services.host_report import machine
from hilum.services.identifiers import LedgerIdentifiers
from hilum.services.image_decisions import open_decisions
from hilum.services.interventions import LedgerInterventions
from hilum.services.launch_spec import LaunchSpec
from hilum.services.releases.releases import Catalogue
from hilum.services.releases.rollouts import RolloutVerbs
from hilum.services.state_dir import metrics_dir
from hilum.settings import Settings
from hilum.store.audit.access_tokens import AccessTokens
from hilum.store.audit.log import AuditLog
from hilum.store.campaigns.campaigns import Campaigns
from hilum.store.ledger import Ledger
from hilum.store.queries.views import LedgerViews
from hilum.store.rollouts.rollouts import Rollouts

# The roles that /health/ready judges on a host without the API: its own work, not that of other
# hosts.
_JUDGED: Final[Mapping[str, Role]] = {
    "listener": "receive",
    "analyser": "analyse",
    "dispatcher": "deliver",
}


def run(spec: LaunchSpec, settings: Settings, ledger: Ledger, stop: threading.Event) -> None:
    """Serve until `stop` is set."""
    listening = socket.socket(fileno=spec.listening_fd)
    views = LedgerViews(settings.ledger_url)
    with (
        as_file(files("hilum.report") / "result.schema.json") as schema,
        _store(spec, settings, ledger, views, stop) as store,
        Heartbeat(ledger, "api"),
        contextlib.closing(
            AuditLog(settings.ledger_url, look_seconds=60 * settings.audit.look_minutes)
        ) as audit,
    ):
        serve_api(
            _app(spec, settings, ledger, views, schema, store, audit),
            listening,
            stop,
            api=settings.api,
        )


@contextlib.contextmanager
def _store(
    spec: LaunchSpec,
    settings: Settings,
    ledger: Ledger,
    views: LedgerViews,
    stop: threading.Event,
) -> Iterator[Store | None]:
    """Yield the store of images that come by STOW-RS; None where STOW-RS is disabled."""
    if spec.role != "api" or not settings.stow.enabled:
        yield None
        return
    from hilum.receive.threads import log_failures  # noqa: PLC0415 - loads all of a listener
    from hilum.services.stow import stow_store  # noqa: PLC0415 - the same

    log_failures()
    with stow_store(settings, ledger, views, stop) as store:
        yield store


def _app(
    spec: LaunchSpec,
    settings: Settings,
    ledger: Ledger,
    views: LedgerViews,
    schema: Path,
    store: Store | None,
    audit: AuditLog,
) -> FastAPI:
    own = _judged(spec.served_role)
    rollouts = Rollouts(settings.ledger_url)
    parts = Dependencies(
        settings,
        views,
        str(metrics_dir(settings, spec.served_role)),
        Catalogue(settings, rollouts.manifest),
        open_access(settings, views, AccessTokens(settings.ledger_url), audit=audit),
        requeue=ledger.requeue,
        decisions=open_decisions(settings),
        interventions=LedgerInterventions(settings, ledger),
        rollouts=RolloutVerbs(settings, rollouts, views),
        campaigns=CampaignVerbs(settings, Campaigns(settings.ledger_url)),
        estimate=lambda found: end_of(settings, found),
        store=store,
        audit=audit,
        identifiers=_identifiers(settings, views),
        probe=lambda name: _probe(settings, name),
        result_schema=schema,
        default_roles=own or ROLES,
        host=socket.gethostname() if own else None,
        machine=machine(),
    )
    return create_app(parts, with_studies=spec.role == "api")


def _judged(served: str) -> tuple[Role, ...]:
    """Return the roles by which this host is judged; empty: all roles of all hosts.

    It is empty on a host with the API.
    """
    chosen = roles.of(served)
    return (
        ()
        if "api" in chosen
        else tuple(role for process, role in _JUDGED.items() if process in chosen)
    )


def _identifiers(settings: Settings, views: LedgerViews) -> LedgerIdentifiers | None:
    """Return the identifiers; None where the settings do not permit them."""
    return LedgerIdentifiers(views) if settings.api.show_identifiers else None


def _probe(settings: Settings, name: str) -> dict[str, Any]:
    from hilum.deliver import probe_destination  # noqa: PLC0415 - pynetdicom is not needed before the first probe

    return asdict(probe_destination(name, settings.destinations[name]))

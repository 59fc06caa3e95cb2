"""The web process: REST, health and metrics; on a host of another role health and metrics alone."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI

from hilum.api.app import create_app
from hilum.api.readiness import ROLES, Role
from hilum.api.serve import serve_api
from hilum.settings import Settings
from hilum.store.ledger import Ledger
from hilum.store.views import LedgerViews
from hilum.wiring.charge import Charge
from hilum.wiring.deciding import open_decisions
from hilum.wiring.heartbeat import Heartbeat
from hilum.wiring.intervening import LedgerInterventions
from hilum.wiring.releases import active_releases
from hilum.wiring.state_folder import metrics_dir

# What /health/ready judges on a host that runs one role: its own work there, not that of the others.
_JUDGED: Final[Mapping[str, Role]] = {"listener": "receive", "analyser": "analyse", "dispatcher": "deliver"}


def run(charge: Charge, settings: Settings, ledger: Ledger, stop: threading.Event) -> None:
    """Serve until told to stop."""
    listening = socket.socket(fileno=charge.listening_fd)
    with as_file(files("hilum.report") / "result.schema.json") as schema, Heartbeat(ledger, "api"):
        serve_api(_app(charge, settings, ledger, schema), listening, stop)


def _app(charge: Charge, settings: Settings, ledger: Ledger, schema: Path) -> FastAPI:
    own = _JUDGED.get(charge.served_role)
    return create_app(
        settings,
        LedgerViews(settings.ledger_url),
        str(metrics_dir(settings, charge.served_role)),
        active_releases(settings),
        requeue=ledger.requeue,
        decisions=open_decisions(settings),
        interventions=LedgerInterventions(settings, ledger),
        probe=lambda name: _probe(settings, name),
        result_schema=schema,
        with_studies=charge.role == "api",
        default_roles=ROLES if own is None else (own,),
        host=None if own is None else socket.gethostname(),
    )


def _probe(settings: Settings, name: str) -> dict[str, Any]:
    from hilum.deliver.probe import probe  # noqa: PLC0415 - pynetdicom is not needed until somebody asks

    return asdict(probe(name, settings.destinations[name]))

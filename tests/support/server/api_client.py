"""The API over a real ledger, called in process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from hilum.api.app import create_app
from hilum.api.auth.access import Access, open_access
from hilum.api.auth.local_token import local_token_file
from hilum.api.dependencies import Dependencies
from hilum.deliver import Probe
from hilum.receive.indexing.describe import describe
from hilum.receive.indexing.same_bytes import sha256_of
from hilum.services.campaigns.verbs import CampaignVerbs
from hilum.services.identifiers import LedgerIdentifiers
from hilum.services.interventions import LedgerInterventions
from hilum.services.releases.rollouts import RolloutVerbs
from hilum.settings import Api, Destination, DicomDestination, Receive, Settings, Site, Stow
from hilum.store.admin.decisions import Decisions
from hilum.store.archive.archive import Archive
from hilum.store.audit.access_tokens import AccessTokens
from hilum.store.audit.log import AuditLog
from hilum.store.campaigns.campaigns import Campaigns
from hilum.store.ledger import Ledger
from hilum.store.queries.views import LedgerViews
from hilum.store.rollouts.rollouts import Rollouts
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.street import Clock, Street, release

TOKEN = "a-token-for-tests"


def settings_for(
    folder: Path,
    *,
    token: str = "",
    reserve_bytes: int = 0,
    network_timeout_seconds: float = 60.0,
    maximum_parts: int = 10_000,
    api: Mapping[str, Any] | None = None,
    destinations: Mapping[str, Destination] | None = None,
) -> Settings:
    """Settings of an installation in `folder`, whatever the environment says.

    `api`: others of that section.
    """
    sections = {
        "site": Site(state_dir=folder),
        "api": Api(token=token, **(api or {})),
        "receive": Receive(
            reserve_bytes=reserve_bytes, network_timeout_seconds=network_timeout_seconds
        ),
        "stow": Stow(maximum_parts=maximum_parts),
        "destinations": {"pacs": DicomDestination(accept_untrained=True), **(destinations or {})},
    }
    return Settings.model_construct(
        **{
            **{name: field.get_default() for name, field in Settings.model_fields.items()},
            **sections,
        }
    )


@dataclass
class Rig:
    """An API, what it serves, and a client that stands on the same machine."""

    client: TestClient
    street: Street
    clock: Clock
    views: LedgerViews
    folder: Path
    audit: AuditLog
    access: Access
    tokens: AccessTokens

    @property
    def headers(self) -> dict[str, str]:
        """Of a client beside this one: the token of this host."""
        return {
            "Authorization": f"Bearer {local_token_file(settings_for(self.folder)).read_text()}"
        }

    def get(self, path: str, status: int = 200, **query: Any) -> Any:
        """JSON of a GET that must end with this status."""
        response = self.client.get(path, params=query)
        assert response.status_code == status, response.text
        return response.json()


def _as_if_probed(name: str) -> dict[str, Any]:
    """What the delivery room would say of a receiver that is well.

    The API never connects itself.
    """
    return asdict(
        Probe(
            name,
            "PACS@127.0.0.1:4242",
            is_ok=True,
            detail="reports go there",
            echo="success",
            sr_class="comprehensive_3d",
        )
    )


@contextmanager
def open_rig(
    folder: Path,
    *,
    url: str = "",
    token: str = "",
    reserve_bytes: int = 0,
    with_studies: bool = True,
    api: Mapping[str, Any] | None = None,
    destinations: Mapping[str, Destination] | None = None,
    **options: Any,
) -> Iterator[Rig]:
    """An API over a fresh ledger;

    `options` are `Dependencies`. Without a token of the settings the client shows that of this host.
    """
    ledger_url = url or migrated_sqlite(folder)
    clock = Clock()
    ledger, views = Ledger(ledger_url, clock), LedgerViews(ledger_url, clock)
    (folder / "metrics").mkdir(exist_ok=True)
    releases: Mapping[str, Any] = {
        item.id: item for item in (release(), release("vit_b16_untrained"))
    }
    settings = settings_for(
        folder, token=token, reserve_bytes=reserve_bytes, api=api, destinations=destinations
    )
    decisions = Decisions(ledger_url, Archive(folder / "archive"), describe, sha256_of, clock)
    usual = {
        "requeue": ledger.requeue,
        "interventions": LedgerInterventions(settings, ledger),
        "decisions": decisions,
    }
    rollouts = Rollouts(ledger_url, clock)
    campaigns = Campaigns(ledger_url, clock)
    options = {
        **usual,
        "probe": _as_if_probed,
        "rollouts": RolloutVerbs(settings, rollouts, views),
        "campaigns": CampaignVerbs(settings, campaigns),
        **options,
    }
    if settings.api.show_identifiers:
        options.setdefault("identifiers", LedgerIdentifiers(views))
    audit = options.setdefault("audit", AuditLog(ledger_url, clock, look_seconds=300.0))
    tokens = AccessTokens(ledger_url, clock)
    access = open_access(settings, views, tokens, clock, audit)
    options = {"clock": clock, "shared_seconds": 0.0, **options}
    app = create_app(
        Dependencies(settings, views, str(folder / "metrics"), releases, access, **options),
        with_studies=with_studies,
    )
    with TestClient(app, base_url="http://127.0.0.1:8640", raise_server_exceptions=False) as client:
        rig = Rig(client, Street(ledger, clock), clock, views, folder, audit, access, tokens)
        if not token:
            client.headers.update(rig.headers)
        yield rig
    tokens.close()
    audit.close()
    rollouts.close()
    campaigns.close()
    views.close()
    decisions.close()
    ledger.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """An API over an empty ledger, for one test."""
    with open_rig(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared_rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """An API over an empty ledger, for the tests of a file that change nothing."""
    with open_rig(tmp_path_factory.mktemp("api")) as opened:
        yield opened

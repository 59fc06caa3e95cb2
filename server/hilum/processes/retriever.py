"""The retriever's process: campaigns that run, one thread each.

Of several hosts one holds a campaign, by a lease in the ledger. Another one takes it over when the
lease has lapsed. The lease is in the name of the process's folder in the archive, which is locked.
So the process that follows a killed one on this host goes on at once.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field
from typing import Final

from hilum.backoff import Backoff
from hilum.domain import Campaign, CampaignState
from hilum.errors import ConfigurationError
from hilum.observability import telemetry
from hilum.processes.heartbeat import Heartbeat
from hilum.retrieve.source import ObjectStore, SourceError
from hilum.services.campaigns.gate import Gates
from hilum.services.campaigns.launch import open_runner
from hilum.services.campaigns.object_store import StoreStopped, campaign_store
from hilum.services.ingest import ThrottledNotice
from hilum.services.launch_spec import LaunchSpec, short_host
from hilum.settings import Settings
from hilum.store.campaigns.campaigns import Campaigns
from hilum.store.database.engines import AWAY, error_text
from hilum.store.ledger import Ledger

_LOOK_SECONDS: Final = 1.0
_LEASE_SECONDS: Final = 30.0
_BACKOFF: Final = Backoff(1.0, 60.0)
log = telemetry.logger("processes")


@dataclass(slots=True)
class _Running:
    """A campaign's thread, and its state as the ledger last had it."""

    state: CampaignState
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None


def run(_spec: LaunchSpec, settings: Settings, ledger: Ledger, stop: threading.Event) -> None:
    """Fetch for all campaigns that this process holds, until `stop` is set."""
    notice = ThrottledNotice(lambda reason: log.warning("campaign_waits", reason=reason))
    with (
        Heartbeat(ledger, "retriever"),
        contextlib.closing(Campaigns(settings.ledger_url)) as campaigns,
        campaign_store(settings, stop, notice.say) as store,
    ):
        owner = f"retriever:{short_host(store.process)}"
        gates = Gates(settings, campaigns)
        running: dict[int, _Running] = {}
        try:
            while not stop.is_set():
                _follow(settings, campaigns, owner, store, gates, running)
                stop.wait(_LOOK_SECONDS)
        finally:
            for item in running.values():
                item.stop.set()
            for item in running.values():
                if item.thread is not None:
                    item.thread.join()
            with contextlib.suppress(*AWAY):
                campaigns.give_back(owner)


def _follow(
    settings: Settings,
    campaigns: Campaigns,
    owner: str,
    store: ObjectStore,
    gates: Gates,
    running: dict[int, _Running],
) -> None:
    """Begin and end threads as the ledger says."""
    try:
        held = {item.id: item for item in campaigns.own(owner, _LEASE_SECONDS)}
    except AWAY as error:
        log.warning("campaigns_not_followed", error=error_text(error))
        return
    for number, item in list(running.items()):
        if number in held:
            item.state = held[number].state
        else:
            item.stop.set()
        if item.thread is not None and not item.thread.is_alive():
            del running[number]
    for number, campaign in held.items():
        if number not in running:
            running[number] = _begin(settings, campaigns, campaign, store, gates)


def _begin(
    settings: Settings,
    campaigns: Campaigns,
    campaign: Campaign,
    store: ObjectStore,
    gates: Gates,
) -> _Running:
    item = _Running(campaign.state)
    item.thread = threading.Thread(
        target=_work,
        args=(settings, campaigns, campaign, store, gates, item),
        name=f"campaign-{campaign.id}",
        daemon=True,
    )
    log.info("campaign_begins", campaign=campaign.name, release=campaign.release)
    item.thread.start()
    return item


def _work(
    settings: Settings,
    campaigns: Campaigns,
    campaign: Campaign,
    store: ObjectStore,
    gates: Gates,
    item: _Running,
) -> None:
    """Run one campaign; begin again where ledger, archive, source or its section was away."""
    failures = 0
    while not item.stop.is_set():
        try:
            with open_runner(settings, campaign, store, campaigns, gates) as runner:
                runner.run(item.stop, lambda: item.state)
        except StoreStopped:
            return
        except AWAY as error:
            text = error_text(error)
        except SourceError as error:
            text = error.detail
            with contextlib.suppress(*AWAY):
                campaigns.note(campaign.id, text)
        except ConfigurationError as error:
            text = str(error)
        except OSError as error:
            text = str(error.strerror)
        else:
            return
        failures += 1
        log.warning("campaign_interrupted", campaign=campaign.name, error=text)
        item.stop.wait(_BACKOFF.after(failures))

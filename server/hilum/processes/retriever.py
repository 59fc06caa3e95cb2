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
from hilum.receive.threads import log_failures, start_thread
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
    """A campaign's thread, and its state as the ledger last had it.

    `failure`: the bug that ended the thread.
    """

    state: CampaignState
    stop: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    failure: BaseException | None = None


def run(_spec: LaunchSpec, settings: Settings, ledger: Ledger, stop: threading.Event) -> None:
    """Fetch for all campaigns that this process holds, until `stop` is set.

    A bug in a campaign's thread is raised: the supervisor starts the process again after a pause.
    """
    log_failures()
    notice = ThrottledNotice(lambda reason: log.warning("campaign_waits", reason=reason))
    with (
        Heartbeat(ledger, "retriever"),
        contextlib.closing(Campaigns(settings.ledger_url)) as campaigns,
        campaign_store(settings, stop, notice.say) as store,
        contextlib.closing(
            CampaignThreads(settings, campaigns, f"retriever:{short_host(store.process)}", store)
        ) as threads,
    ):
        while not stop.is_set():
            threads.follow()
            stop.wait(_LOOK_SECONDS)


class CampaignThreads:
    """One thread for each campaign that `owner` holds, as the ledger says."""

    def __init__(
        self, settings: Settings, campaigns: Campaigns, owner: str, store: ObjectStore
    ) -> None:
        self._settings = settings
        self._campaigns = campaigns
        self._owner = owner
        self._store = store
        self._gates = Gates(settings, campaigns)
        self._running: dict[int, _Running] = {}

    def follow(self) -> None:
        """Begin and end threads. Raises RuntimeError if a bug has ended one."""
        try:
            held = {item.id: item for item in self._campaigns.own(self._owner, _LEASE_SECONDS)}
        except AWAY as error:
            log.warning("campaigns_not_followed", error=error_text(error))
            return
        for number, item in list(self._running.items()):
            if number in held:
                item.state = held[number].state
            else:
                item.stop.set()
            if item.thread is not None and not item.thread.is_alive():
                del self._running[number]
                if item.failure is not None:
                    raise RuntimeError("the thread of a campaign has ended") from item.failure
        for number, campaign in held.items():
            if number not in self._running:
                self._begin(campaign)

    def close(self) -> None:
        """End all threads, and give the leases back."""
        for item in self._running.values():
            item.stop.set()
        for item in self._running.values():
            if item.thread is not None:
                item.thread.join()
        with contextlib.suppress(*AWAY):
            self._campaigns.give_back(self._owner)

    def _begin(self, campaign: Campaign) -> None:
        self._running[campaign.id] = item = _Running(campaign.state)
        log.info("campaign_begins", campaign=campaign.name, release=campaign.release)
        item.thread = start_thread(f"campaign-{campaign.id}", self._run, campaign, item)

    def _run(self, campaign: Campaign, item: _Running) -> None:
        """Work on one campaign, and keep a bug for the process's main thread."""
        try:
            self._work(campaign, item)
        except BaseException as error:
            item.failure = error
            raise

    def _work(self, campaign: Campaign, item: _Running) -> None:
        """Run one campaign; begin again where ledger, archive, source or its section was away."""
        failures = 0
        while not item.stop.is_set():
            try:
                with open_runner(
                    self._settings, campaign, self._store, self._campaigns, self._gates
                ) as runner:
                    runner.run(item.stop, lambda: item.state)
            except StoreStopped:
                return
            except AWAY as error:
                text = error_text(error)
            except SourceError as error:
                text = error.detail
                with contextlib.suppress(*AWAY):
                    self._campaigns.note(campaign.id, text)
            except ConfigurationError as error:
                text = str(error)
            except OSError as error:
                text = str(error.strerror)
            else:
                return
            failures += 1
            log.warning("campaign_interrupted", campaign=campaign.name, error=text)
            item.stop.wait(_BACKOFF.after(failures))

"""The objects that the routes work with; `create_app` hands them over once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from fastapi import Depends, Request

from hilum.api.auth.access import Access
from hilum.api.readiness import ROLES, Role
from hilum.api.status import Observer
from hilum.domain import Campaign, CampaignOptions, Release, Rollout
from hilum.settings import Destination, Settings
from hilum.store.admin.decisions import Decisions
from hilum.store.admin.operator import Completed, Forgotten
from hilum.store.audit.log import AuditLog, Deed
from hilum.store.queries.campaigns import CampaignProgress
from hilum.store.queries.views import LedgerViews
from hilum.store.queue.resend import Resent
from hilum.store.rollouts.rules import RolloutRequest
from hilum.withheld_reports import WithholdingCause, in_place, refusals

if TYPE_CHECKING:
    from hilum.api.identifiers import IdentifierViews
    from hilum.api.stow_store import Store


class Requeue(Protocol):
    """The ledger's verb: ended items of a stage become due again; how many."""

    def __call__(
        self,
        stage: str,
        *,
        reason: str | None,
        study_uid: str | None,
        destination_name: str | None,
        among: Mapping[str, Destination],
        deed: Deed,
    ) -> int:
        """Requeue items that match all arguments that are given.

        Only deliveries to destinations in `among` are requeued.
        """
        ...


Probe = Callable[[str], Mapping[str, Any]]
"""Asks a destination of the settings for its terms; the fields of `probing.ProbeAnswer`."""


class Interventions(Protocol):
    """The interventions of a person."""

    def complete(self, study_uid: str, *, is_waiting: bool, deed: Deed | None) -> Completed | None:
        """End a study's quiet period now; None: there is no such study."""
        ...

    def pause(self, name: str, *, is_paused: bool, deed: Deed | None) -> None:
        """Stop or resume deliveries to a destination."""
        ...

    def resend(
        self,
        study_uid: str,
        sop_instance_uid: str | None,
        destination_name: str | None,
        deed: Deed | None,
    ) -> Resent | None:
        """Send delivered documents of a study again.

        None: there is no such study, or it has no such document.
        """
        ...

    def forget(self, name: str, deed: Deed | None) -> Forgotten:
        """Discard everything that waits for a destination that is no longer in the settings."""
        ...

    def forget_commitments(self, calling_ae_title: str, deed: Deed | None) -> int:
        """Give up the dead reports of storage commitment that this AE Title is owed; how many."""
        ...

    def erase(
        self, patient_id: str, issuer: str | None, *, is_dry_run: bool, deed: Deed | None
    ) -> Mapping[str, Any]:
        """Erase a patient; the fields of `intervening.ErasedAnswer`."""
        ...

    def erase_study(
        self, study_uid: str, *, is_dry_run: bool, deed: Deed | None
    ) -> Mapping[str, Any]:
        """Erase one study; the same fields."""
        ...


class RolloutOperations(Protocol):
    """The operations of a person on rollouts.

    A verb raises `CannotRollOut`, which names the remedy.
    """

    def start(
        self, alias: str, release: str, order: RolloutRequest, who: str, deed: Deed | None
    ) -> Rollout:
        """Have a release loaded and proved beside the one that reads."""
        ...

    def promote(self, alias: str, fraction: float | None, who: str, deed: Deed | None) -> Rollout:
        """One step further."""
        ...

    def roll_back(self, alias: str, who: str, *, is_pending: bool, deed: Deed | None) -> Rollout:
        """Go one step back; `is_pending`: also for studies that are not reported yet."""
        ...

    def stop(self, alias: str, who: str, deed: Deed | None) -> Rollout:
        """End the rollout; the serving release continues alone."""
        ...

    def list(self) -> Sequence[Mapping[str, Any]]:
        """The fields of `rollouts.RolloutAnswer`."""
        ...

    def show(self, alias: str) -> Mapping[str, Any] | None:
        """Return the fields of `rollouts.RolloutDetail`; None: no such alias."""
        ...


class CampaignOperations(Protocol):
    """The operations of a person on campaigns.

    A verb raises `CannotRun`, which names the remedy.
    """

    def run(self, name: str, release: str, options: CampaignOptions, deed: Deed | None) -> Campaign:
        """Begin a planned campaign by a release that could be loaded now."""
        ...

    def change(self, name: str, verb: str, deed: Deed | None) -> Campaign:
        """Pause, resume or cancel a campaign."""
        ...

    def retry(self, name: str, deed: Deed | None) -> int:
        """Begin the dead series again, and return their number."""
        ...


CampaignEnd = Callable[[CampaignProgress], float | None]
"""Says when a campaign will end, with its hours, in seconds since the epoch; None: unknown."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The shared objects of one application.

    `default_roles`: the roles that /health/ready judges by default, and /metrics always. `host`:
    only heartbeats of this host count. `machine`: the identity of this one. `identifiers`: search
    and display of patient identifiers; None: off. `shared_seconds`: the longest age of a scrape, or
    of the facts of readiness, that serves another request.
    """

    settings: Settings
    views: LedgerViews
    metrics_directory: str
    releases: Mapping[str, Release]
    access: Access
    requeue: Requeue | None = None
    result_schema: Path | None = None
    default_roles: tuple[Role, ...] = ROLES
    host: str | None = None
    machine: str = ""
    clock: Callable[[], float] = time.time
    probe: Probe | None = None
    decisions: Decisions | None = None
    interventions: Interventions | None = None
    rollouts: RolloutOperations | None = None
    campaigns: CampaignOperations | None = None
    store: Store | None = None
    audit: AuditLog | None = None
    identifiers: IdentifierViews | None = None
    shared_seconds: float = 1.0
    estimate: CampaignEnd | None = None

    def campaign_end(self, found: CampaignProgress) -> float | None:
        """Return when a campaign will end: by `estimate`, or at its rate if it has no hours."""
        if self.estimate is not None:
            return self.estimate(found)
        source = self.settings.sources.get(found.campaign.source)
        hours = found.campaign.options.hours
        if hours is None and source is not None:
            hours = source.hours
        left = found.seconds_left
        return None if hours or left is None else self.clock() + left

    def refusals(self, rollouts: Iterable[Mapping[str, Any]]) -> list[WithholdingCause]:
        """Reports that the settings withhold, of releases that read now or by `rollouts`."""
        return refusals(self.settings, in_place(self.settings, self.releases, rollouts))

    @property
    def observer(self) -> Observer:
        """Looks at this installation's state."""
        return Observer(
            self.settings, self.views, self.clock, self.host, self.default_roles, self.machine
        )


async def _parts(request: Request) -> Dependencies:
    parts: Dependencies = request.app.state.parts
    return parts


PartsHere = Annotated[Dependencies, Depends(_parts)]

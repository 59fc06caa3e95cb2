"""The state at this moment, gathered for readiness and for /metrics."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hilum.api.certificates import authorities, own_certificates
from hilum.api.readiness import FAILING_SECONDS, ROLES, STALE_SECONDS, ReadinessFacts, Role, checks
from hilum.dicom.own_certificate import all_expire_at, expires_at
from hilum.domain import CampaignState, Host, HostFault, SeriesState, host_problems
from hilum.errors import Retry
from hilum.observability.telemetry import Sample
from hilum.settings import Destination, Settings
from hilum.store.archive.archive import Archive, Free
from hilum.store.queries.campaigns import CampaignOverview
from hilum.store.queries.views import LedgerViews
from hilum.withheld_reports import BY_REASON

Item = Mapping[str, Any]
# a destination that is no longer configured: names are labels only while they are bounded
_OTHER = "other"
_CAMPAIGNS = 20  # their names are labels
_DAY_SECONDS = 86400.0
_HOUR_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Observer:
    """Looks at the ledger, its heartbeats and the disk.

    `host` given: only processes of that host count, which judges its own `roles`. `machine`: the
    identity of this one.
    """

    settings: Settings
    views: LedgerViews
    clock: Callable[[], float]
    host: str | None = None
    roles: tuple[Role, ...] = ROLES
    machine: str = ""

    def facts(self) -> ReadinessFacts:
        """Return the facts behind readiness; a ledger that does not answer is one of them."""
        try:
            processes = self.views.processes()
            destinations = self.views.destinations()
            failing = self.views.failing(self.clock() - FAILING_SECONDS)
            hosts = self.views.hosts()
            is_read_only = self.views.is_read_only()
        except Retry as error:
            return ReadinessFacts(error.detail, self.free(), self.settings.receive)
        facts = self.judge(processes, destinations, failing, hosts)
        return replace(facts, is_read_only=is_read_only)

    def judge(
        self,
        processes: Sequence[Item],
        destinations: Sequence[Item],
        failing: Sequence[Item],
        hosts: Sequence[Host],
    ) -> ReadinessFacts:
        """Return the same from answers that the ledger has given already."""
        paused = {item["name"] for item in destinations if item["is_paused"]}
        counts = {item["destination"]: item["items"] for item in failing}
        return ReadinessFacts(
            None,
            self.free(),
            self.settings.receive,
            processes,
            paused,
            counts,
            self.settings.destinations,
            self.host,
            hosts,
            self.machine,
            self.settings.ledger.clock_tolerance_seconds,
        )

    def free(self) -> Free | None:
        """Return the free space of the file system that holds, or will hold, the archive.

        None: its file system fails, as a dead mount does.
        """
        try:
            return Archive(self.settings.archive_dir).free()
        except OSError:
            return None

    def samples(self) -> Iterator[Sample]:
        """Values of `telemetry.STATE_GAUGES`."""
        facts = self.facts()
        yield from _of_facts(facts, self.roles)
        yield from _of_certificates(self.settings)
        if facts.ledger_problem is not None:
            return
        yield from _of_hosts(facts)
        if self.settings.archive.url:  # the folder is the spool
            waiting = sum(1 for _ in Archive(self.settings.archive_dir).unindexed())
            yield "hilum_archive_spool_objects", (), waiting
        yield "hilum_archive_pressure_bytes", (), self.settings.retention.pressure_free_bytes
        yield from self._of_work()
        yield from self._of_installation()
        for found in self.views.watched_campaigns(_CAMPAIGNS, _DAY_SECONDS):
            yield from _of_campaign(found)

    def _of_work(self) -> Iterator[Sample]:
        known = set(self.settings.destinations)
        yield from _of_queues(self.views.queues(), known)
        yield from _of_stuck(self.views.stuck(), known)
        yield from _of_withheld(self.views.withheld({}), known)
        recent = self.views.priorities_since(self.clock() - _HOUR_SECONDS)
        for priority, count in recent.items():
            yield "hilum_recent_studies", (priority.name.lower(),), count
        yield from _of_uncommitted(self.views.uncommitted(), self.settings.destinations)

    def _of_installation(self) -> Iterator[Sample]:
        for reason, is_held in self.views.retention_state().held.items():
            yield "hilum_retention_held", (reason,), is_held
        for item in self.views.rollouts():
            yield "hilum_rollout", _labels_of(item), 1
        totals = self.views.totals()
        yield "hilum_studies_recorded", (), totals["studies"]
        yield "hilum_instances_recorded", (), totals["instances"]


def _of_facts(facts: ReadinessFacts, roles: Iterable[Role]) -> Iterator[Sample]:
    yield "hilum_ledger_up", (), facts.ledger_problem is None
    yield "hilum_archive_free_bytes", (), facts.free.bytes if facts.free else 0
    yield "hilum_archive_reserve_bytes", (), facts.limits.reserve_bytes
    yield "hilum_archive_reject_bytes", (), facts.limits.reject_below_bytes
    free_files = facts.free.files if facts.free else 0
    if free_files is not None:
        yield "hilum_archive_free_files", (), free_files
    yield "hilum_archive_reserve_files", (), facts.limits.reserve_files
    for role in roles:
        yield "hilum_role_ready", (role,), all(check.ok for check in checks(role, facts))
    for name in sorted(facts.destinations):
        yield "hilum_destination_paused", (name,), name in facts.paused
    yield from _of_processes(facts)


def _of_hosts(facts: ReadinessFacts) -> Iterator[Sample]:
    """Yield clocks of hosts that are alive, and counts of faults, zeros too.

    Of several servers of one host name the clock that differs most.
    """
    offsets: dict[str, float] = {}
    for host in facts.hosts:
        offset = host.facts.clock_offset_seconds
        if host.is_alive and offset is not None:
            offsets[host.host] = max(offset, offsets.get(host.host, 0.0), key=abs)
    for name, offset in offsets.items():
        yield "hilum_clock_offset_seconds", (name,), offset
    problems = host_problems(facts.hosts, facts.clock_tolerance_seconds)
    counts = Counter(problem.fault for problem in problems)
    for fault in HostFault:
        yield "hilum_host_problems", (fault,), counts[fault]


def _of_processes(facts: ReadinessFacts) -> Iterator[Sample]:
    alive = [item for item in facts.processes if item["age_seconds"] <= STALE_SECONDS]
    ready = Counter(item["role"] for item in alive if item["is_ready"])
    for role, count in Counter(item["role"] for item in alive).items():
        yield "hilum_processes", (role,), count
        yield "hilum_processes_ready", (role,), ready[role]


def _of_certificates(settings: Settings) -> Iterator[Sample]:
    """Yield the end of certificates that can be read; `hilum check` reports the other files.

    Of several authorities in a file the next end counts, of those that have not ended.
    """
    name = "hilum_certificate_expiry_timestamp_seconds"
    for section, file in own_certificates(settings).items():
        with contextlib.suppress(OSError):
            yield name, (section,), expires_at(file)
    for section, file in authorities(settings).items():
        with contextlib.suppress(OSError):
            ends = all_expire_at(file)
            holding = [moment for moment in ends if moment > time.time()]
            yield name, (f"{section} CA",), min(holding, default=max(ends))


def _of_queues(queues: Sequence[Mapping[str, Any]], known: set[str]) -> Iterator[Sample]:
    depth: Counter[tuple[str, ...]] = Counter()
    oldest: dict[tuple[str, ...], float] = {}
    for item in queues:
        place = (item["stage"], item["priority"], _label(item["destination"], known))
        for state in ("due", "waiting", "leased"):
            depth[(*place, state)] += item[state]
        oldest[place] = max(oldest.get(place, 0.0), item["oldest_age_seconds"])
    yield from (("hilum_queue_items", labels, count) for labels, count in depth.items())
    yield from (("hilum_queue_oldest_age_seconds", labels, age) for labels, age in oldest.items())


def _of_stuck(stuck: Iterable[Mapping[str, Any]], known: set[str]) -> Iterator[Sample]:
    """Zeros too: an alert on a series that vanishes never resolves."""
    stages = ("analyse", "assemble", "compare", "report", "commit")
    always = [*((stage, "") for stage in stages), *(("deliver", name) for name in sorted(known))]
    counts = Counter(dict.fromkeys(always, 0))
    for item in stuck:
        counts[item["stage"], _label(item["destination"], known)] += item["items"]
    yield from (("hilum_stuck_items", labels, count) for labels, count in counts.items())


def _of_withheld(withheld: Iterable[Mapping[str, Any]], known: set[str]) -> Iterator[Sample]:
    counts = Counter({(name, reason): 0 for name in sorted(known) for reason in BY_REASON})
    for item in withheld:
        counts[_label(item["destination"], known), item["reason"]] += item["items"]
    yield from (("hilum_withheld_documents", labels, count) for labels, count in counts.items())


def _of_uncommitted(
    found: Mapping[str, tuple[int, float]], destinations: Mapping[str, Destination]
) -> Iterator[Sample]:
    """Zeros too, for destinations that are asked for storage commitment."""
    for name in sorted(name for name, item in destinations.items() if item.commitment_scps):
        count, age = found.get(name, (0, 0.0))
        yield "hilum_uncommitted_documents", (name,), count
        yield "hilum_uncommitted_oldest_age_seconds", (name,), age


def _of_campaign(found: CampaignOverview) -> Iterator[Sample]:
    """Zeros too, so that the increase of a state is known from its first series on."""
    name = found.campaign.name
    source = found.campaign.source
    for campaign_state in CampaignState:
        is_now = found.campaign.state is campaign_state
        yield "hilum_campaign_state", (name, source, campaign_state), is_now
    for state in SeriesState:
        yield "hilum_campaign_series", (name, state), found.counts.series.get(state, 0)
    for label, number in _images_of(found).items():
        yield "hilum_campaign_images", (name, label), number


def _images_of(found: CampaignOverview) -> dict[str, int]:
    """Return images by state; each image counts once."""
    counts = found.counts
    read = counts.images_analysed + counts.images_not_analysed
    return {
        "expected": counts.images_expected - counts.images_received - found.images_missing,
        "received": counts.images_received - read,
        "analysed": counts.images_analysed,
        "not_analysed": counts.images_not_analysed,
        "missing": found.images_missing,
    }


def _labels_of(item: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(item[name] or "" for name in ("alias", "serving", "candidate", "mode", "state"))


def _label(destination: str | None, known: set[str]) -> str:
    if destination is None:
        return ""
    return destination if destination in known else _OTHER

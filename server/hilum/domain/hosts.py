"""Hosts of one installation: the facts of each, and the faults among them."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

ALIVE_SECONDS: Final = 15.0
"""A host counts as alive for this long after its last heartbeat: five of them."""
NO_ARCHIVE: Final = "none"
"""In place of an archive's identity: the host sees no archive of this installation."""
SILENT_ARCHIVE: Final = "silent"
"""In place of an archive's identity: it cannot be read, or does not answer."""
_NOT_SHOWN: Final = ("facts", "is_alone")


class HostFault(StrEnum):
    """A fault between hosts. The list is closed: it is a label of a metric."""

    CLOCK = "clock"
    NAME = "name"
    VERSION = "version"
    SETTINGS = "settings"
    ARCHIVE = "archive"


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Facts of a server and its host.

    `machine`: identity of the machine or container, whichever name it has; empty: not known.
    `revision`: of the ledger, as this version needs it. `settings`: subject to digest, of settings
    that must be the same on all hosts. `archive`: its identity, `NO_ARCHIVE` or `SILENT_ARCHIVE`;
    None: this server needs no archive. Clock: None where the ledger has no clock of its own
    (SQLite).
    """

    machine: str = ""
    roles: str = ""
    version: str = ""
    revision: str = ""
    clock_offset_seconds: float | None = None
    round_trip_seconds: float | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    archive: str | None = None

    def dump(self) -> str:
        """Return JSON for the heartbeat."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def load(cls, text: str) -> HostFacts:
        """Return the facts of a heartbeat. Fields that this version does not know are left out."""
        known = cls.__dataclass_fields__
        return cls(**{name: value for name, value in json.loads(text).items() if name in known})

    @property
    def clock_error_seconds(self) -> float:
        """The part of the clock's offset that the round trip cannot explain; positive: ahead."""
        if self.clock_offset_seconds is None:
            return 0.0
        half = (self.round_trip_seconds or 0.0) / 2
        offset = self.clock_offset_seconds
        return max(offset - half, 0.0) + min(offset + half, 0.0)

    @property
    def settings_digest(self) -> str:
        """One short digest of all subjects, for people to compare."""
        text = json.dumps(dict(self.settings), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:8] if self.settings else ""


@dataclass(frozen=True, slots=True)
class Host:
    """A server of the installation: its supervisor's last heartbeat.

    `age_seconds`: since that heartbeat, with the host's clock error taken off. `processes`: those
    of this server's host that are alive, by role; `ready`: those that can work. `is_alone`: no
    other machine writes the same heartbeat.
    """

    name: str
    host: str
    pid: int
    started_at: float
    beat_at: float
    age_seconds: float
    facts: HostFacts
    processes: Mapping[str, int] = field(default_factory=dict)
    ready: Mapping[str, int] = field(default_factory=dict)
    is_alone: bool = True

    @property
    def key(self) -> tuple[str, str]:
        """Its name and its machine: either alone may be that of another one, too."""
        return self.host, self.facts.machine

    @property
    def is_alive(self) -> bool:
        """Whether its last heartbeat is fresh."""
        return self.age_seconds <= ALIVE_SECONDS


@dataclass(frozen=True, slots=True)
class HostProblem:
    """A fault of one host, in words that follow its name, and the remedy."""

    fault: HostFault
    host: str
    machine: str
    detail: str
    advice: str

    @property
    def key(self) -> tuple[str, str]:
        """As that of the host."""
        return self.host, self.machine


def host_problems(hosts: Sequence[Host], tolerance_seconds: float) -> list[HostProblem]:
    """Return the faults among the hosts that are alive.

    `tolerance_seconds`: of the difference between a host's clock and the ledger's.
    """
    alive = [host for host in hosts if host.is_alive]
    found = [
        *_clocks(alive, tolerance_seconds),
        *_names(alive),
        *_versions(alive),
        *_settings(alive),
        *_archives(alive),
    ]
    return list(dict.fromkeys(found))


def host_items(hosts: Sequence[Host], tolerance_seconds: float) -> list[dict[str, Any]]:
    """Return hosts as JSON values, each with its problems, those that are alive first."""
    problems = host_problems(hosts, tolerance_seconds)
    return [
        {
            **{name: value for name, value in asdict(host).items() if name not in _NOT_SHOWN},
            **{name: value for name, value in asdict(host.facts).items() if name != "machine"},
            "settings_digest": host.facts.settings_digest,
            "is_alive": host.is_alive,
            "problems": [
                {"fault": item.fault.value, "detail": item.detail, "advice": item.advice}
                for item in problems
                if host.is_alive and item.key == host.key
            ],
        }
        for host in sorted(hosts, key=lambda host: (not host.is_alive, host.name))
    ]


def is_namesake(later: Host, earlier: Host) -> bool:
    """Return whether `later` has taken the name of another machine, which began before."""
    return (
        later.host == earlier.host
        and "" not in (later.facts.machine, earlier.facts.machine)
        and later.facts.machine != earlier.facts.machine
        and (later.started_at, later.facts.machine) > (earlier.started_at, earlier.facts.machine)
    )


def has_taken_name(hosts: Sequence[Host], machine: str) -> bool:
    """Return whether this machine works under a name that another one had before."""
    alive = [host for host in hosts if host.is_alive]
    own = [host for host in alive if host.facts.machine == machine]
    return any(is_namesake(mine, other) for mine in own for other in alive)


def _problem(fault: HostFault, host: Host, detail: str, advice: str) -> HostProblem:
    return HostProblem(fault, host.host, host.facts.machine, detail, advice)


def _clocks(alive: Sequence[Host], tolerance_seconds: float) -> Iterator[HostProblem]:
    advice = "Keep time by NTP on every host, the database's included; `hilum check` there says it."
    for host in alive:
        error = host.facts.clock_error_seconds
        if abs(error) > tolerance_seconds:
            side = "ahead of" if error > 0 else "behind"
            detail = f"its clock is {abs(error):.0f} s {side} the ledger's"
            yield _problem(HostFault.CLOCK, host, detail, advice)


def _names(alive: Sequence[Host]) -> Iterator[HostProblem]:
    advice = "Give each host a name of its own (hostnamectl, or the container's hostname)."
    for host in alive:
        others = {
            other.facts.machine
            for other in alive
            if is_namesake(host, other) or is_namesake(other, host)
        }
        if others or not host.is_alone:
            detail = (
                f"{max(len(others), 1) + 1} machines have this name, and take each other's leases"
            )
            yield _problem(HostFault.NAME, host, detail, advice)


def _versions(alive: Sequence[Host]) -> Iterator[HostProblem]:
    known = [host for host in alive if host.facts.version]
    newest = max((_order(host.facts.version) for host in known), default=())
    for host in known:
        if _order(host.facts.version) < newest:
            latest = next(other for other in known if _order(other.facts.version) == newest)
            detail = f"it runs version {host.facts.version}, {latest.host} {latest.facts.version}"
            yield _problem(HostFault.VERSION, host, detail, "Install one version on all hosts.")


def _order(version: str) -> tuple[tuple[int, str], ...]:
    """Return a key by which numbers of versions compare as numbers."""
    parts = version.replace("-", ".").replace("+", ".").split(".")
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)


def _settings(alive: Sequence[Host]) -> Iterator[HostProblem]:
    """Compare hosts of one version: a new version has new settings."""
    advice = "Give all hosts the same settings, then restart the one that differs."
    for host in alive:
        peers = [other for other in alive if other.facts.version == host.facts.version]
        differing = [
            subject
            for subject, digest in host.facts.settings.items()
            if _is_odd(digest, [peer.facts.settings.get(subject, digest) for peer in peers])
        ]
        if differing:
            detail = f"its settings differ from those of other hosts in {', '.join(differing)}"
            yield _problem(HostFault.SETTINGS, host, detail, advice)


def _archives(alive: Sequence[Host]) -> Iterator[HostProblem]:
    mount = "Mount the archive of the other hosts at archive/ in its state folder, and restart it."
    look = "Look at its mount, or at the object store; its log (archive_not_seen) names an error."
    using = [host for host in alive if host.facts.archive is not None]
    seen = [
        host.facts.archive
        for host in using
        if host.facts.archive not in (NO_ARCHIVE, SILENT_ARCHIVE, None)
    ]
    for host in using:
        archive = host.facts.archive or NO_ARCHIVE
        if archive == SILENT_ARCHIVE:
            detail = "its archive does not answer, or cannot be read"
        elif archive == NO_ARCHIVE and seen:
            detail = "it sees no archive, and other hosts do"
        elif archive != NO_ARCHIVE and _is_odd(archive, seen):
            detail = "it has another archive than other hosts"
        else:
            continue
        advice = look if archive == SILENT_ARCHIVE else mount
        yield _problem(HostFault.ARCHIVE, host, detail, advice)


def _is_odd(value: str | None, all_values: Sequence[str | None]) -> bool:
    """Return whether a value is not that of most; with two of equal weight, both are odd."""
    counts = Counter(all_values)
    return any(other != value and count >= counts[value] for other, count in counts.items())

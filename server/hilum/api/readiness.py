"""Whether each role can do its work.

Pure judgement over heartbeats, disk and destinations, for each role.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from hilum.domain import Host, has_taken_name, host_problems
from hilum.settings import Receive
from hilum.store.archive.archive import Free
from hilum.store.database.engines import DAMAGED, READ_ONLY, RESTORE

Role = Literal["receive", "analyse", "deliver"]
ROLES: tuple[Role, ...] = get_args(Role)
STALE_SECONDS = 15.0
FAILING_SECONDS = 60.0

_PROCESS: Mapping[Role, str] = {
    "receive": "listener",
    "analyse": "analyser",
    "deliver": "dispatcher",
}


@dataclass(frozen=True, slots=True)
class ReadinessCheck:
    """A condition of readiness; `advice` holds the remedy when it is not ok."""

    name: str
    ok: bool
    detail: str
    advice: str | None = None


@dataclass(frozen=True, slots=True)
class ReadinessFacts:
    """The facts at one moment.

    `ledger_problem` None: the ledger answers. `host` None: processes of every host count. `free` of
    the archive's file system; None: that fails. `limits` are its watermarks. `machine`: the
    identity of this host.
    """

    ledger_problem: str | None
    free: Free | None
    limits: Receive
    processes: Sequence[Mapping[str, Any]] = ()
    paused: Collection[str] = ()
    failing: Mapping[str, int] = field(default_factory=dict)
    destinations: Collection[str] = ()
    host: str | None = None
    hosts: Sequence[Host] = ()
    machine: str = ""
    clock_tolerance_seconds: float = 2.0
    is_read_only: bool = False


def checks(role: Role, facts: ReadinessFacts) -> list[ReadinessCheck]:
    """All checks of a role, the failed ones too.

    Inference is no concern of `receive`: routers must always find the listener.
    """
    found = [_ledger(facts), _process(_PROCESS[role], facts)]
    if facts.hosts:
        found.append(_hosts(facts))
    if role == "receive":
        found.append(_disk(facts))
    if role == "deliver":
        found += [_destination(name, facts) for name in sorted(facts.destinations)]
    return found


def _ledger(facts: ReadinessFacts) -> ReadinessCheck:
    if facts.is_read_only:
        advice = "Promote the standby, or name the primary in ledger.url."
        return ReadinessCheck("ledger", ok=False, detail=READ_ONLY, advice=advice)
    if facts.ledger_problem is None:
        return ReadinessCheck("ledger", ok=True, detail="the ledger answers")
    advice = (
        RESTORE
        if facts.ledger_problem == DAMAGED
        else "Check ledger.url and its database; `hilum check` says more."
    )
    return ReadinessCheck("ledger", ok=False, detail=facts.ledger_problem, advice=advice)


def _process(process: str, facts: ReadinessFacts) -> ReadinessCheck:
    of_role = [
        item
        for item in facts.processes
        if item["role"] == process and facts.host in (None, item["host"])
    ]
    alive = [item for item in of_role if item["age_seconds"] <= STALE_SECONDS]
    ready = [item for item in alive if item["is_ready"]]
    if ready:
        # A ready process may name a missing part, such as one Triton of several.
        missing = [item["detail"] for item in ready if item["detail"]]
        detail = "; ".join([f"{len(ready)} of {len(alive)} ready", *missing])
        return ReadinessCheck(process, ok=True, detail=detail)
    if alive:
        detail = "; ".join(f"{item['name']}: {item['detail'] or 'not ready'}" for item in alive)
        advice = f"The {process} runs but cannot work yet; its log says why."
        return ReadinessCheck(process, ok=False, detail=detail, advice=advice)
    return _dead(process, [item["age_seconds"] for item in of_role])


def _dead(process: str, ages: Sequence[float]) -> ReadinessCheck:
    """Return the check of a role without a live process, with the ages of the last heartbeats."""
    seen = f"last seen {min(ages):.0f} s ago" if ages else "never seen"
    return ReadinessCheck(
        process,
        ok=False,
        detail=f"no {process} is alive, {seen}",
        advice=f"Start `hilum serve` with this role, or read the {process}'s log.",
    )


def _hosts(facts: ReadinessFacts) -> ReadinessCheck:
    """Return the faults among hosts. They are notes, but for a name that another machine had.

    A load balancer has to leave that machine, and no other one.
    """
    problems = [
        problem
        for problem in host_problems(facts.hosts, facts.clock_tolerance_seconds)
        if facts.host is None or problem.key == (facts.host, facts.machine)
    ]
    count = len({host.key for host in facts.hosts if host.is_alive})
    detail = "; ".join(
        [f"{count} alive", *(f"{problem.host}: {problem.detail}" for problem in problems)]
    )
    advice = " ".join(dict.fromkeys(problem.advice for problem in problems)) or None
    is_own = not has_taken_name(facts.hosts, facts.machine)
    return ReadinessCheck("hosts", is_own, detail, advice)


def _disk(facts: ReadinessFacts) -> ReadinessCheck:
    if (free := facts.free) is None:
        return ReadinessCheck(
            "disk",
            ok=False,
            detail="the archive's file system fails",
            advice="Mount it again; the log has its error.",
        )
    reserve = facts.limits.reserve_bytes
    reject = facts.limits.reject_below_bytes
    detail = f"{free.bytes / 1e9:.1f} GB free, {reserve / 1e9:.1f} GB reserved"
    if free.bytes <= reject:
        setting = "receive.reserve_bytes"
        if free.bytes > reserve:
            detail += f"; below {reject / 1e9:.1f} GB new associations are rejected"
            setting = "receive.reject_bytes"
        return ReadinessCheck(
            "disk",
            ok=False,
            detail=detail,
            advice=f"Free space in the archive's file system, or lower {setting}.",
        )
    if free.files is not None and free.files < facts.limits.reject_below_files:
        detail = (
            f"{free.files} inodes free; below {facts.limits.reject_below_files} new associations"
            " are rejected"
        )
        advice = "Delete files in the archive's file system, or lower receive.reserve_files."
        return ReadinessCheck("disk", ok=False, detail=detail, advice=advice)
    return ReadinessCheck("disk", ok=True, detail=detail)


def _destination(name: str, facts: ReadinessFacts) -> ReadinessCheck:
    title = f"destination {name}"
    if name in facts.paused:
        return ReadinessCheck(
            title,
            ok=False,
            detail="paused",
            advice=f"Resume it when its receiver is back: `hilum destinations resume {name}`.",
        )
    if count := facts.failing.get(name):
        advice = (
            "`hilum destinations list` and the page Destinations say what was met; Hilum goes on"
            " trying."
        )
        return ReadinessCheck(
            title,
            ok=False,
            detail=f"{count} documents not taken for {FAILING_SECONDS:.0f} s or longer",
            advice=advice,
        )
    return ReadinessCheck(title, ok=True, detail="in use")

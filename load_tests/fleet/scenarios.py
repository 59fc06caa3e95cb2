"""The faults of the fleet, as a table: what is done to it while studies come in."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from load_tests.fleet.fleet import Fleet
from load_tests.fleet.host import HostDown
from load_tests.fleet.link import SLOW
from load_tests.fleet.servers import THIS
from load_tests.fleet.topology import SERVERS
from load_tests.proof.street.street import wait_for

# Longer than the leases and heartbeats that decide a takeover, seconds.
_HOLD_SECONDS = 20.0
_SKEW_SECONDS = 300
_FIRST_DELIVERY_SECONDS = 60.0
# `hilum migrate` counts a process as gone that has been silent for so long.
_SILENT_SECONDS = 11.0
_REFUSAL = "Stop each `hilum serve`"


class FaultFailed(Exception):
    """The fault did not do to the fleet what it is for, so a verdict would prove nothing."""


@dataclass(frozen=True, slots=True)
class FleetScenario:
    """`fault` disturbs the fleet and returns what it did, as figures, or raises FaultFailed.

    `restore` makes the fleet whole again after the verdict. `may_report_twice`: rows of the ledger
    are lost with the fault, so studies are reported anew, under other UIDs. How many documents are
    without a row then is a figure, not a goal.
    """

    what: str
    fault: Callable[[Fleet], Mapping[str, Any]]
    restore: Callable[[Fleet], None] = lambda _: None
    may_report_twice: bool = False


def cut(name: str) -> Callable[[Fleet], Mapping[str, Any]]:
    """A cable is pulled, and plugged in again."""

    def fault(fleet: Fleet) -> Mapping[str, Any]:
        fleet.hosts[name].link.cut()
        time.sleep(_HOLD_SECONDS)
        fleet.hosts[name].link.heal()
        return {"cut_seconds": _HOLD_SECONDS}

    return fault


def slow(name: str) -> Callable[[Fleet], Mapping[str, Any]]:
    """A line is narrow and late for a while."""

    def fault(fleet: Fleet) -> Mapping[str, Any]:
        kind = fleet.hosts[name].link.slow()
        time.sleep(_HOLD_SECONDS)
        fleet.hosts[name].link.heal()
        return {"slow_seconds": _HOLD_SECONDS, "slowed_by": " ".join(SLOW[kind])}

    return fault


def kill(name: str) -> Callable[[Fleet], Mapping[str, Any]]:
    """A host loses its power. It stays off until the verdict is given."""

    def fault(fleet: Fleet) -> Mapping[str, Any]:
        fleet.hosts[name].power_off()
        return {}

    return fault


def kill_delivering(fleet: Fleet) -> Mapping[str, Any]:
    """The host whose dispatcher holds the lease of the PACS loses its power."""
    wait_for(fleet.delivering, _FIRST_DELIVERY_SECONDS, "the first delivery")
    owner = fleet.delivering()
    fleet.hosts[owner].power_off()
    return {"host": owner}


def restart_off(fleet: Fleet) -> None:
    """Each host with Hilum that is off comes back."""
    for spec in SERVERS:
        if not fleet.hosts[spec.name].is_on:
            fleet.restart(spec.name)
    fleet.wait_until_ready()


def restart(name: str) -> Callable[[Fleet], None]:
    """The host comes back."""

    def restore(fleet: Fleet) -> None:
        fleet.restart(name)
        fleet.wait_until_ready()

    return restore


def fail_over(fleet: Fleet) -> Mapping[str, Any]:
    """The primary loses its power; a person, or Patroni, promotes the standby."""
    fleet.databases.primary.power_off()
    time.sleep(3.0)
    fleet.databases.promote()
    return {}


def fail_over_unsynchronised(fleet: Fleet) -> Mapping[str, Any]:
    """The same, with a standby that lacks the last commits; then `hilum recover --yes`."""
    fleet.databases.wait_for_standby(is_asked=False)
    fleet.databases.standby.link.cut()
    time.sleep(_HOLD_SECONDS)
    fleet.databases.primary.power_off()
    fleet.databases.standby.link.heal()
    fleet.databases.promote()
    lost = fleet.acknowledged_without_row()
    if not lost:
        raise FaultFailed("the standby lacks no row")
    said = fleet.command("recover", "--yes")
    return {"rows_lost_by_the_standby": lost, "recover": said.strip().splitlines()[-1]}


def replace_standby(fleet: Fleet) -> None:
    """The host that failed follows the new primary."""
    fleet.databases.replace_standby()


def skew(name: str) -> Callable[[Fleet], Mapping[str, Any]]:
    """A host starts anew with a clock that is minutes ahead."""

    def fault(fleet: Fleet) -> Mapping[str, Any]:
        _set_clock(fleet, name, _SKEW_SECONDS)
        time.sleep(_HOLD_SECONDS)
        return {"ahead_seconds": _SKEW_SECONDS}

    return fault


def right_clock(name: str) -> Callable[[Fleet], None]:
    """Its clock is right again."""

    def restore(fleet: Fleet) -> None:
        _set_clock(fleet, name, 0)

    return restore


def _set_clock(fleet: Fleet, name: str, offset_seconds: int) -> None:
    host = fleet.hosts[name]
    host.terminate()
    host.wait_for_end()
    host.clock_offset_seconds = offset_seconds
    fleet.start(name)
    fleet.wait_until_ready()


def upgrade(fleet: Fleet) -> Mapping[str, Any]:
    """Hosts of the former version stop, the ledger is migrated, hosts of this version start."""
    fleet.code = THIS
    refusal = _refusal_to_migrate(fleet)
    for spec in SERVERS:
        fleet.hosts[spec.name].terminate()
    for spec in SERVERS:
        fleet.hosts[spec.name].wait_for_end()
    time.sleep(_SILENT_SECONDS)
    said = fleet.command("migrate").strip()
    for spec in SERVERS:
        fleet.start(spec.name)
    fleet.wait_until_ready()
    return {"migrate_while_they_run": refusal, "migrate": said}


def _refusal_to_migrate(fleet: Fleet) -> str:
    try:
        said = fleet.command("migrate")
    except HostDown as error:
        said = str(error).rpartition("hilum: ")[2]
    if _REFUSAL not in said:
        raise FaultFailed(f"`hilum migrate` was not refused while hosts ran: {said.strip()}")
    return said


UPGRADE = "upgrade"
DELIVERING = "delivering_host"
SCENARIOS: Mapping[str, FleetScenario] = {
    UPGRADE: FleetScenario(
        "from the version before the newest migration: all stop, migrate, all start", upgrade
    ),
    "fail_over": FleetScenario(
        "the primary loses its power, the standby is promoted", fail_over, replace_standby
    ),
    "link_cut": FleetScenario("the cable of a dispatcher is pulled for 20 s", cut("dispatch1")),
    "link_slow": FleetScenario("the line to a listener is slow for 20 s", slow("listen1")),
    "database_link_cut": FleetScenario("the cable of the primary is pulled for 20 s", cut("db1")),
    "listener_host": FleetScenario(
        "a listener's host loses its power", kill("listen1"), restart("listen1")
    ),
    "analyser_host": FleetScenario(
        "an analyser's host loses its power", kill("analyse1"), restart("analyse1")
    ),
    "dispatcher_host": FleetScenario(
        "a dispatcher's host loses its power", kill("dispatch1"), restart("dispatch1")
    ),
    DELIVERING: FleetScenario(
        "the dispatcher's host that delivers to the PACS loses its power",
        kill_delivering,
        restart_off,
    ),
    "triton_host": FleetScenario("a Triton's host loses its power", kill("gpu1"), restart("gpu1")),
    "clock_ahead": FleetScenario(
        "a dispatcher's clock is 300 s ahead", skew("dispatch2"), right_clock("dispatch2")
    ),
    "fail_over_unsynchronised": FleetScenario(
        "the same, with a standby that lacks the last 20 s; then `hilum recover`",
        fail_over_unsynchronised,
        replace_standby,
        may_report_twice=True,
    ),
}

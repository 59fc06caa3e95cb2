"""Hosts of one ledger: what their heartbeats carry, and what a host finds before it starts."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from hilum.domain import SILENT_ARCHIVE, HostFacts, HostFault, host_problems
from hilum.errors import ConfigurationError
from hilum.services import roles
from hilum.services.host_report import host_facts, machine
from hilum.services.launch_spec import process_name
from hilum.settings import LedgerSection, Settings, Site
from hilum.store.archive.archives import open_archive
from hilum.store.archive.consistency import begin_archive
from hilum.store.archive.identity import FILE_NAME
from hilum.store.ledger import Ledger
from hilum.store.queries.views import LedgerViews
from hilum.store.schema import tables
from hilum.supervisor.checks.hosts import other_hosts
from hilum.supervisor.host_monitor import HostMonitor, require_own_name
from tests.support.ledger.database import change
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.machine.waiting import wait_for
from tests.support.server.commands import hilum


def settings_of(url: str, folder: Path, **sections: Any) -> Settings:
    """Settings of a host whose state folder is `folder`."""
    return Settings(site=Site(state_dir=folder), ledger=LedgerSection(url=url), **sections)


def beat(
    ledger: Ledger, facts: HostFacts, host: str = "", pid: int = 7, *, is_ready: bool = True
) -> None:
    """Write the heartbeat of a supervisor, of another host where one is named."""
    name = f"{host or os.uname().nodename}:supervisor:{pid}"
    ledger.beat(name, "supervisor", pid, started_at=1.0, is_ready=is_ready, facts=facts)
    if host:
        change(
            ledger,
            update(tables.process).where(tables.process.c.name == name).values(host=host),
        )


def test_a_heartbeat_carries_what_a_server_says_of_its_host(
    ledger_url: str, tmp_path: Path
) -> None:
    ledger = Ledger(ledger_url)
    monitor = HostMonitor(settings_of(ledger_url, tmp_path), "listener,api")
    facts = monitor.facts(ledger)
    beat(ledger, facts)
    ledger.beat("child", "listener", 8, started_at=1.0, is_ready=True)
    (found,) = ledger.hosts()
    ledger.close()
    assert found.facts == facts
    assert (found.is_alive, found.processes, found.ready) == (
        True,
        {"listener": 1},
        {"listener": 1},
    )
    assert (facts.machine, facts.roles) == (machine(), "listener,api")
    is_measured = facts.clock_offset_seconds is not None
    assert is_measured is not ledger_url.startswith("sqlite")


def test_a_wrong_clock_makes_no_host_look_dead(ledger_url: str, tmp_path: Path) -> None:
    """Its heartbeats are an hour old by its own clock; what it says of that is taken off."""
    if ledger_url.startswith("sqlite"):
        pytest.skip("SQLite has no clock but the host's")
    wrong = Ledger(ledger_url, lambda: time.time() - 3600)
    monitor = HostMonitor(settings_of(ledger_url, tmp_path), roles.ALL)
    beat(wrong, monitor.facts(wrong))
    wrong.close()
    views = LedgerViews(ledger_url)
    (found,) = views.hosts()
    views.close()
    assert found.is_alive
    (problem,) = host_problems([found], 2.0)
    assert problem.fault is HostFault.CLOCK
    assert problem.detail == "its clock is 3600 s behind the ledger's"


def test_a_start_is_refused_while_another_machine_works_under_the_name(ledger_url: str) -> None:
    ledger = Ledger(ledger_url)
    beat(ledger, HostFacts(machine="another"))

    class Waiting(threading.Event):
        """The wait of the start; the other machine beats in it."""

        def wait(self, timeout: float | None = None) -> bool:
            assert timeout
            beat(ledger, HostFacts(machine="another"))
            return False

    with pytest.raises(ConfigurationError, match="another machine works under the name"):
        require_own_name(ledger, Waiting())
    ledger.close()


def test_a_machine_that_died_under_the_name_stops_no_start(ledger_url: str) -> None:
    """As a container that is started again: its former life has left a heartbeat.

    It is deleted. Else the server that starts would not be ready for some seconds.
    """
    ledger = Ledger(ledger_url)
    beat(ledger, HostFacts(machine="a former life"))
    stopped = threading.Event()
    stopped.set()  # nobody waits
    require_own_name(ledger, stopped)
    assert ledger.hosts() == []
    ledger.close()


def test_another_server_of_this_machine_is_not_taken_for_the_dead_one(ledger_url: str) -> None:
    """After the machine has started again it has the process number of the dead one."""
    ledger = Ledger(ledger_url)
    beat(ledger, HostFacts(machine="before the reboot"))

    class Waiting(threading.Event):
        """The wait of the start; another server of this machine begins in it."""

        def wait(self, timeout: float | None = None) -> bool:
            assert timeout
            beat(ledger, HostFacts(machine=machine()))
            return False

    require_own_name(ledger, Waiting())
    ledger.close()


def test_two_servers_of_one_machine_start_at_once(ledger_url: str) -> None:
    ledger = Ledger(ledger_url)
    beat(ledger, HostFacts(machine=machine()))
    require_own_name(ledger, threading.Event())  # it would wait for seconds
    ledger.close()


def test_a_running_server_says_that_another_machine_had_its_name_before(
    ledger_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger(ledger_url)
    monitor = HostMonitor(settings_of(ledger_url, tmp_path), "api")
    beat(ledger, HostFacts(machine="another"))
    own = process_name("supervisor", os.getpid())
    ledger.beat(
        own,
        "supervisor",
        os.getpid(),
        started_at=monitor.started_at,
        is_ready=True,
        facts=monitor.facts(ledger),
    )
    monitor.look(ledger, is_ours=True)
    ledger.close()
    assert "another machine has the name" in monitor.problem
    assert "host_problem" in "".join(capsys.readouterr())


def test_machines_with_equal_process_numbers_hear_of_each_other(
    ledger_url: str, tmp_path: Path
) -> None:
    """They write one row. Metrics, and so the alert, are about what it says."""
    ledger = Ledger(ledger_url)
    monitor = HostMonitor(settings_of(ledger_url, tmp_path), "api")
    monitor.look(ledger, is_ours=False)
    assert monitor.problem == "", "an earlier owner of the name does not matter"
    monitor._next_look = 0.0
    monitor.look(ledger, is_ours=False)
    assert "the process number" in monitor.problem
    beat(ledger, monitor.facts(ledger), is_ready=not monitor.problem)
    (problem,) = host_problems(ledger.hosts(), 2.0)
    assert problem.fault is HostFault.NAME
    assert problem.detail.startswith("2 machines have this name")
    ledger.close()


def test_a_fault_of_this_host_is_logged_once_and_so_is_its_end(
    ledger_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger(ledger_url)
    monitor = HostMonitor(settings_of(ledger_url, tmp_path), "api")
    own = replace(monitor.facts(ledger), archive=None)
    other = replace(own, machine="another", settings={**own.settings, "site": "differs"})
    beat(ledger, own, pid=os.getpid())
    beat(ledger, other, "ai2")
    for _ in range(2):
        monitor._next_look = 0.0
        monitor.look(ledger, is_ours=True)
    said = "".join(capsys.readouterr())
    assert (said.count("host_problem"), said.count("other hosts in site")) == (1, 1)
    beat(ledger, replace(other, settings=own.settings), "ai2")
    for _ in range(2):
        monitor._next_look = 0.0
        monitor.look(ledger, is_ours=True)
    ledger.close()
    said = "".join(capsys.readouterr())
    assert (said.count("host_problem"), said.count("host_problems_over")) == (1, 1)


def test_an_archive_that_cannot_be_read_is_silent_in_the_heartbeat(
    ledger_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(ledger_url, tmp_path)
    begin_archive(ledger_url, open_archive(settings))
    (settings.archive_dir / FILE_NAME).write_bytes(b"")
    ledger = Ledger(ledger_url)
    monitor = HostMonitor(settings, "listener")
    assert monitor.facts(ledger).archive is None, "not known before the first look"
    said: list[str] = []

    def is_said() -> bool:
        said.extend(capsys.readouterr())
        return "archive_not_seen" in "".join(said)

    monitor.start()
    wait_for(is_said, what="the look")
    assert monitor.facts(ledger).archive == SILENT_ARCHIVE
    monitor.stop()
    ledger.close()


def test_check_names_other_settings_before_the_start(ledger_url: str, tmp_path: Path) -> None:
    running = settings_of(ledger_url, tmp_path / "other")
    facts = host_facts(running, roles.ALL, None, None)
    ledger = Ledger(ledger_url)
    for number in (1, 2):
        beat(ledger, HostFacts.load(facts.dump().replace(machine(), f"m{number}")), f"host{number}")
    ledger.close()
    (fits,) = other_hosts(running)
    assert (fits.ok, fits.detail) == (True, "host1, host2")
    here = settings_of(ledger_url, tmp_path)
    changed = here.model_copy(update={"site": Site(name="Another", state_dir=tmp_path)})
    (differs,) = other_hosts(changed)
    assert not differs.ok
    assert (differs.name, differs.detail) == (
        "host settings",
        "this host: its settings differ from those of other hosts in site",
    )


def test_hosts_are_a_table_of_80_columns_and_their_faults(tmp_path: Path) -> None:
    ledger = Ledger(migrated_sqlite(tmp_path))
    usual = {"version": "1.0.0", "revision": "0015", "roles": "listener,analyser,dispatcher"}
    for number, digest in enumerate("aab"):
        facts = HostFacts(machine=f"m{number}", settings={"site": digest}, **usual)
        beat(ledger, facts, f"imaging-production-{number}-with-a-long-name")
    ledger.close()
    own = {"HILUM_SITE__STATE_DIR": str(tmp_path)}
    done = hilum("hosts", folder=tmp_path, environment=own)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (1, "")
    assert max(map(len, lines[:4])) <= 80
    assert lines[0].split() == ["HOST", "ROLES", "VERSION", "LEDGER", "CLOCK", "SETTINGS", "SEEN"]
    assert lines[5].endswith("its settings differ from those of other hosts in site")
    assert lines[6].startswith("        -> Give all hosts the same settings")
    found = json.loads(hilum("hosts", "--json", folder=tmp_path, environment=own).stdout)
    assert [len(item["problems"]) for item in found] == [0, 0, 1]

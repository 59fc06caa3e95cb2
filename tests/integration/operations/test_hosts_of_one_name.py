"""Two machines with one host name: the second one does not start, and says why."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hilum.domain import HostFacts
from hilum.store.ledger import Ledger
from hilum.store.queries.views import LedgerViews
from testing.serving import free_ports, hilum_program
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.machine.waiting import wait_for
from tests.support.server.commands import hilum

# A namespace of process ids of its own, as a container has one. The host name stays.
_CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def environment(folder: Path, url: str) -> dict[str, str]:
    """Return the settings of a host of the role api."""
    (port,) = free_ports(1)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HILUM_")}
    return {
        **kept,
        "HILUM_SITE__STATE_DIR": str(folder),
        "HILUM_LEDGER__URL": url,
        "HILUM_API__PORT": str(port),
        "HILUM_LOG__FORMAT": "json",
    }


@pytest.fixture
def first(tmp_path: Path) -> Iterator[str]:
    """Run a server; yield the URL of its ledger."""
    url = migrated_sqlite(tmp_path)
    with (tmp_path / "first.log").open("wb") as log:
        running = subprocess.Popen(
            [hilum_program(), "serve", "--role", "api"],
            env=environment(tmp_path / "first", url),
            stderr=log,
            cwd="/",
        )
        with closing(LedgerViews(url)) as views:
            wait_for(lambda: any(host.is_alive for host in views.hosts()), what="the first server")
        yield url
        running.terminate()
        running.wait(60)


@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of process ids needs root")
def test_a_second_machine_of_one_name_does_not_start(first: str, tmp_path: Path) -> None:
    second = environment(tmp_path / "second", first)
    done = subprocess.run(
        [*_CONTAINER, hilum_program(), "serve", "--role", "api"],
        env=second,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd="/",
    )
    assert done.returncode == 2, done.stderr
    name = os.uname().nodename
    said = done.stderr.splitlines()[-1]
    assert said.startswith(
        f"hilum: site: another machine works under the name of this host, {name}"
    )
    shown = hilum("hosts", "--json", folder=tmp_path, environment=second)
    assert shown.returncode == 0, shown.stderr
    (host,) = json.loads(shown.stdout)
    assert (host["host"], host["roles"], host["ready"]) == (name, "api", {"api": 1})


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount of its own needs root")
def test_a_server_starts_where_a_sandbox_hides_the_identity_of_the_machine(tmp_path: Path) -> None:
    """As with ProcSubset=pid of systemd. A server with an identity is there, too."""
    url = migrated_sqlite(tmp_path)
    with closing(Ledger(url)) as ledger:
        known = HostFacts(machine="known")
        ledger.beat("x:supervisor:7", "supervisor", 7, started_at=1, is_ready=True, facts=known)
    hidden = (
        f"mount -t tmpfs none /proc/sys/kernel/random && exec {hilum_program()} serve --role api"
    )
    with subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", hidden],
        env=environment(tmp_path / "own", url),
        stderr=subprocess.DEVNULL,
        cwd="/",
    ) as running:
        try:
            with closing(LedgerViews(url)) as views:
                wait_for(lambda: any(host.ready for host in views.hosts()), what="the server")
                machines = {host.facts.machine for host in views.hosts()}
        finally:
            running.terminate()
    assert machines == {"known", ""}

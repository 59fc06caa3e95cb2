"""The whole testbed: all hosts on, a sender at work, and what became of each study."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from hilum.store.database.engines import open_engine
from hilum.store.schema.tables import destination, instance
from load_tests.fleet import balancer, database, engine, servers
from load_tests.fleet.database import Databases, ledger_url
from load_tests.fleet.host import FleetHost, bridge
from load_tests.fleet.servers import ARCHIVE, THIS, HilumCode
from load_tests.fleet.topology import (
    API_PORT,
    BALANCER,
    DATABASES,
    DICOM_PORT,
    GRPC_PORT,
    HOSTS,
    PACS,
    PACS_PORT,
    SERVERS,
    TRITONS,
    HostKind,
    HostSpec,
)
from load_tests.proof.acknowledged import Books
from load_tests.proof.evidence import gather, open_rows
from load_tests.proof.images import Supply
from load_tests.proof.router import Load, Router
from load_tests.proof.street.street import NotQuiet, wait_for
from load_tests.proof.verdict import Verdict, judge
from testing.network.receiver import Receiver
from testing.tiny_release import Tiny

START_SECONDS = 240.0
DRAIN_SECONDS = 300.0
_READY = "/health/ready"
_COUNTED = (
    "hilum_instances_received_total{",
    'hilum_stage_outcomes_total{reason="",stage="analyse"',
)


class Fleet:
    """A context manager, for a process in namespaces of its own (`isolation`)."""

    def __init__(
        self,
        folder: Path,
        tiny: Tiny,
        *,
        say: Callable[[str], None],
        code: HilumCode = THIS,
        sections: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.folder = folder
        self.say = say
        self.code = code
        self.hosts = {spec.name: self._host(spec) for spec in HOSTS}
        primary, standby = (self.hosts[spec.name] for spec in DATABASES)
        self.databases = Databases(primary, standby)
        self.pacs: Receiver
        self._tiny = tiny
        self._sections = sections or {}
        self._client = httpx.Client(timeout=3, limits=httpx.Limits(max_keepalive_connections=0))
        self._ledger = open_engine(ledger_url())  # with time limits: a primary may vanish
        self._stack = ExitStack()
        self._past: list[Books] = []

    def _host(self, spec: HostSpec) -> FleetHost:
        folder = self.folder / "hosts" / spec.name
        if spec.kind is HostKind.HILUM:
            return FleetHost(spec, folder, servers.mounts(self.folder, folder))
        return FleetHost(
            spec, folder, database.data_mounts(folder) if spec.kind is HostKind.DATABASE else {}
        )

    def __enter__(self) -> Self:
        """Bring every host up. Raises NotQuiet, HostDown, LinkFailed."""
        with ExitStack() as stack:
            stack.callback(self._client.close)
            stack.callback(self._ledger.dispose)
            bridge()
            for host in self.hosts.values():
                stack.callback(host.close)
                host.boot()
            self._start_programs(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Switch all off, however the block ended."""
        self._stack.close()

    def _start_programs(self, stack: ExitStack) -> None:
        pacs = self.hosts[PACS.name]
        self.pacs = stack.enter_context(Receiver(PACS_PORT, PACS.address, pacs.command()))
        self.say("PostgreSQL: a primary, and a standby that confirms each commit")
        self.databases.start()
        servers.write_settings(self.folder, self._tiny, self._sections)
        self.command("migrate")
        self.say("two tritonservers, HAProxy, seven hosts with Hilum")
        for spec in (*TRITONS, BALANCER, *SERVERS):
            self.start(spec.name)
        self.wait_until_ready()

    def start(self, name: str) -> None:
        """What the host runs. It is on."""
        host = self.hosts[name]
        if host.spec.kind is HostKind.TRITON:
            engine.start(host, self._tiny)
        elif host.spec.kind is HostKind.BALANCER:
            balancer.start(host)
        else:
            servers.start(host, self.folder, self.code)

    def restart(self, name: str) -> None:
        """Power on again after `power_off`."""
        self.hosts[name].boot()
        self.start(name)

    def command(self, *words: str) -> str:
        """A command of `hilum`, as an administrator gives it on the host `web`. Raises HostDown."""
        return servers.run(self.hosts["web"], self.folder, words, self.code)

    def wait_until_ready(self) -> None:
        """Until each Triton listens and each host with Hilum is ready. Raises NotQuiet."""
        for spec in TRITONS:
            wait_for(
                lambda spec=spec: engine.is_listening(spec.address, GRPC_PORT),  # type: ignore[misc]
                START_SECONDS,
                spec.name,
            )
        wait_for(
            lambda: not self._not_ready(),
            START_SECONDS,
            lambda: f"ready: {', '.join(self._not_ready())}",
        )

    def _not_ready(self) -> list[str]:
        return [spec.name for spec in SERVERS if not self.is_ready(spec)]

    def is_ready(self, spec: HostSpec) -> bool:
        """Whether a host with Hilum says so itself."""
        try:
            answer = self._client.get(f"http://{spec.address}:{API_PORT}{_READY}")
        except httpx.TransportError:
            return False
        return answer.is_success

    def images_done(self, spec: HostSpec) -> int:
        """Images that a host has received or read since it started; 0: it does not answer."""
        try:
            text = self._client.get(f"http://{spec.address}:{API_PORT}/metrics").text
        except httpx.TransportError:
            return 0
        lines = [line for line in text.splitlines() if line.startswith(_COUNTED)]
        return int(sum(float(line.rpartition(" ")[2]) for line in lines))

    def router(self, seed: int, load: Load) -> Router:
        """A sender that has not begun yet; its books count in the verdict."""
        made = Router(DICOM_PORT, Supply(seed, load.views), load)
        self._past.append(made.books)
        return made

    def acknowledged(self) -> dict[str, str]:
        """SOP Instance UID to digest, of all senders so far."""
        return {uid: digest for each in self._past for uid, digest in each.acknowledged.items()}

    def studies(self) -> dict[str, frozenset[str]]:
        """Study to its acknowledged images, of all senders so far."""
        return {study: images for each in self._past for study, images in each.studies().items()}

    def unreported(self) -> list[float]:
        """How long each study without a report has had all its images, s."""
        with self.pacs.arrivals.lock:
            reported = set(self.pacs.arrivals.by_study)
        now = time.monotonic()
        return [
            now - at
            for books in self._past
            for study, at in list(books.acknowledged_at.items())
            if study not in reported
        ]

    def open_rows(self) -> dict[str, int] | None:
        """Rows whose work has not ended, by kind; None: no PostgreSQL answers."""
        try:
            return open_rows(self._ledger)
        except DBAPIError:
            return None

    def acknowledged_without_row(self) -> int:
        """Images that were acknowledged, and the ledger has no row of."""
        with self._ledger.connect() as connection:
            known = set(connection.execute(select(instance.c.sop_instance_uid)).scalars())
        return len(self.acknowledged().keys() - known)

    def delivering(self) -> str:
        """The host whose dispatcher holds the lease of the PACS; empty: nobody has delivered."""
        with self._ledger.connect() as connection:
            owner = connection.execute(select(destination.c.owner)).scalar()
        return str(owner or "").partition(":")[0]

    def unindexed(self) -> int:
        """Acknowledged files that wait for a row."""
        return len(list((self.folder / ARCHIVE).glob("unindexed/*/*")))

    def wait_until_quiet(self, seconds: float = DRAIN_SECONDS) -> None:
        """Until nothing is open and every acknowledged study has a report. Raises NotQuiet."""
        wait_for(self.is_quiet, seconds, lambda: f"quiet; still {self._unfinished()}")

    def is_quiet(self) -> bool:
        """Whether nothing is open and every acknowledged study has a report."""
        return not self.unreported() and self.open_rows() == {} and not self.unindexed()

    def _unfinished(self) -> str:
        return (
            f"{self.open_rows()}, {self.unindexed()} unindexed, {len(self.unreported())} unreported"
        )

    def verdict(self) -> Verdict:
        """What the PACS, the archive and the ledger say about what was acknowledged."""
        found = gather(ledger_url(), self.folder / ARCHIVE, self.pacs.arrivals)
        return judge(self.acknowledged(), self.studies(), found)


def load(rate: float) -> Load:
    """Studies of two views, by the balancer's address."""
    return Load(rate=rate, host=BALANCER.address)


__all__ = ["Fleet", "NotQuiet", "load"]

"""The supervisor: binds the DICOM port once, migrates the ledger, and runs the processes.

It starts, watches, restarts and drains them. It loads neither torch nor Triton's client. Children
inherit the listening socket, so connections in the backlog survive a listener's death. Leases of a
dead process are ended at once. Leases left by processes of a former supervisor are ended when their
heartbeats have stopped. So their work continues without waiting for the leases to expire.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hilum.analyse import credentials
from hilum.api.tls import WebTls
from hilum.backoff import RESTART
from hilum.domain import Actor, Channel, Release
from hilum.errors import ConfigurationError
from hilum.models.build.build import is_built
from hilum.models.known_answers.canary import read_canary
from hilum.observability import telemetry
from hilum.process_limits import forbid_core_files
from hilum.receive.association.counter import SharedAssociationCounter
from hilum.receive.association.tls import ServerTls
from hilum.receive.indexing.recovery import recover
from hilum.services import roles
from hilum.services.image_decisions import open_decisions
from hilum.services.launch_spec import LaunchSpec, is_ours, process_name
from hilum.services.releases.releases import active_releases, keep_releases
from hilum.services.state_dir import HeldRoles, metrics_dir
from hilum.services.upgrade import migrate_at_rest, until_done
from hilum.settings import Receive, Settings
from hilum.settings.rules.former import advice
from hilum.store.archive.archives import open_archive
from hilum.store.archive.consistency import begin_archive, require_archive, require_ledger
from hilum.store.archive.store_errors import StoreAway
from hilum.store.audit.log import AuditLog
from hilum.store.database.engines import AWAY, error_text
from hilum.store.ledger import Ledger
from hilum.store.migrations.revision import NotMigrated, require_not_newer, require_revision
from hilum.store.rollouts.advertised_releases import SUPERVISOR, in_words
from hilum.store.rollouts.rollouts import Rollouts
from hilum.supervisor.audit_readers import AuditReaders
from hilum.supervisor.checks.ports import api_port, bind_port, dicom_ports, require_distinct
from hilum.supervisor.clock_recovery import ClockStepMonitor
from hilum.supervisor.host_monitor import HostMonitor, require_own_name
from hilum.supervisor.housekeeping import Housekeeper
from hilum.supervisor.triton_keeper import TritonKeeper
from hilum.supervisor.wakeup_pipe import WakeupPipe
from hilum.triton.server import EmbeddedTriton
from hilum.verbs import Thing, Verb

# while a process waits for its start; one that ends wakes the supervisor at once
_WATCH_SECONDS = 1.0
_BEAT_SECONDS = 3.0
_SILENT_SECONDS = 10.0  # three heartbeats
_DRAIN_SECONDS = 20.0
# a child that lived this long has recovered: its next restart is immediate again
_STEADY_SECONDS = 60.0
_TLS = "listener, TLS"
# No process multiplies matrices by OpenBLAS. Without this, importing NumPy starts a thread for each
# core in each process.
_ENVIRONMENT = {"OPENBLAS_NUM_THREADS": "1"}
_CANNOT_START = 2  # exit status of a child whose settings do not let it start
log = telemetry.logger("supervisor")


@dataclass(slots=True)
class Child:
    """A process that is always to run. `restarts` counts those in a row."""

    role: str
    index: int
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    restart_at: float = 0.0
    restarts: int = 0

    @property
    def name(self) -> str:
        """For logs and process lists."""
        return f"{self.role}-{self.index}"


@dataclass(slots=True)
class Supervisor:
    """The processes of all or some roles on this host, until `stop` is set.

    The caller holds the state folder. `role`: a word of `hilum.services.roles`.
    """

    settings: Settings
    role: str = roles.ALL
    stop: threading.Event = field(default_factory=threading.Event)
    actor: Actor = field(default_factory=lambda: Actor("hilum", Channel.CLI))
    held: HeldRoles | None = None
    _waker: WakeupPipe = field(default_factory=WakeupPipe)
    _children: list[Child] = field(default_factory=list)
    _listening: dict[str, socket.socket] = field(default_factory=dict)
    _counter: SharedAssociationCounter | None = None
    _triton: TritonKeeper | None = None
    _housekeeper: Housekeeper | None = None
    _audit_readers: AuditReaders | None = None
    _host: HostMonitor = field(init=False)

    def __post_init__(self) -> None:
        """Prepare the report of this host."""
        self._host = HostMonitor(self.settings, self.role)

    def run(self) -> int:
        """Serve until SIGTERM, Ctrl-C or the end of the terminal; return the exit status.

        Raises ConfigurationError before any process is started.
        """
        self._require_ledger()
        forbid_core_files()
        _warn_of_former_rules(self.settings)
        self._children = [
            Child(role, index) for role, count in self._plan() for index in range(count)
        ]
        if self._runs("analyser"):
            self._triton = self._embedded_triton()
        self._bind_ports()
        if self.role == roles.ALL:
            # it cannot be undone, so all other reasons to refuse come first
            migrate_at_rest(self.settings, self.role)
        self._require_archive()
        self._require_name()
        if self._runs("analyser") or self._runs("dispatcher"):
            with (
                _needing_ledger(),
                contextlib.closing(Rollouts(self.settings.ledger_url)) as rollouts,
            ):
                keep_releases(self.settings, rollouts)
        if self._runs("listener"):
            self._housekeeper = Housekeeper(self.settings)
        with _needing_ledger():
            self._audit_readers = AuditReaders(self.settings)
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # nohup: it outlives its terminal
            if signum != signal.SIGHUP or signal.getsignal(signum) is not signal.SIG_IGN:
                signal.signal(signum, lambda *_: self.stop.set())
        signal.signal(signal.SIGCHLD, lambda *_: None)  # with a handler, it wakes us
        with contextlib.closing(AuditLog(self.settings.ledger_url)) as audit:
            audit.note(Verb.START, self.actor, thing=Thing.ROLE, name=self.role)
            try:
                self._start_all()
                self._watch()
            finally:
                self._drain()
                audit.note(Verb.STOP, self.actor, thing=Thing.ROLE, name=self.role)
                self._audit_readers.stop()
        return 0

    def _bind_ports(self) -> None:
        """Bind all ports before any process starts, so that a used port is reported at once.

        A caller during the restart of a process waits in the backlog.
        """
        api = self.settings.api
        if api.is_tls:
            WebTls(api)  # unusable files are reported here
        dicom = dicom_ports(self.settings) if self._runs("listener") else []
        require_distinct([api_port(self.settings), *dicom])
        for role in ("api", "health"):
            if self._runs(role):
                self._listening[role] = bind_port(self.settings, api_port(self.settings))
        if self._runs("listener"):
            self._bind_dicom_ports(self.settings.receive)

    def _bind_dicom_ports(self, receive: Receive) -> None:
        if receive.processes > 1:
            self._counter = SharedAssociationCounter(
                receive.processes, self.settings.limited_senders
            )
        if receive.tls_port:
            # unusable files are reported here, and not by each listener
            ServerTls(receive).warn_if_expired()
        for port in dicom_ports(self.settings):
            self._listening[_TLS if port.name == "tls_port" else "listener"] = bind_port(
                self.settings, port
            )

    def _plan(self) -> Sequence[tuple[str, int]]:
        """Return the processes of these roles, in the order of starting.

        Listeners come first, so that no image waits for a model to load.
        """
        settings = self.settings
        served = roles.of(self.role)
        plan = [
            ("listener", "listener", settings.receive.processes),
            ("listener", "watcher", min(1, len(settings.watch))),
            ("api", "api", 1),
            ("dispatcher", "dispatcher", settings.pipeline.dispatchers),
            ("analyser", "analyser", settings.analyse.processes),
        ]
        chosen = [(process, count) for role, process, count in plan if role in served]
        return chosen if "api" in served else [*chosen, ("health", 1)]

    def _runs(self, role: str) -> bool:
        return any(child.role == role for child in self._children)

    def _require_ledger(self) -> None:
        url = self.settings.ledger_url
        if self.role == roles.ALL:
            require_ledger(url, open_archive(self.settings))
            require_not_newer(url)
        else:
            # else `hilum migrate` on this host would take us for a server at work
            with contextlib.nullcontext() if self.held is None else self.held.resting():
                until_done(lambda: require_revision(url), math.inf, _say_not_migrated, NotMigrated)

    def _require_archive(self) -> None:
        if roles.of(self.role) != {"dispatcher"}:  # it may be on a host that does not see objects
            with contextlib.suppress(StoreAway):  # its listeners go on, and its log says so
                require_archive(self.settings.ledger_url, open_archive(self.settings))

    def _require_name(self) -> None:
        """Raise ConfigurationError if another machine works under this host's name."""
        with (
            _needing_ledger(),
            contextlib.closing(Ledger(self.settings.ledger_url)) as ledger,
        ):
            require_own_name(ledger, self.stop)

    def _start_all(self) -> None:
        if any(child.role == "listener" for child in self._children):
            with _needing_ledger():
                self._recover_files()
        for child in self._children:
            if self._may_start(child):
                self._spawn_or_wait(child)
        if self._triton is not None:
            self._triton.start()

    def _may_start(self, child: Child) -> bool:
        """Return whether the child may start: an analyser needs the address of Triton."""
        return child.role != "analyser" or self._triton is None or bool(self._triton.url)

    @property
    def _triton_url(self) -> str:
        """The address of the embedded server.

        It is empty until the server has been ready once, and where remote Tritons run the models.
        """
        return "" if self._triton is None else self._triton.url

    def _recover_files(self) -> None:
        """Index images acknowledged before a crash, before any listener adds to them."""
        archive = open_archive(self.settings)
        ledger = Ledger(self.settings.ledger_url)
        begin_archive(ledger.url, archive)
        if not archive.is_remote:  # else by the listeners and the housekeeper: it may take long
            recover(self.settings, ledger, archive)
        ledger.close()
        with contextlib.closing(open_decisions(self.settings)) as decisions:
            try:
                decisions.settle()
            except OSError as error:  # readers find a file in either place, so the server can start
                log.error(
                    "not_settled",
                    problem=error.strerror,
                    advice="tried again with the next decision on a conflict",
                )

    def _embedded_triton(self) -> TritonKeeper | None:
        releases = active_releases(self.settings)
        if self.settings.triton.addresses:
            _require_canaries(releases, self.settings)
            # reported once, here, and not by each analyser that starts
            credentials.read(self.settings.triton)
            return None
        built = self.settings.built_dir
        if missing := [name for name, release in releases.items() if not is_built(release, built)]:
            raise ConfigurationError(
                [
                    f"{name} is not built in {built}: run `hilum models build {name}`."
                    for name in missing
                ]
            )
        names = [release.triton_name for release in releases.values()]
        limits = self.settings.triton
        seconds = (limits.start_timeout_seconds, limits.exit_timeout_seconds)
        traces_to = self.settings.tracing.endpoint
        triton = EmbeddedTriton(built, self.settings.site.state_dir, names, *seconds, traces_to)
        triton.require_startable()
        return TritonKeeper(triton, self._waker.wake)

    def _spawn(self, child: Child) -> None:
        fd = self._descriptor(child.role)
        is_listener = child.role == "listener"
        tls_fd = self._descriptor(_TLS) if is_listener else -1
        counter_fd = self._counter.descriptor if is_listener and self._counter is not None else -1
        launch_spec = LaunchSpec(
            child.role,
            os.getpid(),
            self.settings.dump(),
            child.index,
            fd,
            tls_fd,
            counter_fd,
            self._triton_url,
            self.role,
        )
        command = [sys.executable, "-m", "hilum.processes", child.name]
        inherited = [number for number in (fd, tls_fd, counter_fd) if number >= 0]
        child.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, stdin=subprocess.PIPE, pass_fds=inherited, env=_environment()
        )
        child.started_at = time.monotonic()
        child.restart_at = 0.0
        assert child.process.stdin is not None
        # it has ended already; the next look finds that
        with contextlib.suppress(BrokenPipeError), child.process.stdin as given:
            given.write(launch_spec.dump())
        log.info("process_started", name=child.name, pid=child.process.pid)

    def _descriptor(self, name: str) -> int:
        return self._listening[name].fileno() if name in self._listening else -1

    def _watch(self) -> None:
        """Restart processes that end, until `stop` is set."""
        next_beat = 0.0
        heard_since = math.inf
        with_ledger = Ledger(self.settings.ledger_url)
        clock_step_monitor = ClockStepMonitor(self.settings)
        self._host.start()
        while not self.stop.is_set():
            for child in self._children:
                self._look_at(child, with_ledger)
            if self._triton is not None:
                self._triton.look()
            if self._housekeeper is not None:
                self._housekeeper.look()
            if self._audit_readers is not None:
                self._audit_readers.look()
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + _BEAT_SECONDS
                heard_since = (
                    min(heard_since, time.monotonic()) if self._beat(with_ledger) else math.inf
                )
                clock_step_monitor.look(with_ledger)
                self._begin_campaigns(with_ledger)
                # before that, other processes may have had no chance to write a heartbeat
                if time.monotonic() - heard_since >= _SILENT_SECONDS:
                    bury_silent(with_ledger)
            self._waker.wait(self._seconds_to_look(next_beat))
        self._host.stop()
        # otherwise the releases of its settings would count for a minute more
        with contextlib.suppress(*AWAY):
            with_ledger.forget_processes([_own_name()])
        with_ledger.close()

    def _begin_campaigns(self, ledger: Ledger) -> None:
        """Add the retriever when there is a first campaign to fetch for, beside the listeners."""
        if self._runs("retriever") or "listener" not in roles.of(self.role):
            return
        with contextlib.suppress(*AWAY):
            if ledger.has_campaigns():
                self._children.append(Child("retriever", 0))

    def _seconds_to_look(self, next_beat: float) -> float:
        """Return the seconds until the next look.

        Where all processes run, only the next heartbeat is due: signals and Triton's keeper wake
        the supervisor.
        """
        seconds = max(0.0, next_beat - time.monotonic())
        return (
            seconds
            if all(child.process is not None for child in self._children)
            else min(_WATCH_SECONDS, seconds)
        )

    def _look_at(self, child: Child, ledger: Ledger) -> None:
        now = time.monotonic()
        if child.process is None:
            if now >= child.restart_at and self._may_start(child):
                self._spawn_or_wait(child)
            return
        status = child.process.poll()
        if status is None:
            return
        if now - child.started_at > _STEADY_SECONDS:
            child.restarts = 0
        pause = (
            0.0
            if child.restarts == 0 and status != _CANNOT_START
            else RESTART.after(child.restarts)
        )
        log.error(
            "process_ended",
            name=child.name,
            pid=child.process.pid,
            status=status,
            restart_in_seconds=pause,
        )
        self._bury(child, ledger)
        child.process = None
        child.restart_at = now + pause
        child.restarts = child.restarts + 1

    def _spawn_or_wait(self, child: Child) -> None:
        """Start a process, or plan a retry if memory or processes are short.

        The other processes continue.
        """
        try:
            self._spawn(child)
        except OSError as error:
            pause = RESTART.after(child.restarts)
            log.error(
                "process_not_started",
                name=child.name,
                problem=error.strerror,
                again_in_seconds=pause,
            )
            child.restart_at = time.monotonic() + pause
            child.restarts = child.restarts + 1

    def _bury(self, child: Child, ledger: Ledger) -> None:
        """Clear the traces of a dead process: leases, a heartbeat, gauges."""
        assert child.process is not None
        name = process_name(child.role, child.process.pid)
        telemetry.PROCESS_RESTARTS.labels(child.role).inc()
        if child.role == "listener" and self._counter is not None:
            self._counter.clear(child.index)
        telemetry.forget_process(child.process.pid, str(metrics_dir(self.settings, self.role)))
        try:
            if freed := ledger.end_leases(name, is_clean=False):
                log.info("leases_released", name=child.name, count=freed)
            ledger.forget_processes([name])
        except AWAY as error:
            log.warning(
                "leases_not_released",
                name=child.name,
                error=error_text(error),
                advice="they lapse by themselves",
            )

    def _beat(self, ledger: Ledger) -> bool:
        """Write a heartbeat and return whether the ledger has taken it."""
        try:
            named = in_words(self.settings.active_releases)
            is_ours = ledger.beat(
                _own_name(),
                SUPERVISOR,
                os.getpid(),
                started_at=self._host.started_at,
                is_ready=not self._host.problem,
                detail=named,
                facts=self._host.facts(ledger),
            )
            self._host.look(ledger, is_ours=is_ours)
        except AWAY as error:
            log.warning("heartbeat_failed", error=error_text(error))
            return False
        return True

    def _give_back(self, killed: Sequence[Child]) -> None:
        """Release leases of processes that we killed at shutdown.

        The attempt still counts, because the process may have waited for a receiver that does not
        respond.
        """
        try:
            with contextlib.closing(Ledger(self.settings.ledger_url)) as ledger:
                for child in killed:
                    ledger.end_leases(
                        process_name(child.role, _process(child).pid), is_clean=True, counts=True
                    )
        except AWAY as error:
            log.warning(
                "leases_not_released", error=error_text(error), advice="they lapse by themselves"
            )

    def _drain(self) -> None:
        """Stop listeners first, so that no new object comes in; then all others; Triton last.

        Each process finishes its work.
        """
        log.info("stopping")
        give_up = time.monotonic() + _DRAIN_SECONDS
        for wave in (
            ("listener", "watcher", "retriever"),
            ("analyser", "dispatcher", "api", "health"),
        ):
            running = [
                child
                for child in self._children
                if child.process is not None and child.role in wave
            ]
            for child in running:
                _process(child).terminate()
            if killed := [child for child in running if not _has_finished(child, give_up)]:
                self._give_back(killed)
        if self._triton is not None:
            self._triton.stop()
        if self._housekeeper is not None:
            self._housekeeper.stop()
        for listening in self._listening.values():
            listening.close()
        self._waker.close()
        log.info("stopped")


def _warn_of_former_rules(settings: Settings) -> None:
    """Warn where routes and senders still say how studies are handled."""
    if settings.rules_in_use and not settings.rules:
        log.warning("routes_and_senders_decide", advice=advice(settings.rules_in_use))


def _say_not_migrated(problem: str) -> None:
    """Log that this start waits. Its ports are closed, so probes find it not ready."""
    log.warning("waits_for_migration", problem=problem, advice="it starts by itself afterwards")


@contextlib.contextmanager
def _needing_ledger() -> Iterator[None]:
    """Raise ConfigurationError if the ledger is away while a start writes to it.

    The start then ends, as with a ledger that does not open.
    """
    try:
        yield
    except AWAY as error:
        said = error_text(error).strip().partition("\n")[0]
        raise ConfigurationError(
            [f"ledger: {said}. Start again when it can be written: `hilum check` says more."]
        ) from error


def bury_silent(ledger: Ledger, silent_seconds: float = _SILENT_SECONDS) -> None:
    """End the leases of processes of this host that died with their supervisor.

    This happens when the machine loses its power. Otherwise a destination waits three minutes for
    its lease. A container can have our host's name: we see its heartbeats, but not its processes.
    If it also sends no heartbeats, its leases are taken from it, as from a slow process.
    """
    try:
        for name, pid in ledger.silent(silent_seconds):
            if not is_ours(pid):
                freed = ledger.end_leases(name, is_clean=False)
                ledger.forget_processes([name])
                log.info("leases_released", name=name, count=freed)
    except AWAY as error:
        log.warning(
            "silent_process_check_failed",
            error=error_text(error),
            advice="their leases lapse by themselves",
        )


def _environment() -> dict[str, str]:
    """Return the environment of a child, without settings.

    The child gets its settings by standard input. They hold secrets that its own children do not
    need.
    """
    kept = {
        name: value for name, value in os.environ.items() if not name.upper().startswith("HILUM_")
    }
    return {**_ENVIRONMENT, **kept}


def _own_name() -> str:
    return process_name(SUPERVISOR, os.getpid())


def _require_canaries(releases: Mapping[str, Release], settings: Settings) -> None:
    """Raise ConfigurationError for a release without a recorded canary.

    A remote Triton is trusted only as far as it gives the known outputs. They are recorded when a
    release is built.
    """
    for release in releases.values():
        read_canary(release, settings.built_dir)


def _process(child: Child) -> subprocess.Popen[bytes]:
    assert child.process is not None
    return child.process


def _has_finished(child: Child, give_up: float) -> bool:
    """Wait for a child that is stopping; False: its time was over, and it was killed."""
    process = _process(child)
    try:
        process.wait(max(0.1, give_up - time.monotonic()))
    except subprocess.TimeoutExpired:
        log.error(
            "process_killed",
            name=child.name,
            pid=process.pid,
            advice="it did not finish in time; its items are tried again",
        )
        process.kill()
        process.wait()
        return False
    return True

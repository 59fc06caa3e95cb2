"""A host: namespaces for network, name, processes, mounts and shared memory, on a link of the bridge."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from load_tests.fleet.isolation import FAKETIME
from load_tests.fleet.link import Link, ip
from load_tests.fleet.topology import NETWORK, HostSpec
from load_tests.proof.street.street import wait_for
from testing.serving import REPOSITORY

_NAMESPACES = ("net", "uts", "ipc", "pid", "mnt")
# The first process of the host. It takes over orphans, as init does.
_INIT = "hostname {name}; ip link set lo up; mount -t tmpfs tmpfs /dev/shm; while :; do sleep 3600 & wait $!; done"
_BOOT_SECONDS = 20.0


class HostDown(Exception):
    """The host did not come up."""


class FleetHost:
    """Is off until `boot`. `mounts`: folder here to its place on the host."""

    def __init__(self, spec: HostSpec, folder: Path, mounts: Mapping[Path, Path]) -> None:
        self.spec = spec
        self.folder = folder
        self.link = Link(spec.name)
        self.clock_offset_seconds = 0
        self._mounts = mounts
        self._holder: subprocess.Popen[bytes] | None = None
        self._started: list[subprocess.Popen[bytes]] = []

    @property
    def is_on(self) -> bool:
        """Whether it has a first process."""
        return self._holder is not None

    @property
    def log(self) -> Path:
        """What its programs print."""
        return self.folder / "host.log"

    def boot(self) -> None:
        """Make the namespaces, the link and the mounts. Raises HostDown."""
        self.folder.mkdir(parents=True, exist_ok=True)
        words = [f"--{'mount' if name == 'mnt' else name}" for name in _NAMESPACES]
        with self.log.open("ab") as log:
            self._holder = subprocess.Popen(
                [
                    *("unshare", *words, "--fork", "--kill-child=KILL", "--mount-proc"),
                    *("bash", "-c", _INIT.format(name=self.spec.name)),
                ],
                stderr=log,
                start_new_session=True,
            )
        wait_for(self._has_booted, _BOOT_SECONDS, f"{self.spec.name} boots")
        self.link.connect(self.init_pid)
        self.run(
            "ip", "addr", "add", f"{self.spec.address}/{NETWORK.network.prefixlen}", "dev", "eth0"
        )
        self.run("ip", "link", "set", "eth0", "up")
        for source, place in self._mounts.items():
            source.mkdir(parents=True, exist_ok=True)
            self.run("mkdir", "-p", str(place))
            self.run("mount", "--bind", str(source), str(place))

    @property
    def init_pid(self) -> int:
        """The first process, as it is numbered here. Raises HostDown."""
        pids = children(self._holder.pid) if self._holder else []
        if not pids:
            raise HostDown(f"{self.spec.name} is off")
        return pids[0]

    def _has_booted(self) -> bool:
        if self._holder is None or not (pids := children(self._holder.pid)):
            return False
        done = subprocess.run(
            [*self._enter(pids[0]), "hostname"], capture_output=True, text=True, check=False
        )
        return done.stdout.strip() == self.spec.name and _has_own_memory(pids[0])

    def command(self, *words: str) -> list[str]:
        """A command line that runs `words` on the host, with its clock."""
        clock = _clock(self.clock_offset_seconds)
        return [*self._enter(self.init_pid), *clock, *words]

    def run(self, *words: str, environment: Mapping[str, str] | None = None) -> str:
        """Run to the end; its output. Raises HostDown with its error."""
        done = subprocess.run(
            self.command(*words),
            capture_output=True,
            text=True,
            check=False,
            cwd=REPOSITORY,
            env=environment,
        )
        if done.returncode:
            said = (done.stderr or done.stdout).strip()
            raise HostDown(f"{self.spec.name}: {' '.join(words)}: {said}")
        return done.stdout

    def spawn(
        self, *words: str, environment: Mapping[str, str], output: IO[bytes] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program; it ends with the host at the latest."""
        with self.log.open("ab") as log:
            started = subprocess.Popen(
                self.command(*words),
                stdout=output or log,
                stderr=log,
                env=environment,
                cwd=REPOSITORY,
                start_new_session=True,
            )
        self._started.append(started)
        return started

    def terminate(self) -> None:
        """SIGTERM to what was spawned: an administrator stops the services."""
        for started in self._started:
            for pid in children(started.pid):
                _signal(pid, signal.SIGTERM)

    def wait_for_end(self, seconds: float = 60.0) -> None:
        """Until what was spawned has ended. Raises subprocess.TimeoutExpired."""
        for started in self._started:
            started.wait(seconds)
        self._started = []

    def power_off(self) -> None:
        """The power fails: the link is dead first, so no peer hears of it; then no process is left."""
        if self._holder is None:
            return
        self.link.cut()
        self._end()

    def _end(self) -> None:
        if self._holder is None:
            return
        for pid in children(self._holder.pid):
            _signal(pid, signal.SIGKILL)
        self._holder.wait()
        for started in self._started:
            started.wait()
        self._started = []
        self._holder = None
        self.link.remove()

    def close(self) -> None:
        """Leave nothing of it."""
        self._end()

    def _enter(self, pid: int) -> list[str]:
        words = [f"--{'mount' if name == 'mnt' else name}" for name in _NAMESPACES]
        return ["nsenter", "--target", str(pid), *words, f"--wdns={REPOSITORY}", "--"]


def bridge() -> None:
    """The switch of this network namespace, with an address for the sender. Raises HostDown."""
    for words in (
        ("link", "set", "lo", "up"),
        ("link", "add", "switch", "type", "bridge"),
        ("addr", "add", str(NETWORK), "dev", "switch"),
        ("link", "set", "switch", "up"),
    ):
        ip(*words)


def children(pid: int) -> list[int]:
    """Its living children."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def _has_own_memory(pid: int) -> bool:
    try:
        return " /dev/shm " in Path(f"/proc/{pid}/mounts").read_text().splitlines()[-1]
    except (OSError, IndexError):
        return False


def _clock(offset_seconds: int) -> list[str]:
    """Words that give a program a wrong clock; its monotonic clock stays."""
    if not offset_seconds:
        return []
    return [
        "env",
        f"LD_PRELOAD={FAKETIME}",
        f"FAKETIME={offset_seconds:+d}s",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
        "FAKETIME_NO_CACHE=1",
    ]


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return

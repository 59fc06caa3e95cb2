"""A root file system of layers, and commands in it.

Each command has mount and process namespaces of its own. Every mount is made in there, so it ends
with the command, also where that fails or is killed, and no folder outside ever has a mount.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

_NAMESPACES: Final = (
    "unshare",
    "--mount",
    "--propagation=private",
    "--pid",
    "--fork",
    "--kill-child",
    "--ipc",
    "--uts",
)
_DEVICES: Final = ("null", "zero", "full", "random", "urandom")
_OUTPUT_END: Final = 4000


class StepFailed(Exception):
    """A command ended with another status than 0; holds the end of its output."""


class Network(Enum):
    """What a command reaches."""

    OF_THIS_MACHINE = "this machine's network"
    LOOPBACK_ALONE = "a network of its own with nothing but loopback"


@dataclass(frozen=True, slots=True)
class User:
    """Who runs a command. `is_bare`: without any capability, and it can gain none."""

    uid: int = 0
    gid: int = 0
    is_bare: bool = False

    def words(self) -> list[str]:
        """Before the command, inside the root."""
        if not self.is_bare:
            return []
        ids = ["--reuid", str(self.uid), "--regid", str(self.gid), "--clear-groups"]
        return ["setpriv", *ids, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]


@dataclass(frozen=True, slots=True)
class Root:
    """`layers`: folders, the lowest first. `place`: an empty folder where they are put together.

    `mounts`: folder or file here → path in the root. Those of `writable` may be written. `beside`: an
    empty folder and the layers that are put together there, to be one of `mounts`.
    """

    layers: tuple[Path, ...]
    place: Path
    mounts: Mapping[Path, str] = field(default_factory=dict)
    writable: frozenset[str] = frozenset()
    beside: tuple[Path, tuple[Path, ...]] | None = None
    network: Network = Network.OF_THIS_MACHINE

    def command(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        *,
        folder: str = "/",
        user: User = User(),
        upper: Path | None = None,
    ) -> list[str]:
        """A command line for this machine that runs `words` in the root.

        `upper`: an empty folder that gets what is written; None: the root is read-only.
        """
        inner = ["env", "-i", *(f"{name}={value}" for name, value in environment.items()), *words]
        # `env --chdir` would be asked before the ids change; a shell in the root does both.
        entered = f"cd {shlex.quote(folder)} && exec {shlex.join([*user.words(), *inner])}"
        lines = [
            "set -eu",
            *(["ip link set lo up"] if self.network is Network.LOOPBACK_ALONE else []),
            *(_assembled(self.beside[1], self.beside[0], None) if self.beside else ()),
            *_assembled(self.layers, self.place, upper),
            *self._kernel_folders(),
            *self._bound(),
            f"exec chroot {shlex.quote(str(self.place))} /bin/sh -c {shlex.quote(entered)}",
        ]
        own = ["--net"] if self.network is Network.LOOPBACK_ALONE else []
        return [*_NAMESPACES, *own, "/bin/sh", "-c", "\n".join(lines)]

    def run(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        *,
        folder: str = "/",
        user: User = User(),
        upper: Path | None = None,
        beside: int = 0,
    ) -> str:
        """Run a command to its end; what it printed. Raises StepFailed.

        `beside`: process id of a container, whose network the command then shares.
        """
        line = self.command(words, environment, folder=folder, user=user, upper=upper)
        line = [*(in_network_of(beside) if beside else []), *line]
        done = subprocess.run(line, capture_output=True, text=True, check=False, errors="replace")
        if done.returncode:
            raise StepFailed(
                f"{shlex.join(words)} ended with {done.returncode}:\n"
                f"{(done.stdout + done.stderr)[-_OUTPUT_END:]}"
            )
        return done.stdout

    def _kernel_folders(self) -> list[str]:
        """What docker mounts in every container."""
        place = self.place
        return [
            _mount("-t", "proc", "-o", "nosuid,nodev,noexec", "proc", place / "proc"),
            _mount("-t", "tmpfs", "-o", "mode=1777,nosuid,nodev,noexec", "tmpfs", place / "tmp"),
            _mount("-t", "tmpfs", "-o", "mode=755,nosuid,noexec", "tmpfs", place / "dev"),
            f"ln -s /proc/self/fd {shlex.quote(str(place / 'dev/fd'))}",
            *(
                line
                for name in _DEVICES
                for line in (
                    f"touch {shlex.quote(str(place / 'dev' / name))}",
                    _mount("--bind", f"/dev/{name}", place / "dev" / name),
                )
            ),
            f"mkdir {shlex.quote(str(place / 'dev/shm'))}",
            _mount(
                "-t", "tmpfs", "-o", "mode=1777,nosuid,nodev,noexec", "tmpfs", place / "dev/shm"
            ),
        ]

    def _bound(self) -> list[str]:
        lines = []
        for source, target in self.mounts.items():
            there = self.place / target.lstrip("/")
            if target.startswith("/tmp/"):  # noqa: S108 - in the root, on the tmpfs above
                lines.append(f"mkdir -p {shlex.quote(str(there))}")
            lines.append(_mount("--bind", source, there))
            if target not in self.writable:
                lines.append(_remount(there))
        return lines


def in_network_of(pid: int) -> list[str]:
    """Before a command of this machine: it reaches what that process reaches."""
    return ["nsenter", f"--net=/proc/{pid}/ns/net"]


def _assembled(layers: Sequence[Path], place: Path, upper: Path | None) -> list[str]:
    """The mount of layers. Without an upper folder overlayfs is read-only by itself."""
    if upper is None and len(layers) == 1:
        return [_mount("--bind", layers[0], place), _remount(place)]
    options = f"lowerdir={':'.join(str(layer) for layer in reversed(layers))}"
    if upper is not None:
        work = upper.with_name(f"{upper.name}.work")
        options += f",upperdir={upper},workdir={work}"
    return [_mount("-t", "overlay", "-o", options, "overlay", place)]


def _mount(*words: object) -> str:
    return shlex.join(["mount", *map(str, words)])


def _remount(place: Path) -> str:
    return _mount("-o", "remount,bind,ro", place)

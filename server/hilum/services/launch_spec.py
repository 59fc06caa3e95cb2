"""The start parameters of a child process, and its name."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import signal
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

ROLES = ("listener", "watcher", "retriever", "analyser", "dispatcher", "api", "health")
_PR_SET_PDEATHSIG = 1
_HOST_CHARACTERS = 40


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """The parameters that the supervisor gives a child.

    `listening_fd`: the inherited socket of a role that listens; `tls_fd`: the listener's for TLS;
    `counter_fd`: the memory that several listeners share. `triton_url`: the embedded Triton.
    `served_role`: the roles of this host.
    """

    role: str
    parent_pid: int
    settings: str
    index: int = 0
    listening_fd: int = -1
    tls_fd: int = -1
    counter_fd: int = -1
    triton_url: str = ""
    served_role: str = "all"

    def dump(self) -> bytes:
        """Return JSON for the child's standard input.

        Settings hold secrets, so they go through no file and no argument.
        """
        return json.dumps(asdict(self)).encode()


def process_name(role: str, pid: int) -> str:
    """Return the owner of leases and name of heartbeats: one for each life of a process."""
    return f"{short_host(socket.gethostname())}:{role}:{pid}"


def short_host(name: str) -> str:
    """Return at most 40 characters of a host name: the ledger has 64 for a process.

    A longer name, as pods have, is cut, and a digest distinguishes hosts.
    """
    if len(name) <= _HOST_CHARACTERS:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _HOST_CHARACTERS - len(digest) - 1]}~{digest}"


def is_ours(pid: int) -> bool:
    """Return whether this process is alive and is Hilum's, not another with a reused number."""
    try:
        return b"hilum" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def die_with_parent(parent_pid: int) -> None:
    """End when the parent ends, however it ends (prctl(2)).

    An orphan would hold the port and the leases.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGTERM)

"""A process tree in namespaces of its own, which the kernel ends and clears with its first process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from testing.serving import REPOSITORY

# The kernel ends everything in a process namespace with its first process, however that ends.
# Network and mounts end with the last process. `--kill-child` and `--pdeathsig` end it with us.
_ALONE = (
    "setpriv",
    "--pdeathsig",
    "KILL",
    "unshare",
    "--net",
    "--mount",
    "--uts",
    "--ipc",
    "--pid",
    "--fork",
    "--kill-child=KILL",
    "--mount-proc",
)
# The first process reaps orphans, which bash does beside waiting. An unreaped
# orphan of a host would keep the host's process namespace.
_INIT = ("bash", "-c", '"$@"; exit $?', "init")


FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
_PROGRAMS = ("haproxy", "ip", "tc", "nsenter", "setpriv", "unshare")


def problem() -> str:
    """Why there cannot be a fleet here; empty: there can."""
    if os.geteuid() != 0:
        return "needs network namespaces; run it as root"
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    missing += [] if FAKETIME.is_file() else [FAKETIME.name]
    if missing:
        return f"not installed: {', '.join(missing)}; run deploy/debian-packages.sh"
    done = subprocess.run([*_ALONE, "true"], capture_output=True, text=True, check=False)
    return done.stderr.strip()


def run_alone(module: str, words: Sequence[str]) -> int:
    """`python -m module words` in namespaces of its own; its exit status.

    It sees no network but what it makes, and leaves nothing behind.
    """
    return subprocess.run(
        [*_ALONE, *_INIT, sys.executable, "-m", module, *words], cwd=REPOSITORY, check=False
    ).returncode

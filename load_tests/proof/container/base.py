"""A clean Debian 12 with Python 3.11 in place of the base image, which cannot be pulled here.

Made by debootstrap (a Debian package), kept in state/ like a pulled image.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from load_tests.proof.container.root import Root, StepFailed
from testing.serving import REPOSITORY

MIRROR: Final = "http://deb.debian.org/debian"
FOLDER: Final = REPOSITORY / "state/bookworm-root"
# As the image of Python sets them.
ENVIRONMENT: Final = {
    "PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
}
_PACKAGES: Final = "python3.11 python3.11-venv libpython3.11 ca-certificates netbase tzdata"
_SOURCES: Final = (
    f"deb {MIRROR} bookworm main\\ndeb {MIRROR} bookworm-updates main\\n"
    f"deb {MIRROR}-security bookworm-security main\\n"
)
# The image has its Python in /usr/local, without Debian's.
_STEPS: Final = f"""set -eu
printf '{_SOURCES}' > /etc/apt/sources.list
printf '127.0.0.1 localhost\\n' > /etc/hosts
apt-get -qq update
apt-get -qq -y dist-upgrade
apt-get -qq -y install --no-install-recommends {_PACKAGES}
ln -s /usr/bin/python3.11 /usr/local/bin/python3.11
ln -s python3.11 /usr/local/bin/python3
ln -s python3.11 /usr/local/bin/python
apt-get clean
rm -rf /var/lib/apt/lists/*
"""


def missing_program() -> str:
    """Why the base cannot be made here; empty: it can."""
    if FOLDER.is_dir() or shutil.which("debootstrap"):
        return ""
    return "needs debootstrap: apt-get install debootstrap"


def base_layers(work: Path) -> tuple[Path, ...]:
    """Layers of the base, made the first time. `work`: an empty folder. Raises StepFailed."""
    if not FOLDER.is_dir():
        _make(work)
    return tuple(sorted(path for path in FOLDER.iterdir() if path.suffix == ".layer"))


def _make(work: Path) -> None:
    """Beside its place, and renamed when it is whole."""
    new = FOLDER.with_name(f"{FOLDER.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    minimal = new / "0.layer"
    python = new / "1.layer"
    for folder in (minimal, python, new / "1.layer.work", work):
        folder.mkdir(parents=True, exist_ok=True)
    # In namespaces of its own, as all else: debootstrap mounts /proc into its folder.
    line = ["unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child"]
    words = ["debootstrap", "--variant=minbase", "bookworm", str(minimal), MIRROR]
    done = subprocess.run([*line, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise StepFailed(f"debootstrap ended with {done.returncode}:\n{done.stdout[-4000:]}")
    environment = {**ENVIRONMENT, "DEBIAN_FRONTEND": "noninteractive"}
    Root((minimal,), work).run(["sh", "-c", _STEPS], environment, upper=python)
    (new / "1.layer.work").rename(new / "work")
    new.rename(FOLDER)

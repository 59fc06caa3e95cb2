"""`make wheelhouse`: every wheel of the server in one folder, for a machine without a network.

dist/wheelhouse/ has the wheels that deploy/lock/*.txt and the lock of the embedded Triton name, each
by its hash, Hilum's own two wheels, the locks, and SHA256SUMS over all of it.
docs/operate/images.md says how to install from it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from hashlib import file_digest
from pathlib import Path
from typing import Final

from deploy.write_locks import FOLDER, ROOT, TRITON, canonical, hashes_of

WHEELHOUSE: Final = ROOT / "dist/wheelhouse"
SUMS: Final = "SHA256SUMS"
TORCH_LOCK: Final = os.environ.get("TORCH_LOCK", "torch-cpu.txt")
_PYTORCH: Final = "https://download.pytorch.org/whl/cpu"
# As deploy/Dockerfile has them: only files whose hash a lock has, and only wheels.
_LOCKED: Final = ("--no-deps", "--require-hashes", "--only-binary", ":all:")
_PIP: Final = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
_OURS: Final = ("hilum", "hilum_preprocessing")


class NotFetched(Exception):
    """Why a wheel is missing, for people."""


def main() -> int:
    """Exit status 0: the folder is whole."""
    try:
        names = fill()
    except NotFetched as reason:
        print(f"wheelhouse: {reason}", file=sys.stderr)
        return 1
    size = sum((WHEELHOUSE / name).stat().st_size for name in names)
    print(f"{WHEELHOUSE.relative_to(ROOT)}: {len(names)} files, {size / 1e6:.0f} MB, {SUMS}")
    return 0


def fill() -> list[str]:
    """All that an installation needs, and its sums; the names of the files. Raises NotFetched."""
    fetch()
    _build_ours()
    for lock in locks().values():
        shutil.copyfile(lock, WHEELHOUSE / _lock_name(lock))
    names = sorted(path.name for path in WHEELHOUSE.iterdir() if path.name != SUMS)
    lines = [f"{digest(WHEELHOUSE / name)}  {name}\n" for name in names]
    (WHEELHOUSE / SUMS).write_text("".join(lines), encoding="utf-8")
    return names


def locks() -> dict[str, Path]:
    """What a server consists of, and what builds it: name → lock."""
    return {
        "torch": FOLDER / TORCH_LOCK,
        "server": FOLDER / "server.txt",
        "build": FOLDER / "build.txt",
        "triton": TRITON,
    }


def _lock_name(lock: Path) -> str:
    """Its name in the folder. That of the embedded Triton is lock.txt in its own place."""
    return "triton.txt" if lock == TRITON else lock.name


def fetch() -> None:
    """Download what is not there yet; remove the wheels that no lock names. Raises NotFetched."""
    WHEELHOUSE.mkdir(parents=True, exist_ok=True)
    found = {digest(path): path for path in WHEELHOUSE.glob("*.whl")}
    wanted = {name: hashes_of(lock.read_text(encoding="utf-8")) for name, lock in locks().items()}
    for name, lock in locks().items():
        # pip would ask the index for each of them once more.
        if any(hashes.isdisjoint(found) for hashes in wanted[name].values()):
            _download(lock, _index() if name == "torch" else ())
    known = {value for hashes in wanted.values() for value in set().union(*hashes.values())}
    for value, path in found.items():
        if value not in known:
            path.unlink()


def wheels() -> dict[tuple[str, str], Path]:
    """Name and version → file, of the wheels of others. A local version (+cpu) is left out."""
    found = (path for path in WHEELHOUSE.glob("*.whl") if not path.name.startswith(_OURS))
    return {_pin(path): path for path in found}


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _pin(wheel: Path) -> tuple[str, str]:
    name, version = wheel.name.split("-")[:2]
    return canonical(name), version.split("+")[0]


def _index() -> tuple[str, ...]:
    """PyTorch for CPU is in an index of its own; all else, and torch for GPU, in the usual one."""
    if TORCH_LOCK != "torch-cpu.txt":
        return ()
    return ("--retries", "1", "--index-url", os.environ.get("TORCH_INDEX_URL", _PYTORCH))


def _download(lock: Path, options: tuple[str, ...]) -> None:
    # Wheels that are there already are taken from the folder.
    here = ("--find-links", str(WHEELHOUSE), "--dest", str(WHEELHOUSE))
    _run([*_PIP, "download", *_LOCKED, *here, *options, "--requirement", str(lock)])


def _build_ours() -> None:
    """The wheels of this checkout, built with the packages that are here. Raises NotFetched."""
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(WHEELHOUSE))
    _run([*_PIP, "wheel", *options, str(ROOT / "preprocessing"), str(ROOT)])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise NotFetched(done.stderr.strip()[-2000:])


if __name__ == "__main__":
    sys.exit(main())

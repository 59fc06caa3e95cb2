"""The virtual environment of the embedded Triton: its place, its packages, its making.

Triton's Python stub needs numpy 1; Hilum runs on numpy 2. Standard library only: the set-up of a
checkout runs this file as a script, beside the installation of all else.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

COMMAND: Final = "hilum triton install"
LOCK: Final = Path(__file__).with_name("lock.txt")
PYTHONS: Final = ("3.11", "3.12")
"""Versions of Python for which Triton has a stub and numpy 1 a wheel."""
_STAMP: Final = "lock.sha256"
_PIP: Final = ("-m", "pip", "--disable-pip-version-check")
_LOCKED: Final = ("--no-deps", "--require-hashes", "--only-binary", ":all:")
# pip tries again for minutes; a machine without a network shall say so soon.
_PATIENCE: Final = ("--retries", "2", "--timeout", "30")
_ELSEWHERE: Final = "or set triton.url to a Triton that runs elsewhere"

Say = Callable[[str], None]


class NotInstalled(Exception):
    """Why there is no environment now, and the remedy."""


@dataclass(frozen=True, slots=True)
class Installation:
    """An environment that exists. `version`: of its Python, as 3.11."""

    folder: Path
    version: str

    @property
    def python(self) -> Path:
        """Its interpreter: a link, which leads the stub to the environment's packages."""
        return self.folder / "bin/python"

    @property
    def packages(self) -> Path:
        """Its site-packages."""
        return self.folder / f"lib/python{self.version}/site-packages"

    @property
    def base(self) -> Path:
        """Prefix of the Python from which it was made, as pyvenv.cfg names it."""
        lines = (self.folder / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
        values = dict(line.partition(" = ")[::2] for line in lines)
        return Path(values["home"]).parent

    def version_of(self, name: str) -> str:
        """Version of a package in it; empty: it is not there."""
        found = metadata.distributions(name=name, path=[str(self.packages)])
        return next((each.version for each in found), "")


def place() -> Path:
    """Folder of the environment: beside the packages of the Python that runs Hilum."""
    return Path(sys.prefix, "triton")


def find(folder: Path | None = None) -> Installation | None:
    """The environment; None: it was not made."""
    folder = folder or place()
    found = [
        Installation(folder, version)
        for version in PYTHONS
        if (folder / f"lib/python{version}/site-packages").is_dir()
    ]
    return found[0] if found else None


def problem(found: Installation | None) -> str | None:
    """Why the embedded Triton cannot run in it, and the remedy. None: it can."""
    if found is None:
        return f"The embedded Triton is not installed in {place()}: {COMMAND}, {_ELSEWHERE}."
    if not found.python.exists():
        return f"The Python of {found.folder} is gone: {COMMAND}."
    numpy = found.version_of("numpy")
    if not numpy.startswith("1."):
        return (
            f"Triton's Python stub reads wrong tensors with numpy {numpy or 'missing'}, which is"
            f" in {found.folder}: {COMMAND}."
        )
    if not _is_up_to_date(found.folder):
        return f"{found.folder} has other packages than this Hilum asks for: {COMMAND}."
    return None


def install(say: Say = print, folder: Path | None = None) -> Installation:
    """Make the environment, unless it is there as the lock wants it.

    It is made beside its place and renamed when it is whole. Raises NotInstalled.
    """
    folder = folder or place()
    found = find(folder)
    if found and found.python.exists() and _is_up_to_date(folder):
        say(f"{folder} has the packages of {LOCK.name} already")
        return found
    _require_pip()
    python, version = _interpreter()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".triton-") as scratch:
            _make(Path(scratch, "new"), python, say)
            _exchange(Path(scratch, "new"), folder, Path(scratch, "old"))
    except OSError as error:
        raise NotInstalled(
            f"{folder} cannot be written ({error.strerror}): run the command as the user that"
            f" owns {folder.parent}"
        ) from error
    say(f"{folder} is ready; a server that runs uses it after its next start")
    return Installation(folder, version)


def _require_pip() -> None:
    try:
        _run([sys.executable, *_PIP, "--version"])
    except NotInstalled as error:
        raise NotInstalled(
            f"pip is not installed in {sys.prefix}: {sys.executable} -m ensurepip, {_ELSEWHERE}"
        ) from error


def _interpreter() -> tuple[str, str]:
    """A Python that Triton has a stub for, and its version: the one that runs Hilum, if it fits."""
    for version in sorted(PYTHONS, key=lambda each: each != _version_here()):
        for candidate in _candidates(version):
            if _answers(candidate, version):
                return candidate, version
    raise NotInstalled(
        f"The embedded Triton needs Python {' or '.join(PYTHONS)} beside the {_version_here()}"
        f" that runs Hilum: install one (Debian 12: apt install python3.11), {_ELSEWHERE}"
    )


def _candidates(version: str) -> Iterator[str]:
    name = f"python{version}"
    if version == _version_here():
        yield str(Path(sys.base_prefix, "bin", name))
    yield f"/usr/bin/{name}"
    if on_path := shutil.which(name):
        yield on_path


def _answers(python: str, version: str) -> bool:
    """Whether it is there, of this version, and can make environments."""
    code = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        asked = subprocess.run(  # noqa: S603 - an interpreter of the system, and code of ours
            [python, "-I", "-c", code], capture_output=True, text=True, check=False
        )
    except OSError:
        return False
    return asked.returncode == 0 and asked.stdout.strip() == version


def _version_here() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _make(folder: Path, python: str, say: Say) -> None:
    say(f"an environment of {python}")
    _run([python, "-I", "-m", "venv", "--without-pip", str(folder)])
    say(f"packages of {LOCK.name}: {', '.join(_pins(LOCK.read_text(encoding='utf-8')))}")
    target = str(folder / "bin/python")
    options = ["--quiet", *_LOCKED, *_PATIENCE, "--requirement", str(LOCK)]
    _run([sys.executable, *_PIP, "--python", target, "install", *options])
    (folder / _STAMP).write_text(_digest(), encoding="ascii")


def _pins(text: str) -> Iterable[str]:
    return (line.split()[0] for line in text.splitlines() if "==" in line and line[0] != "#")


def _run(command: list[str]) -> None:
    """Run a program. Raises NotInstalled with its last words."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    if done.returncode == 0:
        return
    if "DO NOT MATCH THE HASHES" in done.stderr:
        reason = f"a file is not the one that {LOCK.name} names; nothing was installed"
    else:
        reason = (
            "the packages could not be installed: is there a way to the package index"
            " (HTTPS_PROXY, PIP_INDEX_URL), or a folder of wheels (PIP_FIND_LINKS)?"
        )
    last = "\n  ".join(done.stderr.strip().splitlines()[-4:])
    raise NotInstalled(f"{reason}\n  {last}")


def _exchange(made: Path, folder: Path, old: Path) -> None:
    """Put the new environment in its place; the old one comes back where this fails."""
    if folder.exists():
        folder.rename(old)
    try:
        made.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise


def _digest() -> str:
    return hashlib.sha256(LOCK.read_bytes()).hexdigest()


def _is_up_to_date(folder: Path) -> bool:
    try:
        return (folder / _STAMP).read_text(encoding="ascii") == _digest()
    except FileNotFoundError:
        return False


def main() -> int:
    """Exit status 0: the environment is there."""
    try:
        install(lambda line: print(f"triton: {line}", flush=True))  # noqa: T201 - a script
    except NotInstalled as reason:
        print(f"triton: {reason}", file=sys.stderr)  # noqa: T201 - the same
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

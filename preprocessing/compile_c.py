"""Compile the C sources of this repository: at each installation, or by hand after a change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

_HERE = Path(__file__).resolve().parent
RESIZE = _HERE / "hilum_preprocessing/resize/resize.c"
TRANSFER = _HERE.parent / "server/hilum/receive/storage/transfer.c"
# Each source, and what is slower without it.
_SLOWER = {
    RESIZE.name: "torch will resize pictures, which takes three times as long",
    TRANSFER.name: "large objects will be received in Python",
}
_COMPILERS = ("cc", "gcc", "clang")
# No -march: a wheel may be copied to another machine. The sources themselves say what is compiled
# for AVX2.
_OPTIONS = ("-std=gnu11", "-O3", "-fPIC", "-shared")


def compiled(source: Path, environment: dict[str, str] | None = None) -> str | None:
    """Makes the library beside its source, or says why there is none.

    One that a running process has mapped is replaced, not written to.
    """
    environment = dict(os.environ) if environment is None else environment
    library = source.with_suffix(".so")
    fresh = source.with_suffix(f".so.{os.getpid()}")
    found = (shutil.which(name, path=environment.get("PATH", "")) for name in _COMPILERS)
    compiler = environment.get("CC") or next(filter(None, found), None)
    if compiler is None:
        library.unlink(missing_ok=True)
        return (
            f"no C compiler ({', '.join(_COMPILERS)}) on the PATH. Debian 12: sudo"
            " deploy/debian-packages.sh"
        )
    try:
        made = subprocess.run(
            [compiler, *_OPTIONS, "-o", fresh, source],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
    except OSError as error:
        library.unlink(missing_ok=True)
        return f"{compiler}: {error.strerror}"
    if made.returncode:
        fresh.unlink(missing_ok=True)
        library.unlink(missing_ok=True)
        return (
            f"{compiler} failed (Debian 12: sudo deploy/debian-packages.sh brings what it needs):"
            f" {made.stderr.strip()[-500:]}"
        )
    fresh.replace(library)
    return None


def problems(sources: Iterable[Path]) -> list[str]:
    """Compile these sources, and return the reasons why one is not compiled."""
    made = {source: compiled(source) for source in sources}
    return [f"{_SLOWER[source.name]}: {problem}" for source, problem in made.items() if problem]


if __name__ == "__main__":
    sys.exit("\n".join(problems(map(Path, sys.argv[1:]) if sys.argv[1:] else (RESIZE, TRANSFER))))

"""C of this repository, compiled for a test: with a mistake in it, or watched by sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

from hilum.receive.storage import compiled as compiled_transfer
from hilum.receive.storage import transfer_library
from hilum_preprocessing.resize import compiled as compiled_resize
from hilum_preprocessing.resize import library as resize_library
from tests.support.machine.forks import in_fork
from tests.support.peers.peers import require_program

COMPILERS = ("cc", "gcc", "clang")
_ROOT = Path(__file__).parents[3]
_OPTIONS = ("-std=gnu11", "-fPIC", "-shared")
_SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
# By library: where its path stands, and what loads it.
_LOADED: dict[str, tuple[ModuleType, ModuleType]] = {
    "resize.so": (resize_library, compiled_resize),
    "transfer.so": (transfer_library, compiled_transfer),
}


def quick_library(library: Path, text: str) -> Path:
    """Compile without optimisation, in half a second: none mends a mistake."""
    source = library.with_suffix(".c")
    source.write_text(text)
    compiler = next(filter(shutil.which, COMPILERS))
    subprocess.run([compiler, *_OPTIONS, "-O0", "-o", library, source], check=True)
    return library


def verdict_on(library: Path) -> tuple[bool, str]:
    """Whether a fresh process uses this library, and how it says that."""
    return in_fork(_verdict, library)


def _verdict(library: Path) -> tuple[bool, str]:
    paths, loading = _LOADED[library.name]
    paths.PATH = library  # type: ignore[attr-defined]
    loaded, how = loading.loaded()
    return loaded is not None, how


def require_no_access_outside(source: Path, library: Path, *program: str) -> None:
    """Run a Python program (its path comes last) with GCC's sanitizers inside the library."""
    gcc = require_program("gcc", "gcc")
    subprocess.run([gcc, *_OPTIONS, *_SANITIZERS, "-o", library, source], check=True)
    runtime = subprocess.run(
        [gcc, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    guarded = {**os.environ, "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0"}
    found = subprocess.run(
        [sys.executable, *program, library],
        capture_output=True,
        text=True,
        check=False,
        env=guarded,
        cwd=_ROOT,
    )
    assert found.stdout == "nothing outside\n", found.stderr[-3000:]

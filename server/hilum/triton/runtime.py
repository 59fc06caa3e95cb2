"""The source of tritonserver, and the folder from which it can run.

The nvidia-pytriton wheel carries NVIDIA's binaries; its Python code is not used. It is in an
environment of its own (installation.py). The Python stub must be beside the backend's library, and
site-packages may be read-only, so a small run-time folder is put together in the state folder.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hilum.store.archive.directory_sync import sync_file_system
from hilum.triton import installation, sandbox
from hilum.triton.installation import Installation

FOLDER: Final = "triton"
"""In the state folder: the run-time folders."""
_DISTRIBUTION: Final = "nvidia-pytriton"
_GLIBC: Final = (2, 35)  # the wheel is manylinux_2_35
_BACKEND: Final = Path("backends/python")  # below a run-time folder
_KEPT: Final = frozenset({"LANG", "TZ", "GLIBC_TUNABLES"})
# Of C, OpenMP and its runtimes, oneTBB, OpenVINO, ONNX Runtime and GPUs.
_ENGINES: Final = (
    "LC_",
    "OMP_",
    "KMP_",
    "GOMP_",
    "TBB_",
    "MKL_",
    "OPENBLAS_",
    "MALLOC_",
    "OV_",
    "OPENVINO_",
    "ORT_",
    "CUDA_",
    "NVIDIA_",
)


@dataclass(frozen=True, slots=True)
class Wheel:
    """The content of the installed wheel, and the environment in which it is."""

    version: str
    tritonserver: Path
    backend: Path
    caches: Path
    libraries: Path
    stub: Path
    installation: Installation

    @property
    def folders(self) -> tuple[str, ...]:
        """All that it reads: its environment, and the Python from which that was made."""
        return str(self.installation.folder), str(self.installation.base)


def find() -> Wheel | None:
    """The wheel, located without importing it; None: not installed."""
    found = installation.find()
    version = found.version_of(_DISTRIBUTION) if found else ""
    if found is None or not version:
        return None
    server = found.packages / "pytriton/tritonserver"
    return Wheel(
        version=version,
        tritonserver=server / "bin/tritonserver",
        backend=server / "backends/python",
        caches=server / "caches",
        libraries=found.packages / "nvidia_pytriton.libs",
        stub=server / f"python_backend_stubs/{found.version}/triton_python_backend_stub",
        installation=found,
    )


def preflight() -> list[str]:
    """Every reason why the embedded server could not run here, each with a remedy.

    Empty: it can.
    """
    found = installation.find()
    checks = (
        _machine_problem(),
        installation.problem(found),
        wheel_problem(find()) if found else None,
        glibc_problem(platform.libc_ver()),
        _libpython_problem(found) if found else None,
        sandbox.problem(),
    )
    return [problem for problem in checks if problem]


def _machine_problem() -> str | None:
    if sys.platform == "linux" and platform.machine() == "x86_64":
        return None
    here = f"{sys.platform} {platform.machine()}"
    return (
        f"The embedded Triton runs on Linux x86_64, this is {here}: set triton.url to a Triton that"
        " runs elsewhere."
    )


def wheel_problem(wheel: Wheel | None) -> str | None:
    """Not installed, or not whole."""
    if wheel is None:
        return f"The tritonserver of {_DISTRIBUTION} is not installed: {installation.COMMAND}."
    parts = (wheel.tritonserver, wheel.backend / "libtriton_python.so", wheel.stub)
    missing = next((path for path in parts if not path.is_file()), None)
    if missing is None:
        return None
    return (
        f"{_DISTRIBUTION} {wheel.version} lacks {missing}: remove {wheel.installation.folder}, then"
        f" {installation.COMMAND}."
    )


def glibc_problem(found: tuple[str, str]) -> str | None:
    """`found`: name and version, as platform.libc_ver gives them."""
    name, version = found
    if name != "glibc" or tuple(int(part) for part in version.split(".")[:2]) < _GLIBC:
        need = ".".join(map(str, _GLIBC))
        here = f"{name or 'another libc'} {version}"
        return (
            f"The embedded Triton needs glibc {need}, this is {here}: use Debian 12, Ubuntu 22.04"
            " or newer, or set triton.url."
        )
    return None


def _libpython_problem(found: Installation) -> str | None:
    """The stub is linked against the shared library of its Python, which may be elsewhere."""
    if (_library_folder(found) / _libpython(found)).is_file():
        return None
    try:
        ctypes.CDLL(_libpython(found))
    except OSError:
        return (
            f"Triton's Python stub needs {_libpython(found)}: apt install libpython{found.version}."
        )
    return None


def _libpython(found: Installation) -> str:
    return f"libpython{found.version}.so.1.0"


def _library_folder(found: Installation) -> Path:
    return found.base / "lib"


def prepare(wheel: Wheel, state_dir: Path) -> Path:
    """The run-time folder of this wheel's version, made on first use.

    Several processes may race, one wins whole.

    One that is not whole, as a power cut could leave it before its bytes were synced here, is made
    again.
    """
    target = state_dir / FOLDER / f"{wheel.version}-py{wheel.installation.version.replace('.', '')}"
    parts = (
        wheel.backend / "libtriton_python.so",
        wheel.backend / "triton_python_backend_utils.py",
        wheel.stub,
    )
    if _is_whole(target, parts):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".making-") as scratch:
        made = Path(scratch, "runtime")
        backend = made / _BACKEND
        backend.mkdir(parents=True)
        for part in parts:
            shutil.copy2(part, backend / part.name)
        (backend / wheel.stub.name).chmod(0o755)
        sync_file_system(made)
        if target.is_dir() and not _is_whole(target, parts):
            with contextlib.suppress(FileNotFoundError):  # another process has just done it
                target.rename(Path(scratch, "damaged"))
        _rename_unless_there(made, target)
    return target


def _is_whole(target: Path, parts: Sequence[Path]) -> bool:
    """Compare by the sizes of the files.

    Reading them all at each start would take longer than making them.
    """
    try:
        return all(
            (target / _BACKEND / part.name).stat().st_size == part.stat().st_size for part in parts
        )
    except FileNotFoundError:
        return False


def _rename_unless_there(made: Path, target: Path) -> None:
    try:
        made.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def environment(wheel: Wheel, own_folder: Path, *, has_collector: bool = False) -> dict[str, str]:
    """Variables for tritonserver and its stubs.

    The environment's Python first in PATH, libraries, those of engines. Settings and secrets are
    left out. `own_folder`: for temporary files, and its home.
    `has_collector`: variables of OpenTelemetry are passed on, such as headers for the collector.
    """
    prefixes = (*_ENGINES, "OTEL_") if has_collector else _ENGINES
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or name.startswith(prefixes)
    }
    found = wheel.installation
    libraries = [str(wheel.libraries)]
    if (_library_folder(found) / _libpython(found)).is_file():
        libraries.append(str(_library_folder(found)))
    libraries += filter(None, [os.environ.get("LD_LIBRARY_PATH")])
    return kept | {
        "PATH": os.pathsep.join([str(found.python.parent), os.environ.get("PATH", os.defpath)]),
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        # OpenVINO keeps a number for its telemetry in the home, and fails where it cannot.
        "HOME": str(own_folder),
        "TMPDIR": str(own_folder),
    }

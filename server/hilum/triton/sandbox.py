"""The sandbox of the embedded tritonserver: the launcher enters it before it becomes tritonserver.

Standard library only: the launcher runs without site-packages.
"""

from __future__ import annotations

import glob
import json
import os
import resource
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from hilum.triton import capabilities, landlock, seccomp

SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - where shm_open(3) makes its files on Linux
_UMASK: Final = 0o077
_SYSTEM: Final = ("/usr", "/bin", "/lib", "/lib32", "/lib64", "/proc", "/sys")
# Loaders, engines and name look-ups read these of /etc. Our own settings may lie there, too.
_ETC: Final = (
    *(
        "ld.so.cache",
        "ld.so.conf",
        "ld.so.conf.d",
        "alternatives",
        "localtime",
        "OpenCL",
        "nvidia",
        "vulkan",
    ),
    *(
        "group",
        "passwd",
        "nsswitch.conf",
        "host.conf",
        "hosts",
        "gai.conf",
        "resolv.conf",
        "ssl/certs",
        "ssl/openssl.cnf",
    ),
)
# The Python backend makes and removes an empty folder there at each start, whatever TMPDIR says.
_TEMPORARY: Final = "/tmp"  # noqa: S108 - nothing is read or written there
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "nvidia*", "dri", "kfd")


@dataclass(frozen=True, slots=True)
class Sandbox:
    """Limits. `readable`, `writable`: folders. `collector_port`: for spans; 0: no connections."""

    readable: tuple[str, ...]
    writable: tuple[str, ...]
    collector_port: int = 0

    def dump(self) -> str:
        """JSON for the launcher's command line; it holds paths and no secret."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Sandbox:
        """From `dump`."""
        values = json.loads(text)
        return cls(tuple(values["readable"]), tuple(values["writable"]), values["collector_port"])

    def enter(self) -> None:
        """Apply the limits to this process and its children, for good.

        Raises OSError where the filter of system calls cannot be had.
        """
        os.umask(_UMASK)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        capabilities.drop()
        landlock.restrict(self._rules(), [self.collector_port] if self.collector_port else [])
        seccomp.restrict(seccomp.denials(has_collector=bool(self.collector_port)))

    def _rules(self) -> Iterator[tuple[str, int]]:
        yield from (
            (path, landlock.READ)
            for path in (*_SYSTEM, *(f"/etc/{name}" for name in _ETC), *self.readable)
        )
        yield from (
            # Texts are wanted.
            (device, landlock.USE)
            for name in _DEVICES
            for device in glob.glob(f"/dev/{name}")  # noqa: PTH207
        )
        yield _TEMPORARY, landlock.MAKE_FOLDERS
        yield from ((path, landlock.WRITE) for path in (SHARED_MEMORY, *self.writable))

    def seen(self, paths: Iterable[Path]) -> list[Path]:
        """Those of these paths that it could read, because they are in a folder that it needs."""
        open_to_it = (*_SYSTEM, *self.readable, *self.writable)
        return [path for path in paths if any(_is_below(path, folder) for folder in open_to_it)]

    def removable(self, paths: Iterable[Path]) -> list[Path]:
        """Those of these paths that it could remove without reading them."""
        return [path for path in paths if _is_below(path, _TEMPORARY)]


def _is_below(path: Path, folder: str) -> bool:
    return _real(path).is_relative_to(_real(folder))


def _real(path: Path | str) -> Path:
    return Path(os.path.realpath(path))


def library_folders() -> tuple[str, ...]:
    """Folders of LD_LIBRARY_PATH."""
    return tuple(filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)))


def problem(library: str = seccomp.LIBRARY) -> str | None:
    """Why there can be no sandbox here; None: there can.

    One without Landlock still has the filter.
    """
    if not seccomp.is_installed(library):
        return (
            f"The embedded Triton's sandbox needs {library}: apt install libseccomp2, or set"
            " triton.url to a Triton that runs elsewhere."
        )
    if not seccomp.is_available():
        return (
            "The embedded Triton cannot be shut in here, as this kernel has no seccomp: set"
            " triton.url to a Triton that runs elsewhere."
        )
    return None

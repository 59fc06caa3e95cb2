"""The listener that is fuzzed.

A real process with short time-outs, and what can be seen of it from outside.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from hilum.settings import Settings
from hilum.store.archive.archive import Archive
from hilum.store.migrations.migrate import migrate
from load_tests.ingest.receivers import listens
from testing.serving import REPOSITORY, free_ports

_FAILURE = re.compile(
    r"Traceback|association_failed|connection_failed|thread_failed|quarantined|not_indexed"
)
_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.2
_STEADY_LOOKS = 10
# A peer that promises more than it sends waits for these.
_SECONDS = {"acse_timeout_seconds": 5, "network_timeout_seconds": 5}


@dataclass(frozen=True, slots=True)
class Size:
    """What a leak would show in."""

    threads: int
    descriptors: int
    ledger_descriptors: int
    mib: float


class FuzzedListener:
    """`serve_listener`, or its oracle, in a process, alive inside a `with` block."""

    def __init__(self, folder: Path, program: str = "load_tests.ingest.receivers") -> None:
        """`program`: the module that serves."""
        self._program = program
        (self.port,) = free_ports(1)
        receive = {"host": "127.0.0.1", "port": self.port, "reserve_bytes": 0, **_SECONDS}
        self._settings = Settings.model_validate(
            {"site": {"state_dir": folder}, "receive": receive}
        )
        self._folder = folder
        self.archive = Archive(self._settings.archive_dir)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start, and wait until it listens."""
        self._folder.mkdir(parents=True)
        migrate(self._settings.ledger_url)
        (self._folder / "settings.json").write_text(self._settings.dump(), encoding="utf-8")
        command = [sys.executable, "-m", self._program, str(self._folder / "settings.json")]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=REPOSITORY, stdout=log, stderr=log)
        wait_until(lambda: listens(self.port), "the listener to listen")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """By kill -9: an orderly end is not what is looked at."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @property
    def _log(self) -> Path:
        return self._folder / "listener.log"

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    def failures(self) -> list[str]:
        """Lines of its log that no peer may cause."""
        return [
            line
            for line in self._log.read_text(encoding="utf-8", errors="replace").splitlines()
            if _FAILURE.search(line)
        ]

    def size(self) -> Size:
        """Now."""
        assert self._process is not None
        root = Path(f"/proc/{self._process.pid}")
        resident = (root / "status").read_text(encoding="ascii").split("VmRSS:")[1].split()[0]
        ledger, others = _descriptors(root / "fd")
        return Size(_count(root / "task"), others, ledger, int(resident) / 1024)

    def steady(self) -> Size:
        """Its size when threads have neither come nor gone for two seconds.

        After the start, or when peers have been served.
        """
        sizes = [self.size()]
        while (
            len({size.threads for size in sizes[-_STEADY_LOOKS:]}) > 1 or len(sizes) < _STEADY_LOOKS
        ):
            time.sleep(_LOOK_SECONDS)
            sizes.append(self.size())
        return sizes[-1]

    def rest(self, idle: Size) -> Size:
        """Its size when every acknowledged object is indexed and no association is left, or after a minute."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline and (
            any(self.archive.unindexed()) or self._is_busier_than(idle)
        ):
            time.sleep(_LOOK_SECONDS)
        return self.size()

    def _is_busier_than(self, idle: Size) -> bool:
        now = self.size()
        return now.threads > idle.threads or now.descriptors > idle.descriptors

    def half_received(self) -> int:
        """Files that should have gone with their associations."""
        return sum(1 for _ in self.archive.root.rglob("*.part"))


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())


def _descriptors(folder: Path) -> tuple[int, int]:
    """Those of the ledger, of which its pool keeps some, depending on who met in it.

    And all others.
    """
    names = []
    for descriptor in folder.iterdir():
        with suppress(FileNotFoundError):  # closed since
            names.append(str(descriptor.readlink()))
    ledger = sum("/ledger.sqlite" in name for name in names)
    return ledger, len(names) - ledger


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Raises RuntimeError after a minute."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited in vain for {what}")
        time.sleep(0.05)


def growth(before: Size, after: Size) -> dict[str, float]:
    """What has become more."""
    ago = asdict(before)
    return {name: round(value - ago[name], 1) for name, value in asdict(after).items()}

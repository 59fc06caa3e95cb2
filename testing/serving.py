"""A Hilum of one's own: settings in a folder, free ports, started, watched and stopped as an operator would."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx

from hilum.toml import inline

REPOSITORY = Path(__file__).resolve().parents[1]
# Built once for a checkout: models do not depend on where an installation keeps its state.
BUILT_MODELS = REPOSITORY / "state" / "models"
_RESERVED: list[socket.socket] = []  # one for each port that this process was given
# One for all: httpx.get reads every root certificate for each request, 25 ms of CPU, and who waits
# asks often. No connection is kept, because the server at its other end may be killed.
_CLIENT = httpx.Client(timeout=10, limits=httpx.Limits(max_keepalive_connections=0))

Section = Mapping[str, Any]


class HilumEnded(Exception):
    """`hilum serve` ended by itself, or did not become ready in time; holds the end of its log."""


class Hilum:
    """`hilum serve` on loopback with its state in `folder`.

    A context manager: it starts on entry and is stopped on exit.
    """

    def __init__(
        self, folder: Path, destinations: Mapping[str, Section], **sections: Section
    ) -> None:
        self.folder = folder
        self.dicom_port, self.api_port = free_ports(2)
        self.settings_file = folder / "hilum.toml"
        self.log = folder / "hilum.log"
        self._destinations = destinations
        self._sections = sections
        self.role = "all"  # or one, as on one of several machines
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def api(self) -> str:
        """Address of REST, health and metrics."""
        return f"http://127.0.0.1:{self.api_port}"

    @property
    def pid(self) -> int:
        """The supervisor's process id. Raises HilumEnded before the first start."""
        if self._process is None:
            raise HilumEnded("hilum serve was not started")
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether `hilum serve` lives."""
        return self._process is not None and self._process.poll() is None

    def write_settings(self) -> None:
        """The settings file: loopback only; sections given to the constructor win."""
        sections: dict[str, Section] = {
            "site": {"state_dir": str(self.folder / "state")},
            "receive": {"host": "127.0.0.1", "port": self.dicom_port, "reserve_bytes": 1 << 28},
            "models": {"built": str(BUILT_MODELS)},
            "api": {"port": self.api_port},
            **{f"destinations.{name}": table for name, table in self._destinations.items()},
        }
        for name, table in self._sections.items():
            sections[name] = {**sections.get(name, {}), **table}
        self.folder.mkdir(parents=True, exist_ok=True)
        self.settings_file.write_text(as_toml(sections), encoding="utf-8")

    def command(self, *words: str) -> list[str]:
        """A `hilum` command line with these settings."""
        return [hilum_program(), *words, "--config", str(self.settings_file)]

    def __enter__(self) -> Hilum:
        """Start the processes; `wait_until_ready` says when they may be used."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command("serve", "--role", self.role),
                stdout=log,
                stderr=log,
                env=environment_without_settings(),
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop, however the block ended."""
        self.stop()

    def wait_until_ready(
        self, seconds: float, progress: Callable[[str], None] = lambda _: None
    ) -> None:
        """Until all roles are ready.

        `progress` hears what is still missing, each time it changes. Raises HilumEnded.
        """
        last = ""
        deadline = time.monotonic() + seconds
        while (missing := self._missing()) is not None:
            if missing != last:
                progress(missing)
                last = missing
            if self._process is None or self._process.poll() is not None:
                raise HilumEnded(f"hilum serve ended by itself.\n{self.log_end()}")
            if time.monotonic() > deadline:
                raise HilumEnded(f"not ready after {seconds:.0f} s: {missing}\n{self.log_end()}")
            time.sleep(0.2)

    @property
    def headers(self) -> dict[str, str]:
        """The token that Hilum makes for its own user at its first start; before that, none."""
        file = self.folder / "state" / "run" / "api-token"
        return {"Authorization": f"Bearer {file.read_text()}"} if file.exists() else {}

    def get(self, path: str) -> httpx.Response:
        """Answer of a REST address."""
        return _CLIENT.get(self.api + path, headers=self.headers)

    def post(
        self,
        path: str,
        json: object = None,
        content: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Answer to a verb."""
        given = {**self.headers, **(headers or {})}
        return _CLIENT.post(self.api + path, json=json, content=content, headers=given, timeout=60)

    def stop(self) -> int:
        """SIGTERM, then wait for the drain; the exit code.

        SIGKILL for the whole group after 45 s.
        """
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout=45)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            return self._process.wait()

    def log_end(self, lines: int = 15) -> str:
        """The last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _missing(self) -> str | None:
        """What is not ready yet, None when everything is."""
        try:
            answer = self.get("/health/ready")
        except httpx.TransportError:
            return "the API does not answer yet"
        return (
            None if answer.is_success else "; ".join(_failed_checks(answer.json())) or "not ready"
        )


def hilum_program() -> str:
    """The `hilum` command of the environment that runs this."""
    return str(Path(sys.executable).with_name("hilum"))


def free_ports(count: int) -> list[int]:
    """Unused TCP ports of loopback, below those that the kernel gives to connections.

    They stay free until they are bound.

    No other process that asks here, and no later call, gets one of them while this process lives.
    """
    found: list[int] = []
    while len(found) < count:
        port = random.randint(20_000, 32_000)
        with contextlib.suppress(OSError):
            # First: a look listens for a moment, and the holder of this port may be proving that
            # nothing answers there.
            _reserve(port)
            socket.create_server(("127.0.0.1", port)).close()
            found.append(port)
    return found


def _reserve(port: int) -> None:
    """By an abstract socket name, which the kernel gives back when this process ends.

    Raises OSError when somebody holds it.
    """
    holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        holder.bind(f"\0hilum-test-port-{port}")
    except OSError:
        holder.close()
        raise
    _RESERVED.append(holder)


def as_toml(sections: Mapping[str, Section]) -> str:
    """Tables of strings, numbers, booleans, lists and tables."""
    tables = (
        f"[{name}]\n" + "".join(f"{key} = {inline(value)}\n" for key, value in table.items())
        for name, table in sections.items()
    )
    return "\n".join(tables)


def environment_without_settings() -> dict[str, str]:
    """This process's environment without settings.

    A variable of the caller's must not reach the measured server.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HILUM_")}
    return kept | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def _failed_checks(answer: object) -> list[str]:
    """Name and detail of every check that is not ok, wherever it stands in the answer."""
    if isinstance(answer, list):
        return [text for item in answer for text in _failed_checks(item)]
    if not isinstance(answer, dict):
        return []
    own = (
        [f"{answer.get('name', '')}: {answer.get('detail', '')}"]
        if answer.get("ok") is False and "name" in answer
        else []
    )
    return own + [text for item in answer.values() for text in _failed_checks(item)]

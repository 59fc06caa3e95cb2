"""The embedded tritonserver, a child process of the supervisor: explicit models, a sandbox.

Its Unix socket is in a folder of mode 0700: docs/decisions/embedded-triton-by-unix-socket.md.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from hilum.errors import ConfigurationError
from hilum.observability import telemetry
from hilum.triton import command, leftovers, runtime, sandbox

_LAUNCHER: Final = Path(__file__).with_name("launcher.py")
_POLL_SECONDS: Final = 0.05
_ATTEMPTS: Final = 3
_KILL_AFTER_SECONDS: Final = 5.0  # beyond Triton's own exit timeout
_LOG_BYTES: Final = 8 << 20
_HARMLESS: Final = "CudaDriverHelper"  # an E line of every start without a GPU

log = telemetry.logger("triton")

_NICE = 5  # as the analyser


class EmbeddedTriton:
    """One tritonserver over `<built_dir>/embedded`.

    `start` must be called by a thread that lives as long as the server: the kernel ends the server
    with that thread.
    """

    def __init__(
        self,
        built_dir: Path,
        state_dir: Path,
        triton_names: Sequence[str],
        start_timeout_seconds: float = 120.0,
        exit_timeout_seconds: float = 15.0,
        traces_to: str = "",
    ) -> None:
        self._repository = (built_dir / "embedded").resolve()
        self._state_dir = state_dir.resolve()
        self._names = tuple(triton_names)
        self._start_timeout = start_timeout_seconds
        self._exit_timeout = exit_timeout_seconds
        self._traces_to = traces_to
        self._region_prefix = leftovers.prefix(state_dir)
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        self._folder: Path | None = None

    @property
    def pid(self) -> int | None:
        """Process id, once started."""
        return self._process.pid if self._process else None

    @property
    def log_file(self) -> Path:
        """The output of tritonserver itself; it holds no patient data."""
        return self._state_dir / "run/tritonserver.log"

    @property
    def usual_folder(self) -> Path:
        """The path of its socket, unless that name is too long for one."""
        return self._state_dir / "run/triton"

    def poll(self) -> int | None:
        """Exit status, None while it runs (and before it was started)."""
        return self._process.poll() if self._process else None

    def start(self, is_over: Callable[[], bool] = lambda: False) -> str:
        """Start and wait until every model is loaded; the gRPC address, the same after a crash.

        One that is killed meanwhile, as by the kernel for want of memory, is started again: that
        must not take the listeners along.
        Raises ConfigurationError when it cannot run here, a release is not built, a model does not
        load, it takes too long, or
        `is_over` says that it is not wanted any more.
        """
        wheel = self.require_startable()
        for _ in range(_ATTEMPTS):
            if swept := leftovers.sweep(self._region_prefix):
                log.info("leftovers_swept", what=swept)
            folder = self._own_folder()
            self._spawn(wheel, folder)
            if self._is_ready_in_time(folder, is_over):
                self._require_private_regions()
                log.info("triton_ready", pid=self.pid, models=len(self._names))
                return command.url(folder)
            if is_over() or not self._was_killed():
                break
        raise ConfigurationError([self._why_it_ended()])

    def stop(self) -> int | None:
        """SIGTERM, so that the queue is finished; SIGKILL if that takes too long.

        Exit status, None if it never ran.
        """
        process = self._process
        if process is None:
            return None
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(self._exit_timeout + _KILL_AFTER_SECONDS)
            except subprocess.TimeoutExpired:
                log.warning("triton_killed", pid=process.pid)
                process.kill()
                process.wait()
        leftovers.sweep(self._region_prefix)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        return process.returncode

    def sandbox(self, wheel: runtime.Wheel, own_folder: Path) -> sandbox.Sandbox:
        """Its limits: folders that it reads and writes, and the port for spans."""
        return sandbox.Sandbox(
            readable=(
                *wheel.folders,
                *sandbox.library_folders(),
                str(self._repository),
                str(self._state_dir / runtime.FOLDER),
            ),
            writable=(str(own_folder),),
            collector_port=_port(self._traces_to),
        )

    def _own_folder(self) -> Path:
        """An empty folder of mode 0700 for its socket and its temporary files.

        It is in /tmp if the usual name is too long for a socket.
        """
        folder = self.usual_folder
        if command.fits(folder):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(mode=0o700, parents=True)
            self._folder = folder
        elif self._folder is None or not self._folder.is_dir():
            self._folder = Path(tempfile.mkdtemp(prefix="hilum-triton-"))
        return self._folder

    def _require_private_regions(self) -> None:
        """Stop if the sandbox did not keep others out of shared memory. No image is in it yet."""
        if opened := leftovers.open_to_others(self._region_prefix):
            self.stop()
            raise ConfigurationError(
                [
                    (
                        f"tritonserver's shared memory is open to other accounts ({opened[0]}): set"
                        " triton.url."
                    )
                ]
            )

    def require_startable(self) -> runtime.Wheel:
        """The program and files from which it is started.

        Raises ConfigurationError when it cannot run here, or a release is not built.
        """
        if self._process and self._process.poll() is None:
            raise RuntimeError("tritonserver is already running")
        wheel = runtime.find()
        problems = runtime.preflight()
        for name in self._names:
            if not (self._repository / name / "config.pbtxt").is_file():
                problems.append(
                    f"{name} is not built in {self._repository}: run `hilum models build`."
                )
        if problems or wheel is None:
            raise ConfigurationError(problems)
        return wheel

    def _spawn(self, wheel: runtime.Wheel, own_folder: Path) -> None:
        folder = runtime.prepare(wheel, self._state_dir)
        limits = self.sandbox(wheel, own_folder).dump()
        launcher = [
            sys.executable,
            "-I",
            "-S",
            str(_LAUNCHER),
            str(os.getpid()),
            limits,
            str(wheel.tritonserver),
        ]
        fixed = (
            self._repository,
            self._names,
            folder / "backends",
            wheel.caches,
            self._region_prefix,
            self._exit_timeout,
        )
        options = command.arguments(*fixed, self._traces_to)
        self._turn_log()
        with self.log_file.open("ab") as sink:
            self._log_start = sink.tell()
            # Its own session: Ctrl-C in a terminal is for the supervisor, which stops the server
            # last.
            self._process = subprocess.Popen(  # noqa: S603 - our own launcher and the wheel's binary, no shell
                [*launcher, *options],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=runtime.environment(wheel, own_folder, has_collector=bool(self._traces_to)),
                cwd=own_folder,
                start_new_session=True,
            )
        # Receiving and reporting take little and are waited for; the engine takes what is left. Its
        # stubs come later, and inherit this.
        os.setpriority(
            os.PRIO_PROCESS, self._process.pid, os.getpriority(os.PRIO_PROCESS, 0) + _NICE
        )

    def _is_ready_in_time(self, own_folder: Path, is_over: Callable[[], bool]) -> bool:
        """True: every model is loaded.

        False: it ended by itself, or is not wanted. Too late: it is ended, and ConfigurationError.
        """
        deadline = time.monotonic() + self._start_timeout
        while self.poll() is None and not is_over():
            if command.is_ready(own_folder):
                return True
            if time.monotonic() > deadline:
                self.stop()
                limit = f"{self._start_timeout:g} s (triton.start_timeout_seconds)"
                raise ConfigurationError(
                    [f"tritonserver was not ready within {limit}; its log: {self.log_file}"]
                )
            time.sleep(_POLL_SECONDS)
        return False

    def _turn_log(self) -> None:
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        if self.log_file.is_file() and self.log_file.stat().st_size > _LOG_BYTES:
            self.log_file.replace(self.log_file.with_suffix(".log.1"))

    def _last_log(self) -> list[str]:
        """Lines of the present run."""
        with self.log_file.open("rb") as source:
            source.seek(self._log_start)
            return source.read(_LOG_BYTES).decode(errors="replace").splitlines()

    def _was_killed(self) -> bool:
        """Ended by a signal, and not because of a request."""
        status = self.poll()
        return status is not None and status < 0

    def _why_it_ended(self) -> str:
        lines = [line for line in self._last_log() if _HARMLESS not in line]
        errors = [
            line for line in lines if " E " in line[:40] or line.startswith("error:")
        ] or lines[-5:]
        shown = "\n  ".join(line[:400] for line in errors[:5])
        return (
            f"tritonserver ended with status {self.poll()} before it was ready:\n  {shown}\n  The"
            f" whole log: {self.log_file}"
        )


def _port(url: str) -> int:
    """Of a collector's URL; 0: there is none."""
    if not url:
        return 0
    parts = urlsplit(url)
    return parts.port or {"https": 443}.get(parts.scheme, 80)

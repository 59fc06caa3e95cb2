"""The dispatcher as a process of its own, as the supervisor of a host starts it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hilum.services.launch_spec import LaunchSpec
from hilum.settings import Settings


@contextmanager
def dispatcher(settings: Settings, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process, killed at the end with those that it has left; its log is added to `log`."""
    spec = LaunchSpec("dispatcher", os.getpid(), settings.dump())
    command = [sys.executable, "-m", "hilum.processes", "dispatcher-0"]
    with (
        log.open("ab") as stream,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=stream, stderr=stream, start_new_session=True
        ) as running,
    ):
        assert running.stdin is not None
        running.stdin.write(spec.dump())
        running.stdin.close()
        try:
            yield running
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)

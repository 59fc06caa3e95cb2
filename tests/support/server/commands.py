"""`hilum` commands, each in a forked process. `test_cli.test_version` starts the program itself."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from testing.serving import hilum_program
from tests.support.machine.forks import FORKS, become_program


def hilum(
    *words: str | Path,
    folder: Path | str = "/",
    environment: Mapping[str, str] | None = None,
    user: int | None = None,
    typed: str = "",
    seconds: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """`hilum WORDS` in `folder`, without settings of the caller's environment but those given.

    `user`: for root only.
    """
    command = [hilum_program(), *map(str, words)]
    apart = {name: value for name, value in os.environ.items() if not name.startswith("HILUM_")}
    with tempfile.TemporaryDirectory() as made:
        streams = [Path(made, name) for name in ("typed", "stdout", "stderr")]
        for stream, text in zip(streams, (typed, "", ""), strict=True):
            stream.write_text(text)
        process = FORKS.Process(
            target=_run,
            args=(
                command,
                streams,
                folder,
                {**apart, "COLUMNS": "80", **(environment or {})},
                user,
            ),
        )
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(
                command, seconds, streams[1].read_bytes(), streams[2].read_bytes()
            )
        return subprocess.CompletedProcess(
            command, process.exitcode, streams[1].read_text(), streams[2].read_text()
        )


def _run(
    command: list[str],
    streams: list[Path],
    folder: Path | str,
    environment: Mapping[str, str],
    user: int | None,
) -> None:
    """In the forked process: what the program would find, then what it does."""
    from hilum.__main__ import main

    become_program(streams, folder, environment)
    if user is not None:
        os.setreuid(user, user)
    sys.argv = command
    main()

"""`hilum` commands, each in a process of its own. A fork server has imported what they need.

A start of Python and its imports cost a command a second of CPU; a fork costs a few milliseconds.
`test_cli.test_version` starts the program itself.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from testing.serving import hilum_program

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    [
        "hilum.cli",
        "sqlalchemy.dialects.sqlite",
        "alembic.command",
        "fastapi",
        "pydicom",
        "pynetdicom",
        "PIL.Image",
        "requests",
        "torch",
    ]
)


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
        process = _SERVER.Process(
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

    for descriptor, (stream, flags) in enumerate(
        zip(streams, (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=True)
    ):
        os.dup2(opened := os.open(stream, flags | os.O_APPEND), descriptor)
        os.close(opened)
    sys.stdin = os.fdopen(0, closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    os.umask(0o022)
    if user is not None:
        os.setreuid(user, user)
    sys.argv = command
    main()

"""Processes forked from a server that has imported what they need.

A start of Python and its imports cost a process a second of CPU; a fork costs a few milliseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar, cast

T = TypeVar("T")

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "hilum.cli",
        "hilum.receive.listener",
        "hilum_preprocessing.resize.compiled",
        "sqlalchemy.dialects.sqlite",
        "alembic.command",
        "fastapi",
        "pydicom",
        "pynetdicom",
        "PIL.Image",
        "requests",
        "tests.support.peers.committing",
        "tests.support.server.listening",
        "torch",
    ]
)


def become_program(
    streams: Sequence[Path], folder: Path | str = "/", environment: Mapping[str, str] | None = None
) -> None:
    """Give a forked process what a started one has: three streams, a folder, an environment.

    `environment`: instead of that of the fork server.
    """
    for descriptor, (stream, flags) in enumerate(
        zip(streams, (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT), strict=True)
    ):
        os.dup2(opened := os.open(stream, flags | os.O_APPEND, 0o644), descriptor)
        os.close(opened)
    sys.stdin = os.fdopen(0, closefd=False)
    os.chdir(folder)
    if environment is not None:
        os.environ.clear()
        os.environ.update(environment)
    os.umask(0o022)


def in_fork(function: Callable[..., T], *args: object) -> T:
    """What `function` returns in a forked process. Raises EOFError if that process dies."""
    receiver, sender = FORKS.Pipe(duplex=False)
    with receiver:
        child = FORKS.Process(target=_answer, args=(sender, function, args), daemon=True)
        child.start()
        sender.close()
        try:
            return cast("T", receiver.recv())
        finally:
            child.join()


def _answer(sender: Connection, function: Callable[..., object], args: tuple[object, ...]) -> None:
    with sender:
        sender.send(function(*args))

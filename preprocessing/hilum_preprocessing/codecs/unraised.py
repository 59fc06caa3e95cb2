"""Exceptions that a C extension could not pass on, and only reports to `sys.unraisablehook`.

Torch-free.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_lock = threading.Lock()
# By thread: the hook runs on the thread that dropped the exception.
_blocks: dict[int, list[type[BaseException]]] = {}
_previous: Callable[[Any], Any] = sys.__unraisablehook__


@contextmanager
def dropped_exceptions() -> Iterator[list[type[BaseException]]]:
    """The exceptions that were dropped on this thread while the block ran.

    Other threads' go where they would have gone.
    """
    dropped: list[type[BaseException]] = []
    _open(dropped)
    try:
        yield dropped
    finally:
        _close()


def _open(dropped: list[type[BaseException]]) -> None:
    global _previous  # noqa: PLW0603 - the hook is the process's own
    with _lock:
        if not _blocks:
            _previous = sys.unraisablehook
            sys.unraisablehook = _note
        _blocks[threading.get_ident()] = dropped


def _close() -> None:
    with _lock:
        del _blocks[threading.get_ident()]
        if not _blocks:
            sys.unraisablehook = _previous


def _note(args: Any) -> None:  # noqa: ANN401 - sys.UnraisableHookArgs, which has no public type
    dropped = _blocks.get(threading.get_ident())
    if dropped is None:
        _previous(args)
    else:
        dropped.append(args.exc_type)

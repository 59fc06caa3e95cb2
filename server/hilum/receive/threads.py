"""Threads that log under the name of their process, and the log of their failures."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable

from hilum.observability import telemetry

_log = telemetry.logger("receive")


def start_thread(name: str, target: Callable[..., object], *arguments: object) -> threading.Thread:
    """Return a running daemon thread with a copy of our context.

    The process's name is in the context, and a thread does not inherit it.
    """
    thread = threading.Thread(
        target=contextvars.copy_context().run, args=(target, *arguments), name=name, daemon=True
    )
    thread.start()
    return thread


def log_failures() -> None:
    """Log threads that end with an exception."""
    threading.excepthook = _log_failure


def _log_failure(failed: threading.ExceptHookArgs) -> None:
    _log.error(
        "thread_failed", thread=failed.thread and failed.thread.name, exc_info=failed.exc_value
    )

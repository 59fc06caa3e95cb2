"""Threads that log under the name of their process."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable


def start_thread(name: str, target: Callable[..., object], *arguments: object) -> threading.Thread:
    """A running daemon thread with a copy of our context: the process's name is in it, and a thread does not inherit it."""
    thread = threading.Thread(target=contextvars.copy_context().run, args=(target, *arguments), name=name, daemon=True)
    thread.start()
    return thread

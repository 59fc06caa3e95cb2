"""Commands that configure logging, run in the process of the tests.

What they bind to a captured stream must not outlive it.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import structlog


@contextmanager
def own_logging() -> Iterator[None]:
    """What is configured inside holds inside only."""
    root = logging.getLogger()
    configured, level, handlers = structlog.get_config(), root.level, list(root.handlers)
    hooks = sys.excepthook, threading.excepthook
    try:
        yield
    finally:
        structlog.configure(**configured)
        root.setLevel(level)
        root.handlers[:] = handlers
        sys.excepthook, threading.excepthook = hooks
        _forget_streams()


def _forget_streams() -> None:
    """A logger of a module keeps the stream of its first line in a method of its own."""
    for module in [module for name, module in sys.modules.items() if name.startswith("hilum")]:
        for value in vars(module).values():
            if isinstance(value, structlog._config.BoundLoggerLazyProxy):
                vars(value).pop("bind", None)

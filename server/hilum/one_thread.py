"""A thread that runs the calls of an event loop, one after the other.

A ThreadPoolExecutor of one does the same for twice the CPU.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_Asked = tuple["asyncio.Future[Any]", Callable[[], Any]]


class OneThread:
    """Begins with the first call, and ends with `close`.

    A process that ends does not wait for it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._asked: SimpleQueue[_Asked | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run a call and return or raise its outcome. A cancelled caller does not stop it."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if self._thread is None:
            thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            # raises where the machine has no thread left; then the next call tries again
            thread.start()
            self._thread = thread
        self._asked.put((answer, function))
        return answer

    def close(self, seconds: float | None = None) -> bool:
        """Return when all that was asked for is done, or after so long; whether it is."""
        if self._thread is None:
            return True
        self._asked.put(None)
        self._thread.join(seconds)
        if self._thread.is_alive():
            return False
        self._thread = None
        return True

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            answer, function = asked
            outcome = outcome_of(function)
            with contextlib.suppress(RuntimeError):  # the loop is closed: no caller waits
                answer.get_loop().call_soon_threadsafe(settle, answer, outcome)
            del asked, answer, function, outcome  # nothing is held while it waits


def outcome_of(function: Callable[[], T]) -> T | BaseException:
    """Return the value of the function, or the exception that it raises."""
    try:
        return function()
    except BaseException as error:  # noqa: BLE001 - the caller of `settle` gets it
        return error


def settle(answer: asyncio.Future[T], outcome: T | BaseException) -> None:
    """Set the future's result or exception; do nothing where its caller was cancelled."""
    if answer.done():
        return
    if isinstance(outcome, StopIteration):
        # A future refuses it, and its caller would wait forever; a coroutine does the same (PEP
        # 479).
        error = RuntimeError("StopIteration was raised")
        error.__cause__ = outcome
        answer.set_exception(error)
    elif isinstance(outcome, BaseException):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)

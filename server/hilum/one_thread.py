"""A thread that does what an event loop asks of it, one after the other.

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
        """What it returns or raises, for the running loop. Who stops waiting does not stop it."""
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
            result, error = _outcome(function)
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                answer.get_loop().call_soon_threadsafe(_settle, answer, result, error)
            del asked, answer, function, result, error  # nothing is held while it waits


def _outcome(function: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    try:
        return function(), None
    except StopIteration as error:
        # A future refuses it, and who awaits it would wait for ever.
        stopped = RuntimeError("StopIteration was raised")
        stopped.__cause__ = error
        return None, stopped
    except BaseException as error:  # noqa: BLE001 - it is for who waits for the answer
        return None, error


def _settle(answer: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if answer.cancelled():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)

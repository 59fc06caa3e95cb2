"""What a future is told by whoever works for it."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


def settle(answer: asyncio.Future[T], outcome: T | BaseException) -> None:
    """Its result, or what is raised where it is awaited; nothing where its caller was cancelled meanwhile."""
    if answer.done():
        return
    if isinstance(outcome, StopIteration):
        # A future refuses it, and whoever awaits it would wait for ever; a coroutine makes the same of it (PEP 479).
        error = RuntimeError("StopIteration was raised")
        error.__cause__ = outcome
        answer.set_exception(error)
    elif isinstance(outcome, BaseException):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)

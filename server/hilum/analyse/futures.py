"""What a future is told by whoever works for it."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


def settle(answer: asyncio.Future[T], outcome: T | BaseException) -> None:
    """Its result, or what is raised where it is awaited; nothing where its caller was cancelled meanwhile."""
    if answer.done():
        return
    if isinstance(outcome, BaseException):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)

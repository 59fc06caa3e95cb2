"""Outcomes of futures."""

from __future__ import annotations

import asyncio
from typing import TypeVar

T = TypeVar("T")


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

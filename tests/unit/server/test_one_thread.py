from __future__ import annotations

import asyncio
import threading
import time
from typing import NoReturn

import pytest

from hilum.one_thread import OneThread


def test_it_answers_in_order_from_one_thread() -> None:
    async def ask() -> list[tuple[int, str]]:
        thread = OneThread("worker")
        answers = [
            thread.call(lambda number=number: (number, threading.current_thread().name))
            for number in range(5)
        ]
        found = [await answer for answer in answers]
        thread.close()
        return found

    assert asyncio.run(ask()) == [(number, "worker") for number in range(5)]


def test_an_error_is_for_who_asked_and_the_next_one_is_answered() -> None:
    async def ask() -> int:
        thread = OneThread("worker")
        with pytest.raises(ZeroDivisionError):
            await thread.call(lambda: 1 // 0)
        with pytest.raises(SystemExit):
            await thread.call(lambda: exec("raise SystemExit"))
        found = await thread.call(lambda: 7)
        thread.close()
        return found

    assert asyncio.run(ask()) == 7


def test_who_stops_waiting_does_not_stop_it() -> None:
    done: list[int] = []

    async def ask() -> None:
        thread, may_go_on = OneThread("worker"), threading.Event()

        def work() -> None:
            may_go_on.wait(30)
            done.append(1)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(thread.call(work), 0.01)
        may_go_on.set()
        assert await thread.call(lambda: len(done)) == 1
        thread.close()

    asyncio.run(ask())


def test_closing_waits_for_what_was_asked_for_and_a_thread_that_never_began_ends_too() -> None:
    done: list[int] = []

    async def ask() -> None:
        thread = OneThread("closing")
        thread.call(lambda: (time.sleep(0.05), done.append(1)))
        thread.close()
        thread.close()
        OneThread("never").close()

    asyncio.run(ask())
    assert done == [1]
    assert "closing" not in [thread.name for thread in threading.enumerate()]


def test_a_loop_that_is_closed_does_not_end_it() -> None:
    thread, may_go_on = OneThread("worker"), threading.Event()

    async def leave() -> None:
        thread.call(lambda: may_go_on.wait(30))

    async def ask() -> int:
        return await thread.call(lambda: 3)

    asyncio.run(leave())
    may_go_on.set()
    assert asyncio.run(ask()) == 3
    thread.close()


def test_a_thread_for_which_there_was_no_room_begins_with_a_later_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_thread: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    async def ask() -> int:
        thread = OneThread("worker")
        with monkeypatch.context() as scarce:
            scarce.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError):
                thread.call(lambda: 1)
        assert thread.close()
        found = await asyncio.wait_for(thread.call(lambda: 2), 10)
        thread.close()
        return found

    assert asyncio.run(ask()) == 2


def test_who_asked_hears_of_a_stop_iteration_too() -> None:
    async def ask() -> None:
        thread = OneThread("worker")
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(thread.call(lambda: next(iter(()))), 10)
        thread.close()

    asyncio.run(ask())


def test_closing_does_not_wait_for_longer_than_it_is_told_to() -> None:
    may_go_on = threading.Event()

    async def ask() -> list[bool]:
        thread = OneThread("worker")
        thread.call(lambda: may_go_on.wait(30))
        closed = [thread.close(0.05)]
        may_go_on.set()
        return [*closed, thread.close(30)]

    assert asyncio.run(ask()) == [False, True]

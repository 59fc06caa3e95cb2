"""What wakes the supervisor: a signal, or another thread. An Event will not do: its lock is no place for a signal handler.

A handler runs in the main thread between two instructions of it. If that one holds the Event's lock just then, `set` waits for ever.
"""

from __future__ import annotations

import os
import select
import signal


class Waker:
    """For the main thread, once a process: every signal that has a handler wakes it."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def wake(self) -> None:
        """From any thread."""
        try:
            os.write(self._writer, b"\0")
        except BlockingIOError:
            return  # it is full of reasons to wake up already

    def wait(self, seconds: float) -> bool:
        """Until something wakes us, or so long; whether something did."""
        is_woken = bool(select.select([self._reader], [], [], seconds)[0])
        if is_woken:
            os.read(self._reader, 65536)
        return is_woken

    def close(self) -> None:
        """Signals go unheard again."""
        signal.set_wakeup_fd(-1)
        os.close(self._reader)
        os.close(self._writer)

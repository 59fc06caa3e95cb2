"""Wake-ups of the supervisor, by a signal or another thread.

An Event is not suitable. A signal handler runs in the main thread between two of its instructions.
If the main thread holds the Event's lock at that moment, `set` waits forever.
"""

from __future__ import annotations

import os
import select
import signal


class WakeupPipe:
    """A wake-up for the main thread, once a process: every signal that has a handler wakes it."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def wake(self) -> None:
        """Wake the main thread, from any thread."""
        try:
            os.write(self._writer, b"\0")
        except BlockingIOError:
            return  # it is full, so the main thread wakes anyway

    def wait(self, seconds: float) -> bool:
        """Wait for a wake-up or so many seconds; return whether there was a wake-up."""
        is_woken = bool(select.select([self._reader], [], [], seconds)[0])
        if is_woken:
            os.read(self._reader, 65536)
        return is_woken

    def close(self) -> None:
        """Stop receiving signals."""
        signal.set_wakeup_fd(-1)
        os.close(self._reader)
        os.close(self._writer)

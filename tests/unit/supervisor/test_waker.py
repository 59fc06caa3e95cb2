from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

_STORM = """
import os, signal, sys, time
from hilum.supervisor.wakeup_pipe import WakeupPipe
signal.signal(signal.SIGCHLD, lambda *_: None)
waker = WakeupPipe()
print("ready", flush=True)
end = time.monotonic() + 1
while time.monotonic() < end:
    waker.wait(0.001)
print("awake", flush=True)
"""


def test_a_storm_of_signals_does_not_stop_who_waits() -> None:
    """With an Event instead, the handler waits for a lock that its own thread holds."""
    with subprocess.Popen(
        [sys.executable, "-c", _STORM], stdout=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "ready\n"
        while waiting.poll() is None:
            os.kill(waiting.pid, signal.SIGCHLD)
            time.sleep(0.0002)
        assert waiting.stdout.read() == "awake\n"
        assert waiting.returncode == 0


_TWO_REASONS = """
import os, signal, threading
from hilum.supervisor.wakeup_pipe import WakeupPipe
signal.signal(signal.SIGUSR1, lambda *_: None)
waker = WakeupPipe()
for wake in (waker.wake, lambda: os.kill(os.getpid(), signal.SIGUSR1)):
    thread = threading.Timer(0.05, wake)
    thread.start()
    print(waker.wait(60), flush=True)
    thread.join()
waker.close()
"""


def test_another_thread_and_a_signal_wake() -> None:
    """In a process of its own: a signal without a handler would end the one that runs the tests."""
    woken = subprocess.run(
        [sys.executable, "-c", _TWO_REASONS],
        stdout=subprocess.PIPE,
        text=True,
        timeout=90,
        check=True,
    )
    assert woken.stdout.split() == ["True", "True"]

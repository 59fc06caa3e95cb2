"""A child process gets a signal to stop while it sleeps: in a process of its own."""

from __future__ import annotations

import subprocess
import sys

_ASLEEP = """
import signal, socket, threading, time
from fastapi import FastAPI
from hilum.api.serve import serve_api
from hilum.processes.child import _stop_on_sigterm

stop = threading.Event()
_stop_on_sigterm(stop)

def send():
    time.sleep(0.5)
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

threading.Thread(target=send, daemon=True).start()
serve_api(FastAPI(), socket.create_server(("127.0.0.1", 0)), stop)
print("ended", flush=True)
"""


def test_a_web_server_that_sleeps_stops_although_its_main_thread_does_not_hear_the_signal() -> None:
    """Python's handlers run when the main thread wakes.

    Not where a signal comes just before it falls asleep, or to another thread.
    """
    done = subprocess.run(
        [sys.executable, "-c", _ASLEEP], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr

"""An S3 server on this machine: moto's, as a process of its own."""

from __future__ import annotations

import http.client
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from testing.serving import free_ports
from tests.support.machine.waiting import wait_for
from tests.support.models.releases import REPOSITORY

_PYTHON: Final = REPOSITORY / ".venv/peers/bin/python"


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/moto-api/")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


@contextmanager
def s3_server() -> Iterator[str]:
    """The URL of a server without buckets, which takes any credentials.

    Skips the test where moto is not installed; fails it when CI=true.
    """
    if not _PYTHON.exists():
        reason = "moto is in .venv/peers: make test installs it"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [_PYTHON, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: _answers(port), what="the S3 server answers")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()

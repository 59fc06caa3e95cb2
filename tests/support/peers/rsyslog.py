"""Debian's rsyslog as a collector: what it has understood of each message, as JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.machine.waiting import wait_for

RSYSLOGD = shutil.which("rsyslogd", path="/usr/sbin:/usr/bin")
_INPUTS = {
    "udp": (
        'module(load="imudp")\ninput(type="imudp" address="127.0.0.1" port="{port}"'
        ' ruleset="audit")'
    ),
    "tcp": (
        'module(load="imtcp")\ninput(type="imtcp" address="127.0.0.1" port="{port}"'
        ' ruleset="audit")'
    ),
    # Mutual: who sends shows a certificate of the same authority.
    "tls": (
        """global(DefaultNetstreamDriverCAFile="{folder}/authority.pem" DefaultNetstreamDriverCertFile="{folder}/collector.pem"
       DefaultNetstreamDriverKeyFile="{folder}/collector.key")
module(load="imtcp" StreamDriver.Name="ossl" StreamDriver.Mode="1" StreamDriver.AuthMode="x509/certvalid")
input(type="imtcp" address="127.0.0.1" port="{port}" ruleset="audit")"""
    ),
}
_TEMPLATE = """template(name="fields" type="list") {{
  constant(value="{{") property(name="pri" outname="pri" format="jsonf") constant(value=",")
  property(name="timereported" dateFormat="rfc3339" outname="at" format="jsonf") constant(value=",")
  property(name="hostname" outname="host" format="jsonf") constant(value=",")
  property(name="app-name" outname="app" format="jsonf") constant(value=",")
  property(name="msgid" outname="msgid" format="jsonf") constant(value=",")
  property(name="msg" outname="msg" format="jsonf") constant(value="}}\\n")
}}
ruleset(name="audit") {{ action(type="omfile" file="{out}" template="fields") }}"""

_RECEIVING = (
    "0A",
    "07",
)  # LISTEN, and of UDP sockets without a peer CLOSE (include/net/tcp_states.h)


class Rsyslog:
    """One that may be stopped and started again on its port."""

    def __init__(self, folder: Path, protocol: str, port: int) -> None:
        self._folder, self.port, self._out = folder, port, folder / "received.jsonl"
        config = _INPUTS[protocol].format(port=port, folder=folder)
        self._config = folder / "rsyslog.conf"
        limits = f'global(maxMessageSize="64k" workDirectory="{folder}")\n'
        self._config.write_text(f"{limits}{config}\n{_TEMPLATE.format(out=self._out)}\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Until it listens."""
        assert RSYSLOGD is not None
        command = [RSYSLOGD, "-n", "-f", str(self._config), "-i", str(self._folder / "pid")]
        with (self._folder / "rsyslogd.log").open("ab") as said:
            self._process = subprocess.Popen(command, stdout=said, stderr=said)
        wait_for(lambda: _listens(self.port), 20)

    def stop(self) -> None:
        """When it has written what it has."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(20)
            self._process = None

    def received(self) -> list[dict[str, Any]]:
        """In order."""
        return (
            [json.loads(line) for line in self._out.read_text("utf-8").splitlines()]
            if self._out.exists()
            else []
        )


@contextmanager
def rsyslog(folder: Path, protocol: str, port: int) -> Iterator[Rsyslog]:
    """Not started yet."""
    made = Rsyslog(folder, protocol, port)
    try:
        yield made
    finally:
        made.stop()


def _listens(port: int) -> bool:
    """Whether a socket is bound to the port and takes what comes, by TCP or UDP.

    Connections of before the restart still bear the port for a minute.
    """
    lines = [
        line.split()
        for name in ("tcp", "udp")
        for line in Path("/proc/net", name).read_text().splitlines()[1:]
    ]
    return any(line[1].endswith(f":{port:04X}") and line[3] in _RECEIVING for line in lines)

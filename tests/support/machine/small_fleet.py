"""Two hosts of the testbed, and what a cable between them does: `python -m … FOLDER`.

It runs in namespaces of its own. It prints what it found, one word a line, then `hosts are on`, and
stays until it is ended.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

from load_tests.fleet.engine import is_listening
from load_tests.fleet.host import FleetHost, bridge
from load_tests.fleet.topology import HostKind, HostSpec
from testing.serving import environment_without_settings
from tests.support.machine.waiting import wait_for

_PORT = 11112
_SERVER = "import socket, time; s = socket.create_server(('', {port})); time.sleep(3600)"


def main(place: str) -> int:
    """Boot, look, stay."""
    folder = Path(place)
    bridge()
    one = FleetHost(
        HostSpec("one", 11, HostKind.PACS), folder / "one", {folder / "disk": Path("/mnt")}
    )
    two = FleetHost(
        HostSpec("two", 12, HostKind.PACS), folder / "two", {folder / "disk": Path("/mnt")}
    )
    with ExitStack() as stack:
        for host in (one, two):
            stack.callback(host.close)
            host.boot()
        server = (sys.executable, "-c", _SERVER.format(port=_PORT))
        one.spawn(*server, environment=environment_without_settings())
        wait_for(lambda: _hears(one), 30, "the server")
        one.run("touch", "/mnt/shared")
        _say("name", one.run("hostname"))
        _say("shared", two.run("ls", "/mnt"))
        one.link.cut()
        _say("cut", _hears(one))
        one.link.heal()
        _say("healed", wait_for(lambda: _hears(one), 30, "the healed link"))
        one.clock_offset_seconds = 300
        _say("ahead", round(float(one.run("date", "+%s")) - time.time(), -2))
        one.power_off()
        _say("off", _hears(one))
        one.boot()
        _say("on", one.run("hostname"))
        _say("hosts are", "on")
        time.sleep(3600)
    return 0


def _hears(host: FleetHost) -> bool:
    return is_listening(host.spec.address, _PORT)


def _say(what: str, found: object) -> None:
    sys.stdout.write(f"{what} {str(found).strip()}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

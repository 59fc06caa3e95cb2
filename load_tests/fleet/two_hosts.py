"""The page "Two hosts" in namespaces: `python -m load_tests.fleet.two_hosts PAGE FOLDER`.

It runs in namespaces of its own (`load_tests.fleet.isolation`). Ends with status 0 where the page is
true, else with what differs.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from load_tests.fleet.host import FleetHost, bridge
from load_tests.fleet.topology import DATABASES, PACS, PACS_PORT, HostKind, HostSpec
from testing.network.receiver import Receiver
from testing.serving import REPOSITORY, environment_without_settings
from testing.tiny_release import make_tiny
from testing.tutorial import follow

_POSTGRESQL = ("/etc/postgresql", "/var/lib/postgresql", "/var/log/postgresql", "/run/postgresql")
# What a host cannot do to itself here: the testbed does it.
_PLUG = "poweroff -ff"
_PATIENCE_SECONDS = 400.0
# Where the commands of the page are given, on each host.
_HOME = Path("/mnt")
_STATE = Path("/var/lib/hilum")
SPECS = (
    HostSpec("front", 10, HostKind.BALANCER),
    *DATABASES,
    HostSpec("hilum1", 51, HostKind.HILUM),
    HostSpec("hilum2", 52, HostKind.HILUM),
)


class PageHosts:
    """The hosts of the page, on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hosts = {
            spec.name: FleetHost(spec, folder / "hosts" / spec.name, _mounts(folder, spec))
            for spec in SPECS
        }

    def line_on(self, name: str, command: str) -> Sequence[str]:
        """A command line that runs a command of the page on a host; pulling the plug is done here."""
        host = self.hosts[name]
        if command == _PLUG:
            host.power_off()
            return ["true"]
        return host.command("bash", "-c", f"cd {_HOME}; {command}")

    def boot(self) -> None:
        """All on, with what Debian's packages have made."""
        self.folder.chmod(0o755)  # for the user of PostgreSQL
        for host in self.hosts.values():
            host.boot()
            if host.spec.kind is HostKind.DATABASE:
                host.run("chown", "postgres:postgres", *_POSTGRESQL)


def _mounts(folder: Path, spec: HostSpec) -> dict[Path, Path]:
    """The disk of a host, over folders that this machine has, too."""
    own = folder / "hosts" / spec.name
    mounts = {folder: _HOME}
    if spec.kind is HostKind.DATABASE:
        mounts |= {own / place.strip("/").replace("/", "-"): Path(place) for place in _POSTGRESQL}
    if spec.kind is HostKind.HILUM:
        # Over the parent, so that the state folder is made on the host's disk alone.
        mounts |= {own / "var-lib": _STATE.parent, folder / "archive": _STATE / "archive"}
    return mounts


def main(page: str, place: str) -> int:
    """Follow the page; its last command is the last that is run."""
    folder = Path(place)
    tiny = make_tiny(folder / "release")
    environment = {
        **environment_without_settings(),
        "PYTHONPATH": str(REPOSITORY),
        "COLUMNS": "80",
        "HILUM_MODELS__MANIFESTS": str(tiny.manifests_dir),
        "HILUM_MODELS__BUILT": str(tiny.built_dir),
        "HILUM_MODELS__RELEASES": json.dumps([tiny.release.id]),
        "HILUM_RECEIVE__RESERVE_BYTES": str(1 << 28),
    }
    bridge()
    site = PageHosts(folder)
    pacs = FleetHost(PACS, folder / "hosts/pacs", {})
    with ExitStack() as stack:
        for host in (*site.hosts.values(), pacs):
            stack.callback(host.close)
        site.boot()
        pacs.boot()
        stack.enter_context(Receiver(PACS_PORT, PACS.address, pacs.command()))
        text = Path(page).read_text(encoding="utf-8")
        followed = []
        for command in follow(text, folder, environment, site.line_on, _PATIENCE_SECONDS):
            sys.stdout.write(f"{command}\n")
            sys.stdout.flush()
            followed.append(command)
    return int(followed != commands_of(text))


def commands_of(text: str) -> list[str]:
    """The commands of the page, found without its blocks: one that no block held was not followed."""
    return re.findall(r"^\$ (.*)$", text, re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

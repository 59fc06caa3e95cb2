"""The cable between a host and the bridge: cut, slowed, healed."""

from __future__ import annotations

import subprocess

_BRIDGE = "switch"
# The first that the kernel knows is used. Delay and loss need `sch_netem`, which small kernels
# lack. A bucket of tokens makes a line that is narrow, and late because of its queue.
SLOW = {
    "netem": ("netem", "delay", "200ms", "50ms", "loss", "2%", "rate", "512kbit"),
    "tbf": ("tbf", "rate", "512kbit", "burst", "16kb", "latency", "800ms"),
}


class LinkFailed(Exception):
    """`ip` or `tc` refused."""


class Link:
    """A pair of virtual Ethernet ends: `eth0` on the host, this one on the bridge."""

    def __init__(self, host: str) -> None:
        self.name = f"to-{host}"

    def connect(self, pid: int) -> None:
        """Plug it into the namespace of a process. Raises LinkFailed."""
        ip("link", "add", self.name, "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        ip("link", "set", self.name, "master", _BRIDGE, "up")

    def cut(self) -> None:
        """Nothing goes through, and neither side is notified by the other. Raises LinkFailed."""
        ip("link", "set", self.name, "nomaster")

    def slow(self) -> str:
        """Narrow and late, towards the host. The kernel's word for how. Raises LinkFailed."""
        refusals = []
        for kind, words in SLOW.items():
            done = _tc("add", self.name, *words)
            if done.returncode == 0:
                return kind
            refusals.append(done.stderr.strip())
        raise LinkFailed("; ".join(refusals))

    def heal(self) -> None:
        """As new. Raises LinkFailed."""
        _tc("del", self.name)  # there may be none
        ip("link", "set", self.name, "master", _BRIDGE)

    def remove(self) -> None:
        """Unplug it. The kernel may have done it with the host's namespace."""
        subprocess.run(["ip", "link", "del", self.name], capture_output=True, check=False)


def ip(*words: str) -> None:
    """Run iproute2's `ip`. Raises LinkFailed."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LinkFailed(f"ip {' '.join(words)}: {done.stderr.strip()}")


def _tc(verb: str, device: str, *words: str) -> subprocess.CompletedProcess[str]:
    line = ["tc", "qdisc", verb, "dev", device, "root", *words]
    return subprocess.run(line, capture_output=True, text=True, check=False)

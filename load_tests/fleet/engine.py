"""tritonserver on a host of its own: real, with the tiny release, on TCP."""

from __future__ import annotations

import socket

from hilum.triton import command, leftovers, runtime
from load_tests.fleet.host import FleetHost, HostDown
from load_tests.fleet.topology import GRPC_PORT
from testing.tiny_release import Tiny


def start(host: FleetHost, tiny: Tiny) -> None:
    """Start it; `is_listening` says when it may be used. Raises HostDown: there is none here."""
    wheel = runtime.find()
    if wheel is None:
        raise HostDown("; ".join(runtime.preflight()))
    folder = host.folder / "run"
    folder.mkdir(exist_ok=True)
    backends = runtime.prepare(wheel, folder) / "backends"
    line = command.arguments(
        tiny.built_dir / "embedded",
        [tiny.release.triton_name],
        backends,
        wheel.caches,
        leftovers.prefix(folder),
        1,
        address=host.spec.address,
        port=GRPC_PORT,
    )
    host.spawn(str(wheel.tritonserver), *line, environment=runtime.environment(wheel, folder))


def is_listening(address: str, port: int) -> bool:
    """Whether a connection can be made now."""
    with socket.socket() as asking:
        asking.settimeout(1)
        return asking.connect_ex((address, port)) == 0

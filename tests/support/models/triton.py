"""What tests look at of a running tritonserver: its stubs, its sockets, its shared memory."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from hilum.analyse.inference.gateway import TritonGateway
from hilum.triton import command, leftovers, runtime
from hilum.triton.server import EmbeddedTriton
from testing.serving import free_ports
from tests.support.machine.processes import children_of
from tests.support.machine.waiting import wait_for
from tests.support.peers.certificates import Identity

T = TypeVar("T")
AnyTriton = TypeVar("AnyTriton", "EmbeddedTriton", "RemoteTriton")


class RemoteTriton:
    """A tritonserver that Hilum does not run: gRPC on a TCP port of loopback, no sandbox."""

    def __init__(
        self,
        built_dir: Path,
        folder: Path,
        names: Sequence[str],
        *options: str,
        mode: str = "explicit",
        before: Sequence[str] = (),
    ) -> None:
        self.port = free_ports(1)[0]
        self.url = f"127.0.0.1:{self.port}"
        self._repository, self._folder, self._names = built_dir / "embedded", folder, names
        self._options, self._mode, self._before = options, mode, before
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def poll(self) -> int | None:
        return self._process.poll() if self._process else None

    def start(self) -> str:
        wheel = runtime.find()
        assert wheel is not None
        self._folder.mkdir(parents=True, exist_ok=True)
        backends, prefix = (
            runtime.prepare(wheel, self._folder) / "backends",
            leftovers.prefix(self._folder),
        )
        fixed = self._repository, self._names, backends, wheel.caches, prefix
        line = list(command.arguments(*fixed, 1, address="127.0.0.1", port=self.port))
        line[line.index("explicit")] = self._mode
        with (self._folder / "tritonserver.log").open("ab") as sink:
            self._process = subprocess.Popen(
                [*self._before, str(wheel.tritonserver), *line, *self._options],
                env=runtime.environment(wheel, self._folder),
                stdout=sink,
                stderr=sink,
            )
        wait_for(self._listens, 60, "tritonserver")
        return self.url

    def stop(self) -> int | None:
        if self._process is None:
            return None
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        leftovers.sweep(leftovers.prefix(self._folder))
        return self._process.returncode

    def _listens(self) -> bool:
        assert self.poll() is None, (self._folder / "tritonserver.log").read_text()[-2000:]
        with socket.socket() as asking:
            return asking.connect_ex(("127.0.0.1", self.port)) == 0


def mutual_tls(server: Identity, authority: Path) -> list[str]:
    """Options of a tritonserver that shows this certificate and takes those of this authority."""
    files = {"server-cert": server.certificate, "server-key": server.key, "root-cert": authority}
    return [
        "--grpc-use-ssl-mutual",
        "true",
        *(f"--grpc-{name}={file}" for name, file in files.items()),
    ]


@contextmanager
def killed_afterwards(server: AnyTriton) -> Iterator[AnyTriton]:
    """The server, ended at once when the test is over: its own polite end takes two seconds."""
    try:
        yield server
    finally:
        if server.pid is not None and server.poll() is None:
            os.kill(server.pid, signal.SIGKILL)
        server.stop()


def with_gateway(
    url: str,
    use: Callable[[TritonGateway], Awaitable[T]],
    deadline_seconds: float = 30.0,
    *,
    shares_memory: bool = False,
) -> T:
    """What `use` gives for a gateway of its own."""

    async def session() -> T:
        gateway = TritonGateway(url, deadline_seconds, shares_memory=shares_memory)
        try:
            return await use(gateway)
        finally:
            await gateway.close()

    return asyncio.run(session())


def require_triton() -> None:
    """Skip (fail in CI) where the embedded server cannot run."""
    if problems := runtime.preflight():
        if os.environ.get("CI") == "true":
            pytest.fail("\n".join(problems))
        pytest.skip("; ".join(problems))


def stubs(pid: int, triton_name: str) -> list[int]:
    """Python stubs of one model."""
    return [child for child in children_of(pid) if triton_name in command_of(child)]


def command_of(pid: int) -> str:
    """Its command line; empty: it has ended."""
    return _text(Path(f"/proc/{pid}/cmdline"))


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError):  # ended since it was listed
        return ""


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def listening(pid: int) -> set[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]]:
    """(address, port) of every TCP socket on which the process listens."""
    links = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(str(descriptor.readlink()))
        except OSError:
            continue
    inodes = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    ends = [row[1].split(":") for row in rows if row[3] == "0A" and row[9] in inodes]
    return {(_address(address), int(port, 16)) for address, port in ends}


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The kernel writes 32-bit words in the machine's order, in hexadecimal.

    127.0.0.1 may come as ::ffff:127.0.0.1.
    """
    packed = b"".join(bytes.fromhex(text[i : i + 8])[::-1] for i in range(0, len(text), 8))
    address = ipaddress.ip_address(packed)
    return getattr(address, "ipv4_mapped", None) or address


@pytest.fixture(scope="session")
def embedded_triton() -> None:
    """Skip (fail in CI) where the embedded server cannot run."""
    require_triton()

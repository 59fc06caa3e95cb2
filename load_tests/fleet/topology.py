"""The hosts of the testbed, as data: the address of each, and what it runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Interface
from pathlib import Path


class HostKind(StrEnum):
    """What a host runs."""

    HILUM = "hilum"
    BALANCER = "haproxy"
    TRITON = "tritonserver"
    DATABASE = "postgresql"
    PACS = "pacs"


@dataclass(frozen=True, slots=True)
class HostSpec:
    """One host. `role`: of `hilum serve`, for hosts of that kind."""

    name: str
    number: int
    kind: HostKind
    role: str = ""

    @property
    def address(self) -> str:
        """Its IPv4 address on the bridge."""
        return str(NETWORK.network[self.number])


# The switch. Studies are sent from it, because a sender needs no name and no disk.
NETWORK = IPv4Interface("10.77.0.1/24")
DICOM_PORT = 11112
API_PORT = 8640
GRPC_PORT = 8001
LEDGER_PORT = 5432
PACS_PORT = 11113
# Where each host mounts its own disk; on those with Hilum the state folder.
STATE = Path("/mnt")

BALANCER = HostSpec("balancer", 10, HostKind.BALANCER)
PACS = HostSpec("pacs", 20, HostKind.PACS)
TRITONS = (
    HostSpec("gpu1", 31, HostKind.TRITON),
    HostSpec("gpu2", 32, HostKind.TRITON),
)
DATABASES = (
    HostSpec("db1", 41, HostKind.DATABASE),
    HostSpec("db2", 42, HostKind.DATABASE),
)
SERVERS = (
    HostSpec("listen1", 51, HostKind.HILUM, "listener"),
    HostSpec("listen2", 52, HostKind.HILUM, "listener"),
    HostSpec("analyse1", 61, HostKind.HILUM, "analyser"),
    HostSpec("analyse2", 62, HostKind.HILUM, "analyser"),
    HostSpec("dispatch1", 71, HostKind.HILUM, "dispatcher"),
    HostSpec("dispatch2", 72, HostKind.HILUM, "dispatcher"),
    HostSpec("web", 81, HostKind.HILUM, "api"),
)
HOSTS = (BALANCER, PACS, *TRITONS, *DATABASES, *SERVERS)


def of_role(role: str) -> tuple[HostSpec, ...]:
    """The hosts that run a role of Hilum."""
    return tuple(spec for spec in SERVERS if spec.role == role)

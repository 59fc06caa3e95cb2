"""The hosts of the testbed, as data: who has which address and does what."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Interface
from pathlib import Path


class Kind(StrEnum):
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
    kind: Kind
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

BALANCER = HostSpec("balancer", 10, Kind.BALANCER)
PACS = HostSpec("pacs", 20, Kind.PACS)
TRITONS = (
    HostSpec("gpu1", 31, Kind.TRITON),
    HostSpec("gpu2", 32, Kind.TRITON),
)
DATABASES = (
    HostSpec("db1", 41, Kind.DATABASE),
    HostSpec("db2", 42, Kind.DATABASE),
)
SERVERS = (
    HostSpec("listen1", 51, Kind.HILUM, "listener"),
    HostSpec("listen2", 52, Kind.HILUM, "listener"),
    HostSpec("analyse1", 61, Kind.HILUM, "analyser"),
    HostSpec("analyse2", 62, Kind.HILUM, "analyser"),
    HostSpec("dispatch1", 71, Kind.HILUM, "dispatcher"),
    HostSpec("dispatch2", 72, Kind.HILUM, "dispatcher"),
    HostSpec("web", 81, Kind.HILUM, "api"),
)
HOSTS = (BALANCER, PACS, *TRITONS, *DATABASES, *SERVERS)


def of_role(role: str) -> tuple[HostSpec, ...]:
    """The hosts that run a role of Hilum."""
    return tuple(spec for spec in SERVERS if spec.role == role)

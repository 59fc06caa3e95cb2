"""The systems that are compared, each started on its own.

Where its studies go, which processes are its, what its log says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from load_tests.peer.material import Material
from load_tests.peer.orthanc import AE_TITLE
from load_tests.peer.peer_system import PeerSystem, peer_role
from testing.accounting import RoleOf, hilum_role
from testing.network.peer_address import Peer
from testing.serving import Hilum

HILUM_TITLE = "HILUM"


@dataclass(frozen=True, slots=True)
class Pacs:
    """Where the reports go, on this machine."""

    port: int
    ae_title: str


@dataclass(frozen=True, slots=True)
class Setting:
    """What every system is given.

    `wait_seconds`: Hilum's quiet period and Orthanc's StableAge, which takes whole seconds.
    """

    folder: Path
    material: Material
    pacs: Pacs
    wait_seconds: int


class System(Protocol):
    """One that receives studies and reports them. A context manager; ready on entry."""

    role_of: RoleOf

    @property
    def address(self) -> Peer:
        """Where studies are sent."""

    @property
    def pid(self) -> int:
        """Root of its processes."""

    def log_end(self) -> str:
        """The last lines of its log."""

    def __enter__(self) -> Self:
        """Start it."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop it."""


class HilumSystem(Hilum):
    """Hilum with default settings but for the quiet period and the release."""

    role_of: RoleOf = staticmethod(hilum_role)

    def __init__(self, setting: Setting) -> None:
        built = setting.material.built
        pacs = {
            "kind": "dicom",
            "port": setting.pacs.port,
            "ae_title": setting.pacs.ae_title,
            "accept_untrained": True,
        }
        super().__init__(
            setting.folder,
            {"pacs": pacs},
            studies={"quiet_seconds": setting.wait_seconds},
            models={
                "manifests": str(built.manifests_dir),
                "built": str(built.built_dir),
                "releases": [built.release.id],
            },
        )

    @property
    def address(self) -> Peer:
        """Where studies are sent."""
        return Peer(HILUM_TITLE, "127.0.0.1", self.dicom_port)

    def __enter__(self) -> HilumSystem:
        """Start it, ready. Raises HilumEnded."""
        self.write_settings()
        super().__enter__()
        self.wait_until_ready(180)
        return self


class ComparedPeer(PeerSystem):
    """The peer, one of its variants."""

    role_of: RoleOf = staticmethod(peer_role)

    def __init__(self, setting: Setting, variant: str) -> None:
        pacs = (setting.pacs.port, setting.pacs.ae_title)
        super().__init__(
            setting.folder,
            variant,
            setting.material.files,
            setting.material.precision,
            pacs,
            setting.wait_seconds,
        )

    @property
    def address(self) -> Peer:
        """Where studies are sent."""
        return Peer(AE_TITLE, "127.0.0.1", self.dicom_port)


SYSTEMS: Mapping[str, Callable[[Setting], System]] = {
    "plain": lambda setting: ComparedPeer(setting, "plain"),
    "informed": lambda setting: ComparedPeer(setting, "informed"),
    "hilum": HilumSystem,
}

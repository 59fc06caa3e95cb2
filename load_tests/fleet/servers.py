"""`hilum serve --role …` on its hosts: one settings file, a state folder each, one shared archive."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from load_tests.fleet.database import ledger_url
from load_tests.fleet.host import FleetHost
from load_tests.fleet.topology import (
    API_PORT,
    DICOM_PORT,
    GRPC_PORT,
    PACS,
    PACS_PORT,
    STATE,
    TRITONS,
)
from testing.network.receiver import AE_TITLE
from testing.serving import as_toml, environment_without_settings, hilum_program
from testing.tiny_release import Tiny

ARCHIVE = "archive"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - of a network namespace that holds the testbed alone
_SETTINGS = "hilum.toml"


@dataclass(frozen=True, slots=True)
class HilumCode:
    """Which Hilum a host runs. `server`: the folder of another version's packages."""

    server: tuple[Path, ...] = ()

    @property
    def environment(self) -> Mapping[str, str]:
        """Of its processes."""
        found = environment_without_settings()
        return (
            found | {"PYTHONPATH": os.pathsep.join(map(str, self.server))} if self.server else found
        )


THIS = HilumCode()


def mounts(folder: Path, host_folder: Path) -> dict[Path, Path]:
    """A state folder of the host, and in it the archive that all share."""
    return {host_folder / "state": STATE, folder / ARCHIVE: STATE / ARCHIVE}


def write_settings(folder: Path, tiny: Tiny, sections: Mapping[str, Mapping[str, Any]]) -> None:
    """The settings that all hosts have; `sections` wins."""
    usual: dict[str, Mapping[str, Any]] = {
        "site": {"state_dir": str(STATE)},
        "ledger": {"url": ledger_url()},
        "triton": {"urls": [f"{spec.address}:{GRPC_PORT}" for spec in TRITONS]},
        "receive": {
            "host": EVERYWHERE,
            "port": DICOM_PORT,
            "processes": 1,
            "reserve_bytes": 1 << 28,
        },
        "api": {"host": EVERYWHERE, "port": API_PORT, "open_metrics": True},
        "models": {
            "manifests": str(tiny.manifests_dir),
            "built": str(tiny.built_dir),
            "releases": [tiny.release.id],
        },
        "studies": {"quiet_seconds": 2.0},
        "pipeline": {"backoff_seconds": 0.5, "maximum_backoff_seconds": 2.0},
        "analyse": {"canary_seconds": 2.0, "decode_processes": 1, "deadline_seconds": 5.0},
        "destinations.pacs": {
            "kind": "dicom",
            "host": PACS.address,
            "port": PACS_PORT,
            "ae_title": AE_TITLE,
            "accept_untrained": True,
            "timeout_seconds": 20.0,
        },
    }
    merged = usual | {name: {**usual.get(name, {}), **table} for name, table in sections.items()}
    (folder / _SETTINGS).write_text(as_toml(merged), encoding="utf-8")


def start(host: FleetHost, folder: Path, code: HilumCode = THIS) -> None:
    """`hilum serve` with the host's role."""
    words = ("serve", "--role", host.spec.role, "--config", str(folder / _SETTINGS))
    host.spawn(hilum_program(), *words, environment=code.environment)


def run(host: FleetHost, folder: Path, words: Iterable[str], code: HilumCode = THIS) -> str:
    """Another command of `hilum` on a host; its output. Raises HostDown."""
    line = (hilum_program(), *words, "--config", str(folder / _SETTINGS))
    return host.run(*line, environment=code.environment)

"""What every document says about its maker; the same for all studies of an installation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReportContext:
    """Picklable, because reports are built in other processes. `installation_serial` names this installation, not the product."""

    manufacturer: str
    series_number: int
    disclaimer: str
    site_name: str
    software_version: str
    installation_serial: str

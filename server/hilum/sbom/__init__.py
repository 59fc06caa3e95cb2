"""The lists of the packages of a server: components as CycloneDX, and their licences.

`make sbom` writes both from the locks; `hilum sbom` prints them. A test compares them with the
locks.
"""

from pathlib import Path
from typing import Final

COMPONENTS: Final = Path(__file__).with_name("hilum.cdx.json")
"""CycloneDX 1.6: every package and every program or library in it, with SHA-256 and licence."""
LICENCES: Final = Path(__file__).with_name("licences.txt")
"""A line a package or bundled library: name, version, licence."""

"""Removes pynetdicom's programs from this environment: they have the names of DCMTK's programs.

They take other arguments, and an activated environment comes first on the PATH: `storescu` of our
documentation would be another program. `make setup` runs this after each installation, which brings
them back. The library itself is not touched.
"""

from __future__ import annotations

import sys
import sysconfig
from importlib.metadata import distribution
from pathlib import Path

_PACKAGE = "pynetdicom"


def names() -> list[str]:
    """The programs that the package installs: echoscu, storescu and others."""
    return sorted(
        each.name for each in distribution(_PACKAGE).entry_points if each.group == "console_scripts"
    )


def remove(folder: Path) -> list[Path]:
    """Delete them from this folder; those that were there."""
    found = [path for name in names() if (path := folder / name).exists()]
    for path in found:
        path.unlink()
    return found


if __name__ == "__main__":
    if sys.prefix == sys.base_prefix:
        sys.exit("no virtual environment: the programs of the system stay as they are")
    remove(Path(sysconfig.get_path("scripts")))

"""Pickles, which may run code when they are read: recognised by their first bytes, whatever they are called, and never read."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Final

_PROTOCOLS: Final = tuple(bytes([0x80, number]) for number in range(2, 6))  # opcode PROTO, docs.python.org/3/library/pickletools.html
_ZIP: Final = b"PK\x03\x04"
ADVICE: Final = "a pickle, which may run code when it is read: `hilum models import` makes a safe file of it, once"


def is_pickle(path: Path) -> bool:
    """A bare pickle, or an archive of torch.save, which holds one."""
    with path.open("rb") as source:
        head = source.read(4)
    return head.startswith(_PROTOCOLS) or (head == _ZIP and _holds_pickle(path))


def _holds_pickle(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(".pkl") for name in archive.namelist())
    except zipfile.BadZipFile:
        return False

"""Pickles, which may run code when they are read.

They are recognised by their first bytes under any name, and never read.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_PROTOCOLS: Final = tuple(
    bytes([0x80, number]) for number in range(2, 6)
)  # opcode PROTO, docs.python.org/3/library/pickletools.html
_ZIP: Final = b"PK\x03\x04"
ADVICE: Final = (
    "a pickle, which may run code when it is read: `hilum models import` makes a safe file of it,"
    " once, if it is a checkpoint of the kind chexzero, densenet121, resnet50, torchxrayvision or"
    " vit; any other network has to be exported to ONNX where its code is"
)
SCRIPTED: Final = "a TorchScript archive; export it to ONNX with its authors' code"


def is_pickle(path: Path) -> bool:
    """Whether a file is a bare pickle or an archive of torch.save, which holds one."""
    with path.open("rb") as source:
        head = source.read(4)
    return head.startswith(_PROTOCOLS) or (head == _ZIP and _holds_pickle(path))


def advice(path: Path) -> str:
    """Return the end of a sentence about a pickle: its danger and the way out."""
    return SCRIPTED if is_scripted(_names(path)) else ADVICE


def is_scripted(names: Iterable[str]) -> bool:
    """Whether an archive of torch's holds code beside its numbers, by the names in it."""
    return any(name.partition("/")[2].startswith("code/") for name in names)


def _holds_pickle(path: Path) -> bool:
    return any(name.endswith(".pkl") for name in _names(path))


def _names(path: Path) -> list[str]:
    """Return the names in a zip file; none for any other file."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except zipfile.BadZipFile:
        return []

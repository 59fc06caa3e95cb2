"""Capabilities of a process (capabilities(7)): the launcher drops them before tritonserver starts.

Standard library only, as the launcher runs without site-packages.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

_VERSION_3: Final = 0x20080522  # linux/capability.h: two words of 32 bits
_DAC_READ_SEARCH: Final = 2
# A model tree may have been built by another account. Landlock limits which files are read.
_KEPT: Final = 1 << _DAC_READ_SEARCH


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Words(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def drop() -> None:
    """Give up all capabilities but that to read other users' files. Raises OSError.

    A program that is started afterwards gets none back, once this process gains no new privileges.
    """
    library = ctypes.CDLL(None, use_errno=True)
    header = _Header(_VERSION_3, 0)
    words = (_Words * 2)()
    _require(library.capget(ctypes.byref(header), words))
    kept = words[0].permitted & _KEPT
    words[0] = _Words(kept, kept, kept)
    words[1] = _Words(0, 0, 0)
    _require(library.capset(ctypes.byref(header), words))


def _require(result: int) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"capabilities: {os.strerror(ctypes.get_errno())}")

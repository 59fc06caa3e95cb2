"""Writing a file out while its bytes still come in (Linux).

The wait for the bytes does without a commit of the journal.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

# sync_file_range(2). Its manual promises nothing about metadata and the disk's cache; the sync that
# follows covers both.
_WAIT_BEFORE = 1
_START = 2
_WAIT_AFTER = 4
_function = getattr(ctypes.CDLL(None, use_errno=True), "sync_file_range", None)
if _function is not None:
    _function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)

CAN_WAIT: Final = _function is not None
"""Whether this system has `await_write_out`."""


def start_write_out(fd: int, offset: int, count: int) -> None:
    """Ask the kernel to begin writing these bytes.

    A hint: its result is not looked at, a later sync reports errors.
    """
    if _function is not None:
        _function(fd, offset, count, _START)


def await_write_out(fd: int) -> None:
    """Return when the disk has taken all bytes of the file, perhaps into its cache.

    Raises OSError, which no later sync repeats.
    """
    if _function is None:
        raise NotImplementedError("sync_file_range is a Linux call")
    if _function(fd, 0, 0, _WAIT_BEFORE | _START | _WAIT_AFTER):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))

"""Landlock: limits of files, TCP ports and signals that a process sets for itself (landlock(7)).

Standard library only, as the launcher runs without site-packages. No kept library for Python wraps
these three system calls.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

# linux/landlock.h and the numbers of x86_64, which are those of every architecture
_CREATE = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_VERSION_FLAG: Final = 1
_PATH_BENEATH = 1
_NET_PORT = 2
_EXECUTE = 1 << 0
_WRITE_FILE = 1 << 1
_READ_FILE = 1 << 2
_READ_DIR = 1 << 3
_REMOVE_DIR = 1 << 4
_REMOVE_FILE = 1 << 5
_MAKE_DIR = 1 << 7
_TRUNCATE = 1 << 14
_IOCTL_DEVICE = 1 << 15
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE
_BIND_TCP = 1 << 0
_CONNECT_TCP = 1 << 1
_SCOPED: Final = 3  # abstract Unix sockets and signals stay within the sandbox
READ: Final = _EXECUTE | _READ_FILE | _READ_DIR
USE: Final = READ | _WRITE_FILE | _IOCTL_DEVICE
# remove(3) tries unlink(2) first, which has to fail as it does for folders.
MAKE_FOLDERS: Final = _READ_DIR | _MAKE_DIR | _REMOVE_DIR | _REMOVE_FILE
WRITE: Final = (1 << 16) - 1
# Highest bit of file access that each version knows, from version 1 on.
_BITS: Final = (13, 14, 15, 15, 16)
_NETWORK_SINCE = 4
_SCOPES_SINCE = 6
_PR_SET_NO_NEW_PRIVS: Final = 38


def version() -> int:
    """Return the version of the kernel's interface.

    0: the kernel has no Landlock, or it is not switched on.
    """
    return max(0, _call(_CREATE, None, 0, _VERSION_FLAG))


def limits_network(found: int) -> bool:
    """Whether this version bounds the ports that a process connects to."""
    return found >= _NETWORK_SINCE


def restrict(rules: Iterable[tuple[str, int]], ports: Iterable[int] = ()) -> bool:
    """Allow these accesses below these paths, connections to these TCP ports, and nothing else.

    Limits that this kernel's Landlock does not know are left out, and paths that do not exist.
    False: there is no Landlock here, and nothing has changed. Raises OSError.
    """
    found = version()
    if not found:
        return False
    files = (1 << _BITS[min(found, len(_BITS)) - 1]) - 1
    network = _BIND_TCP | _CONNECT_TCP if limits_network(found) else 0
    ruleset = _made(files, network, _SCOPED if found >= _SCOPES_SINCE else 0)
    try:
        for path, access in rules:
            with suppress(FileNotFoundError):
                _allow_path(ruleset, path, access & files)
        for port in ports if network else ():
            _require(
                _call(_ADD_RULE, ruleset, _NET_PORT, struct.pack("=QQ", _CONNECT_TCP, port), 0)
            )
        ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _require(_call(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)
    return True


def _made(files: int, network: int, scoped: int) -> int:
    """Return a ruleset (landlock_ruleset_attr).

    An older kernel takes its unknown last fields if they are 0.
    """
    attributes = struct.pack("=QQQ", files, network, scoped)
    return _require(_call(_CREATE, attributes, len(attributes), 0))


def _allow_path(ruleset: int, path: str, access: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        allowed = access if stat.S_ISDIR(os.fstat(place).st_mode) else access & _OF_FILES
        _require(_call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", allowed, place), 0))
    finally:
        os.close(place)


def _require(result: int) -> int:
    if result < 0:
        raise OSError(
            ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno() or errno.EINVAL)}"
        )
    return result


def _call(number: int, *arguments: int | bytes | None) -> int:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return int(
        call(
            ctypes.c_long(number),
            *(ctypes.c_long(each) if isinstance(each, int) else each for each in arguments),
        )
    )

"""Limits of a process of ours: address space for a picture, and no core file.

Standard library only.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final

_LEAST_BYTES: Final = (
    4 << 30
)  # of a picture of any size; hostile codestreams were seen to take 1.4 GB
_BYTES_PER_PIXEL: Final = (
    24  # file, codestream, stored values, levels and their mean, with room for the codecs
)


def limit_memory(maximum_pixels: int) -> None:
    """Limit the address space to the current one and that of a picture of so many pixels.

    The kernel refuses more (RLIMIT_AS). Libraries reserve address space that they never use, each
    another amount: torch half a gigabyte or ten. So call it when all is loaded. 0: no limit, where
    a driver reserves more later, as CUDA does.
    """
    if maximum_pixels:
        limit = _mapped_bytes() + max(_LEAST_BYTES, maximum_pixels * _BYTES_PER_PIXEL)
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(
            resource.RLIMIT_AS,
            (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard),
        )


def forbid_core_files() -> None:
    """Of this process and of those that it starts.

    A core file would hold pixels, and whose they are.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _mapped_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")

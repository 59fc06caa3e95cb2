"""The outcome of readings whose stored file exists and cannot be read."""

from __future__ import annotations

import errno
import os
from typing import Final

from hilum.errors import Retry

_OF_THE_FILE: Final = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.ENOMEM})
"""A sector, a checksum, its place on the disk; or the file is larger than the free memory."""


def not_read(number: int) -> Retry:
    """Return the Retry for an errno of the file system.

    An error of the disk may concern this file alone, so those attempts count. All others concern
    the archive: another user's file, a file server that is away, a file that is being moved.
    """
    return Retry(
        f"the stored file cannot be read: {os.strerror(number)}; see `hilum check`",
        is_outage=number not in _OF_THE_FILE,
    )

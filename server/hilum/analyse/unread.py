"""A stored file that is there and cannot be read: what becomes of its readings."""

from __future__ import annotations

import errno
import os
from typing import Final

from hilum.errors import Retry

_OF_THE_FILE: Final = frozenset({errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.ENOMEM})
"""A sector, a checksum, its place on the disk; or it is larger than what memory there is."""


def not_read(number: int) -> Retry:
    """For the errno of what the file system said. What it said of the disk may be true of this file alone, so that those tries count.

    All else is the archive's: another user's file, a file server that is away, a file that is just being moved.
    """
    return Retry(f"the stored file cannot be read: {os.strerror(number)}; see `hilum check`", is_outage=number not in _OF_THE_FILE)

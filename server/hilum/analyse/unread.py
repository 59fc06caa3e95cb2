"""A stored file that is there and cannot be read: what becomes of its readings."""

from __future__ import annotations

import errno
import os

from hilum.errors import Retry


def not_read(number: int) -> Retry:
    """For the errno of what the file system said. What it said of the disk may be true of this file alone, so that those tries count.

    All else is the archive's: another user's file, a file server that is away, a file that is just being moved.
    """
    return Retry(f"the stored file cannot be read: {os.strerror(number)}; see `hilum check`", is_outage=number != errno.EIO)

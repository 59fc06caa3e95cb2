"""Suppresses the output of libraries, because they quote the data that they read."""

from __future__ import annotations

import logging
import warnings


def silence_libraries() -> None:
    """Keep libraries from printing the data that they read.

    Pydicom's warnings quote element values, so patient data. python_multipart's repeat our own
    answers and log lines. httpx's hold the addresses of queries, imagecodecs' names within a PNG
    file. All warnings are dropped, because one is attributed to the module that called pydicom, and
    that may be ours. Their log lines end at a handler that drops them: a level would not work,
    because pydicom sets its own when it is imported later.
    """
    warnings.simplefilter("ignore")
    quoting = ("pydicom", "pynetdicom", "highdicom", "python_multipart", "imagecodecs")
    for name in (*quoting, "httpx", "httpcore"):
        library = logging.getLogger(name)
        library.setLevel(logging.CRITICAL)
        library.propagate = False
        library.addHandler(logging.NullHandler())

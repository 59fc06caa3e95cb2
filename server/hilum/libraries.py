"""What other people's libraries may print: nothing, because they quote what they read."""

from __future__ import annotations

import logging
import warnings


def silence_libraries() -> None:
    """Keep libraries from printing what they read.

    Pydicom's warnings quote element values, so patient data.

    python_multipart's say what we answer and log ourselves. All warnings, because one is attributed
    to whichever module pydicom was called from, and that may be ours. Their lines end at a handler
    that drops them: a level would not do, pydicom sets its own when it is imported later.
    """
    warnings.simplefilter("ignore")
    for name in ("pydicom", "pynetdicom", "highdicom", "python_multipart"):
        library = logging.getLogger(name)
        library.setLevel(logging.CRITICAL)
        library.propagate = False
        library.addHandler(logging.NullHandler())

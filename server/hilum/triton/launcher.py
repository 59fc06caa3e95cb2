"""A launcher that becomes the given program, in a sandbox, and ends with its parent.

It is run as a script. PR_SET_PDEATHSIG (prctl(2)) outlives execve: a killed supervisor leaves no
tritonserver behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run `launcher.py <pid of the parent> <sandbox as JSON> <program> <argument>…`."""
    parent = int(sys.argv[1])
    program = sys.argv[3:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before the request was made
        sys.exit(1)
    sys.path.append(
        str(Path(__file__).parents[2])
    )  # run with -S: no site-packages, so that this takes no time
    from hilum.triton.sandbox import Sandbox  # noqa: PLC0415 - found from here on

    try:
        Sandbox.load(sys.argv[2]).enter()
        os.execv(program[0], program)  # noqa: S606 - no shell is wanted; the arguments are ours
    except OSError as error:
        sys.exit(f"error: {error.strerror} (errno {error.errno})")


if __name__ == "__main__":
    main()

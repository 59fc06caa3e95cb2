"""Becomes the program that it is given, after asking the kernel to end it when its parent dies. Run as a script, by itself.

PR_SET_PDEATHSIG (prctl(2)) outlives execve, so that a killed supervisor leaves no tritonserver that nobody watches.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """`launcher.py <pid of the parent> <program> <argument>…`."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before the request was made
        sys.exit(1)
    os.execv(program[0], program)  # noqa: S606 - no shell is wanted; the arguments are ours


if __name__ == "__main__":
    main()

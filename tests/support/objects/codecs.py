"""What a decode process loads instead of codecs, so that it breaks on demand.

The file's name says how.
"""

from __future__ import annotations

import errno
import os
import signal
import time

from hilum.analyse.decode.worker import Answer, DecodedImage, DecodeRequest, NotReady, Prepare


def load_breaking() -> Prepare:
    """Ends by SIGSEGV, hangs, sleeps a little, has a bug, wants memory, cannot read or only decodes, as the file is called.

    Else it says its process id.
    """
    return _answer


def load_nothing() -> Prepare:
    """A process that ends while it starts."""
    os._exit(7)


def _answer(request: DecodeRequest) -> Answer | DecodedImage:
    match request.path.stem:
        case "segv":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "hang":
            time.sleep(600)
        case "memory":
            bytearray(
                64 << 30
            )  # as a codestream might want; the address space alone, which nobody refuses who knows no limit
        case "slow":
            time.sleep(0.5)
        case "bug":
            raise LookupError("no codec for Doe^Jane")
        case "decoded":
            return DecodedImage((), {})
        case "closed":
            raise PermissionError(errno.EACCES, "Permission denied")
        case "bad_block":
            raise OSError(errno.EIO, "Input/output error")
    return dict.fromkeys(request.input_specs, NotReady("undecodable", str(os.getpid())))

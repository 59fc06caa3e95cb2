"""The rendering process, `python -m hilum.api.pages.render_worker FD`.

It converts stored pixels to a PNG. Codecs are C code on hostile input: a fault here costs this
process and one picture, never the web server. The answer is plain bytes, not a pickle. A file may
take over this process, and must not be able to make the parent run code.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from hilum.process_limits import forbid_core_files, limit_memory

READY = b"R"
PNG = b"P"
NO_PICTURE = b"N"
GONE: Final = "instance_missing"
_TOO_LARGE = "too_large"
_IDLE_SECONDS = 120
_NICE = 10  # no study waits for a picture


@dataclass(frozen=True, slots=True)
class PaintRequest:
    """Paint the object in the file, or the document given as bytes.

    `seconds`: after that the kernel ends the process.
    """

    source: Path | bytes
    maximum_pixels: int
    seconds: int


def serve(connection: Connection) -> None:
    """Answer orders until the web process closes its end, dies, or has not asked for a while."""
    connection.send_bytes(READY)
    while connection.poll(_IDLE_SECONDS):
        try:
            order: PaintRequest = connection.recv()
        except EOFError:
            return
        # The default action of SIGALRM ends the process, also within C code, and also when no code
        # waits any more.
        signal.alarm(order.seconds)
        limit_memory(order.maximum_pixels)
        connection.send_bytes(answer(order))
        signal.alarm(0)


def answer(order: PaintRequest) -> bytes:
    """Return `P` and a PNG, or `N` and JSON with the reason and a detail."""
    from hilum.api.pages import render  # noqa: PLC0415 - pydicom and codecs: the web process needs neither
    from hilum_preprocessing import NotAnalysable  # noqa: PLC0415 - the same

    try:
        if isinstance(order.source, Path):
            return PNG + render.png(render.paint_file(order.source, order.maximum_pixels))
        return PNG + render.png(render.paint_document(order.source))
    except NotAnalysable as error:
        return _no_picture(error.reason.value, error.detail)
    except MemoryError:
        return _no_picture(_TOO_LARGE)
    except OSError:
        return _no_picture(GONE)


def _no_picture(reason: str, detail: str = "") -> bytes:
    return NO_PICTURE + json.dumps({"reason": reason, "detail": detail}).encode()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the supervisor
    os.nice(_NICE)
    forbid_core_files()
    serve(Connection(int(sys.argv[1])))

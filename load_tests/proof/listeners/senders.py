"""What comes to the door: objects as files, sent by DCMTK's storescu.

What was not acknowledged is sent again.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import subprocess
import threading
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from hilum.receive.headers.file_meta import FileMeta, encode
from testing.phantoms import phantom
from testing.phantoms.encoded import Outgoing, Template, fresh_objects
from testing.phantoms.encoded import encode as encode_object

_SIDES = (64, 64, 64, 128, 128, 256, 768)  # pixels: 8 KiB to 1.1 MiB an object
_FILES_A_RUN = 20
_AT_ONCE = 4
_SECONDS = "60"  # -ta, -td: a sender gives up on an association that was accepted and forgotten
# Without the lines of another file in between.
_ACKNOWLEDGED = re.compile(
    r"Sending file: (\S+)(?:(?!Sending file).)*?Store Response \(Success\)", re.DOTALL
)


@dataclass(slots=True)
class Objects:
    """`sent`: SOP Instance UID to sha256 of the data set, of all that ever went out.

    `acknowledged`: those that were answered 0x0000.
    """

    sent: dict[str, str] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)


def drawn(sides: Sequence[int] = _SIDES) -> list[Template]:
    """Small objects and large ones, for the same reason as in a hospital.

    Most are small, and the large ones take most of the time.
    """
    return [
        encode_object(phantom.make_instance(n, "PA", rows=side, columns=side))
        for n, side in enumerate(sides)
    ]


def digest(outgoing: Outgoing) -> str:
    """sha256 of the data set."""
    found = hashlib.sha256()
    for piece in outgoing.pieces:
        found.update(piece)
    return found.hexdigest()


class Outbox:
    """Files `<SOP Instance UID>.dcm` in `folder`, new ones as long as somebody takes them."""

    def __init__(self, folder: Path, templates: Sequence[Template], chance: random.Random) -> None:
        folder.mkdir(parents=True)
        self.objects = Objects()
        self._folder = folder
        self._templates = templates
        self._chance = chance
        self._again: deque[Path] = deque()
        self._lock = threading.Lock()

    def take(self) -> list[Path]:
        """For one association: first what has to go once more."""
        with self._lock:
            return [
                self._again.popleft() if self._again else self._draw() for _ in range(_FILES_A_RUN)
            ]

    def note(self, files: Sequence[Path], acknowledged: set[Path]) -> None:
        """What came of them."""
        with self._lock:
            self.objects.acknowledged |= {file.stem for file in acknowledged}
            self._again += [file for file in files if file not in acknowledged]
        for file in acknowledged:
            file.unlink()

    def _draw(self) -> Path:
        _, (outgoing,) = fresh_objects([self._chance.choice(self._templates)], self._chance)
        meta = FileMeta(
            outgoing.sop_class_uid,
            outgoing.sop_instance_uid,
            outgoing.transfer_syntax_uid,
            "ROUTER",
            "HILUM",
        )
        file = self._folder / f"{outgoing.sop_instance_uid}.dcm"
        file.write_bytes(b"".join((encode(meta), *outgoing.pieces)))
        self.objects.sent[outgoing.sop_instance_uid] = digest(outgoing)
        return file


class Senders:
    """Four storescu at once, each with one association after the other, from `begin` to `end`.

    A context manager that ends them.
    """

    def __init__(self, port: int, outbox: Outbox) -> None:
        self.associations: Counter[str] = Counter()
        self._port = port
        self._outbox = outbox
        self._over = threading.Event()
        self._pool = ThreadPoolExecutor(_AT_ONCE)
        self._workers: list[Future[None]] = []

    def __enter__(self) -> Self:
        """Nothing yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """No more, however the block ended."""
        self._over.set()
        self._pool.shutdown()

    def begin(self) -> None:
        """Now."""
        self._over.clear()
        self._workers = [self._pool.submit(self._send) for _ in range(_AT_ONCE)]

    def end(self) -> None:
        """No more associations; returns when those under way have ended, however they did.

        Raises what went wrong in a worker.
        """
        self._over.set()
        for worker in self._workers:
            worker.result()

    def _send(self) -> None:
        """One association at least."""
        is_over = False
        while not is_over:
            files = self._outbox.take()
            ran = subprocess.run(
                self._command(files),
                check=False,
                capture_output=True,
                text=True,
                env={**os.environ, "TCP_NODELAY": "1"},
            )
            self._outbox.note(files, {Path(name) for name in _ACKNOWLEDGED.findall(ran.stderr)})
            self.associations["whole" if ran.returncode == 0 else "broken"] += 1
            is_over = self._over.is_set()

    def _command(self, files: Sequence[Path]) -> list[str]:
        options = ["-v", "-R", "-ta", _SECONDS, "-td", _SECONDS, "-aet", "ROUTER", "-aec", "HILUM"]
        return ["storescu", *options, "127.0.0.1", str(self._port), *map(str, files)]

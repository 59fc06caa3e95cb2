"""The destination of a load test, in a process of its own.

When each report came, and whether one came twice with other bytes.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import IO, Literal, Self

from testing.serving import REPOSITORY

AE_TITLE = "LOADTEST"
Behaviour = Literal["well", "down", "silent", "full"]
_ANSWER_SECONDS = 30.0


@dataclass
class Arrivals:
    """Reports by study: when each came (`time.monotonic`).

    Filled by the thread that listens to the receiver's process.
    """

    by_study: dict[str, list[float]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    repeated: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(
        self, study_instance_uid: str, sop_instance_uid: str, digest: str, moment: float
    ) -> bool:
        """One report; whether it is new.

        The same SOP Instance again is a repetition: harmless, or with other bytes a broken promise.
        """
        with self.lock:
            known = self.digests.get(sop_instance_uid)
            if known is None:
                self.digests[sop_instance_uid] = digest
                self.by_study.setdefault(study_instance_uid, []).append(moment)
            elif known == digest:
                self.repeated += 1
            else:
                self.changed.append(sop_instance_uid)
            return known is None

    def first_after(self, study_instance_uid: str, moment: float) -> float | None:
        """When the first report on the study came after `moment`."""
        with self.lock:
            return next(
                (at for at in self.by_study.get(study_instance_uid, []) if at >= moment), None
            )

    def count(self) -> int:
        """Studies that have a report."""
        with self.lock:
            return len(self.by_study)


class Receiver:
    """C-STORE SCP for Comprehensive 3D SR. A context manager; its process ends with the block."""

    def __init__(self, port: int, host: str = "127.0.0.1", before: Sequence[str] = ()) -> None:
        """`before`: words of a command line that runs another, as on another host."""
        self.arrivals = Arrivals()
        self._address = (host, port)
        self._before = before
        self._answers: SimpleQueue[str] = SimpleQueue()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        """Listen. Raises OSError: the port is taken."""
        command = [
            *self._before,
            sys.executable,
            "-m",
            "testing.network.receiver_process",
            self._address[0],
            str(self._address[1]),
        ]
        self._process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
        self._await("ready")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop listening."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait(timeout=_ANSWER_SECONDS)

    def behave(self, behaviour: Behaviour) -> None:
        """From now on refuse connections (`down`), take reports and never answer (`silent`), answer 0xA700 (`full`), or be `well`."""
        self._order(f"behave {behaviour}")
        self._await(f"behaves {behaviour}")

    def cpu_seconds(self) -> float:
        """CPU that the receiver's process has used."""
        self._order("cpu")
        return float(self._await("cpu").split()[1])

    def _order(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(line + "\n")

    def _await(self, beginning: str) -> str:
        try:
            line = self._answers.get(timeout=_ANSWER_SECONDS)
        except Empty:
            line = "nothing"
        if not line.startswith(beginning):
            raise OSError(
                f"the receiver on port {self._address[1]} says {line!r} instead of {beginning!r}"
            )
        return line

    def _listen(self, lines: IO[str] | None) -> None:
        for line in lines or ():
            word, *values = line.split()
            if word == "report":
                study, instance, digest, moment = values
                self.arrivals.note(study, instance, digest, float(moment))
            else:
                self._answers.put(line.strip())
        self._answers.put("that it has ended")

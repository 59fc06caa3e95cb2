"""One real street for one part of the proof.

Router, Hilum with the tiny release, PACS; and what a person would do to it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError

from hilum.triton import leftovers
from load_tests.proof.evidence import gather, open_rows
from load_tests.proof.images import Supply
from load_tests.proof.resources import Sizes, sizes
from load_tests.proof.router import Load, Router
from load_tests.proof.verdict import Verdict, judge
from testing import accounting
from testing.network.receiver import AE_TITLE, Receiver
from testing.serving import Hilum, free_ports
from testing.tiny_release import Tiny

START_SECONDS = 180.0  # on a busy machine
DRAIN_SECONDS = 600.0
_QUIET_SECONDS = 1.0
_LOOK_SECONDS = 0.3
_WARM_UP_STUDIES = 8
_FIRST_STUDIES = 4
_STUB = "triton-stub"
# systemd waits for all processes of the unit before it starts it again (deploy/systemd).
_ENDING_SECONDS = 40.0


class NotQuiet(Exception):
    """The street did not come to rest, or did not come up."""


class Street:
    """A context manager: all three ends are up and warm inside."""

    def __init__(
        self,
        folder: Path,
        tiny: Tiny,
        load: Load,
        *,
        seed: int = 0,
        timeout_seconds: float = 20.0,
        **sections: Mapping[str, Any],
    ) -> None:
        (port,) = free_ports(1)
        self.folder = folder
        self.pacs = Receiver(port)
        self.hilum = Hilum(
            folder, {"pacs": _pacs(port, timeout_seconds)}, **_sections(tiny, sections)
        )
        self.archive = folder / "state/archive"
        self.ledger_url = (
            sections.get("ledger", {}).get("url") or f"sqlite:///{folder / 'state/ledger.sqlite'}"
        )
        self.starts = 0
        self.unasked_ends = 0
        self.before: Sizes = {}
        self._last_fault_at = 0.0
        self._warm_up = Router(self.hilum.dicom_port, Supply(seed + 1), Load(rate=20.0))
        self.router = Router(
            self.hilum.dicom_port, Supply(seed, load.views), load, lambda: self._is_held(load)
        )
        self._stack = ExitStack()

    @property
    def ledger(self) -> Path:
        """Its file."""
        return Path(self.ledger_url.removeprefix("sqlite:///"))

    def __enter__(self) -> Self:
        """Start, and send a few studies, so that memory is compared with that of a warm server."""
        self.hilum.write_settings()
        with ExitStack() as stack:
            stack.enter_context(self.pacs)
            stack.callback(leftovers.sweep, leftovers.prefix(self.folder / "state"))
            stack.callback(self.hilum.stop)
            self._warm()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop, however the block ended."""
        self._stack.close()

    def _warm(self) -> None:
        self.start()
        self.hilum.wait_until_ready(START_SECONDS)
        self._warm_up.start(_WARM_UP_STUDIES)
        if not self._warm_up.wait(START_SECONDS):
            raise NotQuiet(
                f"the first studies were not accepted: {dict(self._warm_up.books.answers)}"
            )
        self.wait_until_quiet(START_SECONDS)
        self.before = self.sizes()

    def begin(self) -> None:
        """Load, if it has not begun yet."""
        if not self.router.is_running:
            self.router.start()
        wait_for(lambda: self.router.begun >= _FIRST_STUDIES, START_SECONDS, "the load")

    def start(self) -> None:
        """`hilum serve`, once more."""
        self.hilum.__enter__()
        self.starts += 1

    def tend(self) -> None:
        """As systemd does: where `hilum serve` has ended, start it again."""
        if not self.hilum.is_running:
            self.unasked_ends += 1
            self.start()

    def roles(self) -> dict[int, str]:
        """Process id to role, of all that live."""
        return accounting.roles(self.hilum.pid)

    def pids(self, role: str) -> list[int]:
        """The processes of a role."""
        return [pid for pid, its_role in self.roles().items() if its_role == role]

    def sizes(self) -> Sizes:
        """Memory and descriptors by role."""
        return sizes(self.hilum.pid)

    def signal(self, pids: Sequence[int], number: signal.Signals = signal.SIGKILL) -> None:
        """A fault begins, or ends, now."""
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        self.fault()

    def fault(self) -> None:
        """What follows is recovery."""
        self._last_fault_at = time.monotonic()

    def kill_supervisor(self) -> None:
        """The others notice and end, but for Triton's stubs, which the next start ends.

        Systemd waits and starts it again.
        """
        everyone = [pid for pid, role in self.roles().items() if role != _STUB]
        self.signal([self.hilum.pid])
        wait_for(
            lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in everyone),
            _ENDING_SECONDS,
            "all processes to end",
        )
        self.start()

    def drain(self, seconds: float = DRAIN_SECONDS) -> float:
        """The router finishes and all work ends; seconds from the last fault until then.

        Raises NotQuiet.
        """
        if not self.router.finish(seconds):
            raise NotQuiet(
                f"not accepted within {seconds:.0f} s:"
                f" {dict(self.router.books.answers)}\n{self.hilum.log_end()}"
            )
        self.wait_until_quiet(seconds)
        return round(time.monotonic() - self._last_fault_at, 1)

    def wait_until_quiet(self, seconds: float) -> None:
        """Until no row is open, no file waits for a row, and every acknowledged study has a report.

        Raises NotQuiet.
        """
        wait_for(self._is_quiet, seconds, lambda: f"quiet; still {self._unfinished()}")

    def _is_quiet(self) -> bool:
        self.tend()
        return not self._unfinished()

    def verdict(self) -> Verdict:
        """What the PACS, the archive and the ledger say about what was acknowledged."""
        books = (self._warm_up.books, self.router.books)
        acknowledged = {uid: digest for each in books for uid, digest in each.acknowledged.items()}
        studies = {study: images for each in books for study, images in each.studies().items()}
        return judge(
            acknowledged, studies, gather(self.ledger_url, self.archive, self.pacs.arrivals)
        )

    def outstanding(self) -> int:
        """Acknowledged studies without a report."""
        return (
            len(self.router.books.images_of)
            + len(self._warm_up.books.images_of)
            - self.pacs.arrivals.count()
        )

    def _is_held(self, load: Load) -> bool:
        return self.outstanding() >= load.outstanding

    def _unfinished(self) -> str:
        """What is not done, in words; empty: nothing."""
        parts = [f"{count} {kind}" for kind, count in self._open_rows().items()]
        parts += (
            [f"{waiting} unindexed"]
            if (waiting := len(list(self.archive.glob("unindexed/*/*"))))
            else []
        )
        parts += [f"{studies} unreported"] if (studies := self.outstanding()) > 0 else []
        return ", ".join(parts)

    def _open_rows(self) -> dict[str, int]:
        engine = create_engine(self.ledger_url)
        try:
            return open_rows(engine)
        except OperationalError:
            return {"(the ledger cannot be read)": 1}
        finally:
            engine.dispose()


def wait_for(
    condition: Callable[[], object], seconds: float, what: str | Callable[[], str]
) -> None:
    """Until it holds. Raises NotQuiet."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise NotQuiet(
                f"not within {seconds:.0f} s: {what if isinstance(what, str) else what()}"
            )
        time.sleep(_LOOK_SECONDS)


def _pacs(port: int, timeout_seconds: float) -> dict[str, Any]:
    """The destination's section."""
    address = {"kind": "dicom", "host": "127.0.0.1", "port": port, "ae_title": AE_TITLE}
    return {**address, "accept_untrained": True, "timeout_seconds": timeout_seconds}


def _sections(
    tiny: Tiny, sections: Mapping[str, Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Quick retries and a small decode pool; what a part asks for wins."""
    usual: dict[str, Mapping[str, Any]] = {
        "models": {
            "manifests": str(tiny.manifests_dir),
            "built": str(tiny.built_dir),
            "releases": [tiny.release.id],
        },
        "studies": {"quiet_seconds": _QUIET_SECONDS},
        "pipeline": {"backoff_seconds": 0.5, "maximum_backoff_seconds": 2.0},
        "analyse": {"canary_seconds": 2.0, "decode_processes": 1, "deadline_seconds": 5.0},
        "log": {"level": "info"},
    }
    return usual | {name: {**usual.get(name, {}), **table} for name, table in sections.items()}

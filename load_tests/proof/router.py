"""A router: studies at a rate over a few associations.

What is not answered with Success is sent again until it is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from load_tests.proof.acknowledged import Books
from load_tests.proof.images import Image, Supply
from load_tests.proof.line import Line

_AGAIN_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Load:
    """What the router sends: studies a second at most, the views of each, with how many under way it waits, and to which host."""

    rate: float = 4.0
    views: tuple[str, ...] = ("PA", "AP")
    associations: int = 2
    studies_per_association: int = 2
    outstanding: int = 300
    host: str = "127.0.0.1"


class Router:
    """Keeps `books`.

    Between its studies it waits while `is_held` says that enough are under way.
    """

    def __init__(
        self, port: int, supply: Supply, load: Load, is_held: Callable[[], bool] = lambda: False
    ) -> None:
        self.books = Books()
        self.begun = 0
        self._address = (port, load.host)
        self._supply = supply
        self._is_held = is_held
        self._rate = load.rate
        self._per_association = load.studies_per_association
        self._next_at = time.monotonic()
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._giving_up = threading.Event()
        self._left: int | None = None
        self._threads = [
            threading.Thread(target=self._serve, daemon=True) for _ in range(load.associations)
        ]

    def start(self, studies: int | None = None) -> None:
        """Begin, without end or with so many studies."""
        self._left = studies
        self._next_at = time.monotonic()
        for thread in self._threads:
            thread.start()

    def finish(self, seconds: float) -> bool:
        """Begin no more, and wait until everything begun is accepted.

        False: it was not within `seconds`, and is given up.
        """
        self._ending.set()
        return self.wait(seconds)

    def wait(self, seconds: float) -> bool:
        """Until all studies asked for are accepted.

        False: not within `seconds`, and the rest is given up.
        """
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        self._giving_up.set()
        return not self.is_running

    @property
    def is_running(self) -> bool:
        """Whether anything is still to be accepted."""
        return any(thread.is_alive() for thread in self._threads)

    def _serve(self) -> None:
        line = Line(*self._address)
        stored = 0
        while (images := self._next()) is not None:
            for image in images:
                self._insist(line, image)
            stored += 1
            if stored % self._per_association == 0:
                line.close()
        line.close()

    def _next(self) -> list[Image] | None:
        """The next study, when it is time for it; None: no more."""
        with self._lock:
            if self._left == 0:
                return None
            self._next_at = max(self._next_at, time.monotonic() - 1) + 1 / self._rate
            if (
                self._ending.wait(max(0.0, self._next_at - time.monotonic()))
                or self._is_stopped_while_held()
            ):
                return None
            self._left = None if self._left is None else self._left - 1
            self.begun += 1
            return self._supply.study()

    def _is_stopped_while_held(self) -> bool:
        while self._is_held():
            if self._ending.wait(0.05):
                return True
        return False

    def _insist(self, line: Line, image: Image) -> None:
        while not self.books.note(image, line.store(image)):
            if self._giving_up.wait(_AGAIN_SECONDS):
                return

"""Something that is looked at again and again, in a thread, as long as a block runs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Repeater(ABC):
    """A context manager that calls `look` every so many seconds, until the block ends.

    An error of `look` ends the thread, and is raised at the end of the block.
    """

    def __init__(self, every_seconds: float) -> None:
        self._every_seconds = every_seconds
        self._error: BaseException | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name=type(self).__name__, daemon=True)

    @abstractmethod
    def look(self) -> None:
        """Look once."""

    def __enter__(self) -> Self:
        """Begin; the first look comes after the first pause."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Look no more. Raises what `look` raised, unless the block has failed itself."""
        self._over.set()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _repeat(self) -> None:
        try:
            while not self._over.wait(self._every_seconds):
                self.look()
        except Exception as error:  # noqa: BLE001 - it is raised at the end of the block
            self._error = error

"""The threads of a dispatcher that perform work items, one for each worklist manager.

Of several dispatchers and hosts one asks a manager, by a lease in the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from hilum.backoff import Backoff
from hilum.observability import telemetry
from hilum.services.workitems.performer import TaskPerformer
from hilum.settings import Settings
from hilum.store.database.engines import AWAY, error_text
from hilum.store.ledger import Ledger
from hilum.store.queue.study_progress import StudyProgressView
from hilum.store.queue.workitems import Workitems
from hilum.workitems.client import ManagerAway, UpsClient

_LEASE_SECONDS: Final = 60.0  # beyond a poll
_LONGEST_PAUSE_SECONDS: Final = 600.0
log = telemetry.logger("processes")


async def performing(settings: Settings, ledger: Ledger, owner: str) -> None:
    """Perform the work items of all managers until it is cancelled."""
    stop = threading.Event()
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(len(settings.workitems), "workitems") as pool:
        try:
            await asyncio.gather(
                *(
                    loop.run_in_executor(
                        pool,
                        contextvars.copy_context().run,
                        PerformerThread(name, settings, ledger, owner, stop).run,
                    )
                    for name in settings.workitems
                )
            )
        finally:
            stop.set()


class PerformerThread:
    """Asks one manager again and again, while this process holds it."""

    def __init__(
        self, name: str, settings: Settings, ledger: Ledger, owner: str, stop: threading.Event
    ) -> None:
        self._name = name
        self._ledger = ledger
        self._settings = settings
        self._manager = settings.workitems[name]
        self._owner = owner
        self._stop = stop
        self._backoff = Backoff(self._manager.poll_seconds, _LONGEST_PAUSE_SECONDS)
        self._failures = 0

    def run(self) -> None:
        """Work until the process stops, and give the lease back."""
        url = self._settings.ledger_url
        with (
            contextlib.closing(Workitems(url)) as items,
            contextlib.closing(StudyProgressView(url)) as studies,
            contextlib.closing(UpsClient(self._name, self._manager, self._stop)) as client,
        ):
            performer = TaskPerformer(
                self._name, self._settings, items, studies, client, self._ledger
            )
            pause = 0.0
            while not self._stop.wait(pause):
                pause = self._turn(performer, items)
            with contextlib.suppress(*AWAY):
                items.give_back(self._name, self._owner)

    def _turn(self, performer: TaskPerformer, items: Workitems) -> float:
        """Take a turn, and return the seconds until the next."""
        poll = self._manager.poll_seconds
        try:
            if items.hold(self._name, self._owner, poll + _LEASE_SECONDS):
                performer.turn()
                self._note(items, "")
            else:  # another process has its metrics, too
                telemetry.WORKITEM_MANAGER_AWAY.labels(self._name).set(0)
                telemetry.WORKITEMS_OPEN.labels(self._name).set(0)
        except ManagerAway as error:
            return self._failed(items, error.detail, error.after_seconds or 0.0)
        except AWAY as error:
            log.warning("workitems_not_followed", manager=self._name, error=error_text(error))
        except Exception as error:  # a bug here must not stop the reports of this process
            log.error("workitems_failed", manager=self._name, exc_info=error)
            problem = f"{self._name}: unexpected {type(error).__name__}; see the log"
            return self._failed(items, problem, 0.0)
        self._failures = 0
        return poll

    def _failed(self, items: Workitems, problem: str, wait_seconds: float) -> float:
        """Keep a problem, and return the seconds until the next turn."""
        if self._stop.is_set():
            return 0.0
        self._failures += 1
        with contextlib.suppress(SQLAlchemyError):
            self._note(items, problem)
        return max(self._backoff.after(self._failures), wait_seconds)

    def _note(self, items: Workitems, problem: str) -> None:
        """Log when a manager goes away and when it is back; keep the problem for people."""
        telemetry.WORKITEM_MANAGER_AWAY.labels(self._name).set(1 if problem else 0)
        if problem and self._failures == 1:
            log.warning("worklist_manager_away", manager=self._name, problem=problem)
        if not problem and self._failures:
            log.info("worklist_manager_back", manager=self._name)
        if problem != items.problems().get(self._name, ""):
            items.note(self._name, problem)

"""Fetched objects into the archive, by the same checks and the same writer as C-STORE."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from hilum.domain import CAMPAIGN_AE_TITLE, Priority
from hilum.receive.policy.association_record import AssociationRecorder
from hilum.receive.policy.watermarks import Watermarks
from hilum.receive.storage.dispatcher import ObjectDispatcher
from hilum.receive.storage.session import indexing
from hilum.retrieve.source import PartOutcome
from hilum.services.ingest import own_archive
from hilum.services.stow import StowPart
from hilum.settings import Settings
from hilum.store.archive.archive import Archive
from hilum.store.ledger import Ledger
from hilum.store.queries.views import LedgerViews

_FLUSH_SECONDS: Final = 600.0
_PAUSE_SECONDS: Final = 5.0
_ROWS_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.05


class FetchedPart:
    """One object on its way; see `retrieve.source.IncomingPart`."""

    def __init__(self, part: StowPart) -> None:
        self._part = part

    def write(self, piece: bytes) -> None:
        """Take the next bytes."""
        self._part.write(piece)

    def end(self) -> PartOutcome:
        """Return the outcome: durable, or refused."""
        ended = self._part.end()
        problem = ended.comment or "refused" if ended.failure is not None else ""
        return PartOutcome(ended.sop_instance_uid, problem, ended.is_transient)

    def abandon(self) -> None:
        """Discard an object that is not whole."""
        self._part.abandon()


class CampaignStore:
    """The archive as a campaign's fetches see it; see `retrieve.source.ObjectStore`.

    `process`: its name in the archive, which no other living process has, and which the next one of
    this host gets. `obstacle`: why nothing may be stored now, empty if it may. `wait` is called
    with the reason; it returns when to look again.
    """

    def __init__(
        self,
        process: str,
        reception: ObjectDispatcher,
        obstacle: Callable[[], str],
        wait: Callable[[str], None],
    ) -> None:
        self.process = process
        self._reception = reception
        self._obstacle = obstacle
        self._wait = wait

    def begin(self, origin: str = "") -> FetchedPart:  # noqa: ARG002 - the interface's
        """Begin an object when there is room."""
        while reason := self._obstacle():
            self._wait(reason)
        account = AssociationRecorder(
            "",
            time.time(),
            CAMPAIGN_AE_TITLE,
            CAMPAIGN_AE_TITLE,
            requests="object(s) of a campaign",
        )
        return FetchedPart(StowPart(self._reception, None, account))


@contextlib.contextmanager
def campaign_store(
    settings: Settings, stop: threading.Event, waiting: Callable[[str], None]
) -> Iterator[CampaignStore]:
    """Yield the store of one process; at the end its objects have their rows.

    The objects of a process that was killed have theirs before it begins.
    `stop` ends a wait for the disk, by Stopped; it is set if a bug ends the indexing.
    """

    def wait(reason: str) -> None:
        waiting(reason)
        if stop.wait(_PAUSE_SECONDS):
            raise StoreStopped

    url = settings.ledger_url
    with (
        contextlib.closing(Ledger(url)) as ledger,
        contextlib.closing(LedgerViews(url)) as views,
        own_archive(settings, Priority.REANALYSIS) as archive,
        indexing(settings, ledger, archive, stop, _FLUSH_SECONDS) as reception,
    ):
        _await_rows(archive, stop)
        watermarks = Watermarks(settings.receive, archive, views)

        def obstacle() -> str:
            rejection = watermarks.rejection()
            return disk_obstacle(settings, archive) if rejection is None else rejection.advice

        yield CampaignStore(archive.process, reception, obstacle, wait)


def disk_obstacle(settings: Settings, archive: Archive) -> str:
    """Return why a campaign may store nothing now; empty: it may.

    Live images are rejected below `receive.reject_bytes`, so it stops above.
    """
    free = archive.free().bytes
    wanted = settings.receive.reject_below_bytes + settings.receive.maximum_object_bytes
    if free >= wanted:
        return ""
    return f"{free >> 20} MiB of disk are free; a campaign leaves {wanted >> 20} MiB to live images"


def _await_rows(archive: Archive, stop: threading.Event) -> None:
    """Wait until files of a former process are indexed: a campaign would fetch them again.

    A file that cannot be indexed stays, so there is a limit.
    """
    end = time.monotonic() + _ROWS_SECONDS
    while any(archive.unindexed(archive.process)) and time.monotonic() < end:
        if stop.wait(_LOOK_SECONDS):
            return


class StoreStopped(Exception):
    """The process stops while an object waits for the disk."""

"""STOW-RS into the archive: parts are Part 10 files, taken by the same writer as C-STORE.

The studies of a request are closed.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from hilum.api.stow_store import Stowed
from hilum.errors import ConfigurationError, Retry
from hilum.observability import telemetry, tracing
from hilum.receive.headers import file_meta
from hilum.receive.headers.file_meta import FileMeta
from hilum.receive.headers.header import Header
from hilum.receive.policy.association_record import AssociationRecorder, HttpProblem
from hilum.receive.policy.record_writer import AssociationRecordWriter
from hilum.receive.policy.watermarks import Watermarks
from hilum.receive.sinks import ObjectSink, StoreOutcome
from hilum.receive.statuses import (
    CannotUnderstand,
    DataSetDoesNotMatch,
    OutOfResources,
    Refusal,
    TooLarge,
)
from hilum.receive.storage.dispatcher import ObjectDispatcher
from hilum.receive.storage.incoming_object import Arriving
from hilum.receive.storage.responses import StoreResponses
from hilum.receive.storage.session import indexing, open_inbox
from hilum.receive.storage.store_command import StoreCommand
from hilum.services.worklist.priority_lookup import priority_lookup
from hilum.settings import Settings
from hilum.store.archive.consistency import begin_archive
from hilum.store.ledger import Ledger
from hilum.store.queries.views import LedgerViews

_ROWS_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.05
_ROWS_AT_ONCE: Final = 1000  # a database limits the values of one query
_FLUSH_SECONDS: Final = 8.0
_ACCOUNTS_SECONDS: Final = 3.0
log = telemetry.logger("receive")


@dataclass(frozen=True, slots=True)
class StowOutcome:
    """The outcome of one part; see `api.stow_store.Stowed`."""

    sop_class_uid: str
    sop_instance_uid: str
    study_instance_uid: str
    failure: int | None = None
    comment: str = ""
    is_transient: bool = False


@contextlib.contextmanager
def stow_store(
    settings: Settings,
    ledger: Ledger,
    views: LedgerViews,
    stop: threading.Event,
    rows_seconds: float = _ROWS_SECONDS,
) -> Iterator[StowStore]:
    """Yield the store of the web process; its acknowledged images are indexed before it ends.

    `stop` ends the process. `rows_seconds`: how long the end of a request waits for the rows of its
    images. Raises ConfigurationError.
    """
    archive = open_inbox(settings, f"{socket.gethostname()}-web")
    begin_archive(ledger.url, archive)
    with archive.held(archive.process) as is_ours:
        if not is_ours:
            raise ConfigurationError(
                [
                    (
                        f"archive: another web process named {archive.process} uses"
                        f" {settings.archive_dir}."
                    )
                ]
            )
        titles = (
            settings.stow.calling_ae_title,
            settings.stow.called_ae_title or settings.receive.ae_titles[0],
        )
        accounts = AssociationRecordWriter(ledger)
        accounts.start()
        try:
            with (
                priority_lookup(settings, ledger) as seen,
                indexing(settings, ledger, archive, stop, _FLUSH_SECONDS, seen=seen) as reception,
            ):
                context = StowContext(
                    titles, reception, Watermarks(settings.receive, archive, views), accounts
                )
                yield StowStore(context, ledger, views, rows_seconds)
        finally:
            accounts.stop(_ACCOUNTS_SECONDS)


@dataclass(frozen=True, slots=True)
class StowContext:
    """The parts that all requests share.

    `titles`: the Calling and the Called AE Title that objects, and refusals, are recorded with.
    """

    titles: tuple[str, str]
    reception: ObjectDispatcher
    watermarks: Watermarks
    accounts: AssociationRecordWriter


class StowStore:
    """The store of STOW-RS; see `api.stow_store.Store`."""

    def __init__(
        self, context: StowContext, ledger: Ledger, views: LedgerViews, rows_seconds: float
    ) -> None:
        self._context = context
        self._rows_seconds = rows_seconds
        self._ledger = ledger
        self._views = views

    def open(self, peer_address: str) -> StowVisit:
        """Begin a request."""
        return StowVisit(self._context, peer_address)

    def close(self, stowed: Sequence[Stowed]) -> None:
        """End the quiet period of each study as soon as its images have their rows.

        If that takes too long, the quiet period continues.
        """
        images = [item for item in stowed if item.study_instance_uid]
        try:
            self._await_rows({item.sop_instance_uid for item in images})
            for study in sorted({item.study_instance_uid for item in images}):
                self._ledger.complete(study, is_waiting=True)
        # the images are durable, so the request has succeeded anyway
        except (Retry, SQLAlchemyError) as error:
            problem = error.detail if isinstance(error, Retry) else type(error).__name__
            log.warning("study_not_closed", problem=problem, advice="its quiet period closes it")

    def _await_rows(self, uids: set[str]) -> None:
        """Wait for the rows of images. Raises Retry if they do not come."""
        end = time.monotonic() + self._rows_seconds
        while uids := uids - set(self._views.digests(sorted(uids)[:_ROWS_AT_ONCE])):
            if time.monotonic() > end:
                raise Retry("its images have no rows yet")
            time.sleep(_LOOK_SECONDS)


class StowVisit:
    """A request; see `api.stow_store.Visit`."""

    def __init__(self, context: StowContext, peer_address: str) -> None:
        self._context = context
        self._is_admitted = False
        self._account = AssociationRecorder(
            peer_address, time.time(), *context.titles, requests="part(s) of a STOW-RS request"
        )
        self._account.shown = tracing.AssociationSpan("stow_request") if tracing.is_on() else None

    def refusal(self) -> str | None:
        """Return the reason why no part can be taken now, or None."""
        self._account.rejection = rejection = self._context.watermarks.rejection()
        self._is_admitted = rejection is None
        return None if rejection is None else rejection.advice

    def begin(self, study_instance_uid: str | None) -> StowPart:
        """Begin a new part."""
        return StowPart(self._context.reception, study_instance_uid, self._account)

    def end(self, status: int, detail: str) -> None:
        """Write a row soon for a request with refused parts or without effect.

        A request whose parts were all taken has no row: its images have rows.
        """
        account = self._account
        if detail:
            account.http_problem = HttpProblem(status, detail)
        outcome = "rejected" if not self._is_admitted else "aborted" if detail else "released"
        account.show(outcome)
        account.say_discarded()
        if not (detail or account.refused or account.has_note_not_permitted or account.discarded):
            return
        self._context.accounts.put(account.record(outcome, time.time()))


class StowPart:
    """A part; see `api.stow_store.Part`."""

    def __init__(
        self, reception: ObjectDispatcher, study: str | None, account: AssociationRecorder
    ) -> None:
        self._reception = reception
        self._study = study
        self._account = account
        self._beginning = bytearray()
        self._meta: FileMeta | None = None
        self._arriving: Arriving | None = None
        self._found_study = ""
        self._taken = StoreOutcome.IMAGE
        self._error: Refusal | OSError | None = None
        self._verdicts = StoreResponses(account)

    def write(self, piece: bytes) -> None:
        """Take the next bytes; after an error they are discarded."""
        self._try(lambda: self._write(piece))

    def end(self) -> StowOutcome:
        """Return the outcome: durable, or refused."""
        self._try(self._commit)
        self.abandon()
        meta = self._meta
        names = (meta.sop_class_uid, meta.sop_instance_uid) if meta is not None else ("", "")
        if self._error is None:
            self._verdicts.count(self._taken, names[0])
            return StowOutcome(
                *names, self._found_study if self._taken is StoreOutcome.IMAGE else ""
            )
        failure = self._verdicts.failed(self._error)
        is_transient = isinstance(self._error, OutOfResources | OSError) and not isinstance(
            self._error, TooLarge
        )
        return StowOutcome(*names, "", failure.status, failure.comment, is_transient)

    def abandon(self) -> None:
        """Remove all data that was not committed."""
        if self._arriving is not None:
            self._arriving.close()
            self._arriving = None

    def _try(self, step: Callable[[], None]) -> None:
        """Keep an error of a part for its response; the other parts are taken nevertheless."""
        if self._error is not None:
            return
        try:
            step()
        except (Refusal, OSError) as error:
            self._error = error
            self.abandon()

    def _write(self, piece: bytes) -> None:
        if self._arriving is not None:
            self._arriving.write([memoryview(piece)])
        else:
            self._beginning += piece
            self._begin(is_end=False)

    def _commit(self) -> None:
        if self._arriving is None:
            self._begin(is_end=True)
        assert self._arriving is not None
        self._taken = self._arriving.commit()

    def _begin(self, *, is_end: bool) -> None:
        """Begin the object as soon as the File Meta Information is there."""
        try:
            account = self._account
            titles = account.calling_ae_title, account.called_ae_title
            self._meta, start = file_meta.decode_of_others(
                bytes(self._beginning), *titles, account.peer_address
            )
        except CannotUnderstand:
            if is_end or len(self._beginning) > file_meta.MAXIMUM_BYTES:
                raise
            return
        self._arriving = Arriving(
            StoreCommand.of_file(self._meta, self._account.shown),
            self._taker,
            self._reception.unread_taker,
        )
        self._arriving.write([memoryview(bytes(self._beginning[start:]))])
        self._beginning.clear()

    def _taker(self, command: StoreCommand, header: Header) -> ObjectSink:
        self._found_study = header.study_instance_uid
        if self._study is not None and header.study_instance_uid != self._study:
            raise DataSetDoesNotMatch("Study Instance UID (0020,000D) differs from the address's")
        return self._reception.taker(command, header)

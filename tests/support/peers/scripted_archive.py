"""An archive by pynetdicom that misbehaves on demand, as no real server does.

Its handlers answer by themselves where pynetdicom's services would not let them.
"""

from __future__ import annotations

import itertools
import ssl
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from pydicom.dataset import Dataset
from pydicom.uid import ExplicitVRLittleEndian
from pynetdicom import AE, AllStoragePresentationContexts, evt
from pynetdicom.dimse_primitives import C_MOVE
from pynetdicom.sop_class import (
    StudyRootQueryRetrieveInformationModelFind,
    StudyRootQueryRetrieveInformationModelGet,
    StudyRootQueryRetrieveInformationModelMove,
    Verification,
)

from tests.support.peers.archives import ARCHIVE_TITLE, DX

_PAUSE_SECONDS = 0.01
_FOR_EVER = 1_000_000


class Ending(StrEnum):
    """How it ends a request: with a final status, with silence, never, or by an abort."""

    FINAL = "final"
    SILENCE = "silence"
    PENDING_FOR_EVER = "pending_for_ever"
    ABORT = "abort"


@dataclass
class ScriptedArchive:
    """Enter it as a context; `port` is its own.

    `answers`: matches of each query, whatever it asks. `objects`: sent at each C-GET or C-MOVE,
    whatever it asks; `move_port` takes those of a C-MOVE. `final` is the final status, `pending`
    that of a match. `counts`: of a C-MOVE that sends nothing: completed, failed, warned.
    `requests`: the identifiers that came; `statuses`: our answers to C-STORE requests of a C-GET.
    `only_called`, `known_callers`: it rejects other Called and Calling AE Titles.
    """

    answers: Sequence[dict[str, str]] = ()
    objects: Sequence[Dataset] = ()
    ending: Ending = Ending.FINAL
    final: int = 0x0000
    pending: int = 0xFF00
    counts: tuple[int, int, int] | None = None
    ignores_cancel: bool = False
    only_called: bool = False
    known_callers: tuple[str, ...] = ()
    tls: ssl.SSLContext | None = None
    move_port: int = 0
    requests: list[Dataset] = field(default_factory=list)
    associations: list[Any] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)

    @property
    def port(self) -> int:
        """Its port."""
        return int(self._server.socket.getsockname()[1])

    def __enter__(self) -> Self:
        """Start it."""
        entity = AE(ae_title=ARCHIVE_TITLE)
        for model in (
            Verification,
            StudyRootQueryRetrieveInformationModelFind,
            StudyRootQueryRetrieveInformationModelGet,
            StudyRootQueryRetrieveInformationModelMove,
        ):
            entity.add_supported_context(model)
        for context in AllStoragePresentationContexts:
            entity.add_supported_context(
                context.abstract_syntax, ExplicitVRLittleEndian, scu_role=True, scp_role=True
            )
        entity.require_called_aet = self.only_called
        entity.require_calling_aet = list(self.known_callers)
        entity.add_requested_context(DX, ExplicitVRLittleEndian)
        self._server = entity.start_server(
            ("127.0.0.1", 0),
            block=False,
            ssl_context=self.tls,
            evt_handlers=[
                (evt.EVT_C_FIND, self._find),
                (evt.EVT_C_GET, self._get),
                (evt.EVT_C_MOVE, self._move),
                (evt.EVT_ESTABLISHED, lambda event: self.associations.append(event.assoc)),
                (evt.EVT_DIMSE_RECV, self._note_response),
            ],
        )
        return self

    def __exit__(self, *exc: object) -> None:
        """Stop it."""
        self._server.shutdown()

    def _note_response(self, event: Any) -> None:
        message = event.message
        if type(message).__name__ == "C_STORE_RSP":
            self.statuses.append(int(message.command_set.Status))

    def _find(self, event: Any) -> Iterator[tuple[int, Dataset | None]]:
        self.requests.append(event.identifier)
        if self.ending is Ending.SILENCE:
            _wait_for_the_end(event)
            return
        yield from self._matches(event)
        if self.ending is Ending.ABORT:
            event.assoc.abort()
            return
        if self.final:
            yield self.final, None

    def _matches(self, event: Any) -> Iterator[tuple[int, Dataset | None]]:
        times = _FOR_EVER if self.ending is Ending.PENDING_FOR_EVER else 1
        for item in itertools.chain.from_iterable(itertools.repeat(self.answers, times)):
            if not event.assoc.is_established:
                return
            if event.is_cancelled and not self.ignores_cancel:
                yield 0xFE00, None
                return
            yield self.pending, _dataset(item)
            if self.ignores_cancel:
                time.sleep(_PAUSE_SECONDS)

    def _get(self, event: Any) -> Iterator[Any]:
        self.requests.append(event.identifier)
        if self.ending is Ending.SILENCE:
            _wait_for_the_end(event)
            return
        yield len(self.objects)
        for number, item in enumerate(self.objects):
            if event.is_cancelled:
                yield 0xFE00, None
                return
            if number == 1 and self.ending is Ending.ABORT:
                event.assoc.abort()
                return
            yield 0xFF00, item
        if self.final:
            yield self.final, None

    def _move(self, event: Any) -> Iterator[Any]:
        self.requests.append(event.identifier)
        if self.ending is Ending.FINAL and self.counts is None:
            yield "127.0.0.1", self.move_port
            yield len(self.objects)
            for item in self.objects:
                yield 0xFF00, item
            if self.final:
                yield self.final, None
            return
        if self.ending is Ending.ABORT:
            event.assoc.abort()
            return
        self._move_by_hand(event)

    def _move_by_hand(self, event: Any) -> None:
        if self.counts is not None:
            self._respond(event, self.final)
        while event.assoc.is_established and self.ending is Ending.PENDING_FOR_EVER:
            if event.is_cancelled and not self.ignores_cancel:
                self._respond(event, 0xFE00)
                break
            self._respond(event, 0xFF00)
            time.sleep(_PAUSE_SECONDS)
        _wait_for_the_end(event)

    def _respond(self, event: Any, status: int) -> None:
        response = C_MOVE()
        response.MessageIDBeingRespondedTo = event.request.MessageID
        response.AffectedSOPClassUID = event.request.AffectedSOPClassUID
        response.Status = status
        if self.counts is not None:
            completed, failed, warned = self.counts
            response.NumberOfCompletedSuboperations = completed
            response.NumberOfFailedSuboperations = failed
            response.NumberOfWarningSuboperations = warned
        event.assoc.dimse.send_msg(response, event.context.context_id)


def _wait_for_the_end(event: Any) -> None:
    """Hold the association's thread, so that nothing is answered, until the peer ends it."""
    while event.assoc.is_established and event.assoc.dul.is_alive():
        if event.assoc.acse.is_aborted() or event.assoc.acse.is_release_requested():
            return
        time.sleep(_PAUSE_SECONDS)


def _dataset(values: dict[str, str]) -> Dataset:
    dataset = Dataset()
    for keyword, value in values.items():
        setattr(dataset, keyword, value)
    return dataset

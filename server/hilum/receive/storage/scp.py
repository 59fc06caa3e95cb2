"""The Storage SCP of one association (PS3.4 annex B), called by the streaming loop.

It takes pieces of data sets and returns statuses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVarTuple, Unpack

from hilum.receive.headers.file_meta import FileMeta
from hilum.receive.policy.association_record import AssociationRecorder
from hilum.receive.storage.dispatcher import ObjectDispatcher
from hilum.receive.storage.incoming_object import Arriving
from hilum.receive.storage.responses import StoreResponses, problem_of_command
from hilum.receive.storage.store_command import StoreCommand
from hilum.receive.upper_layer.command import Command
from hilum.receive.upper_layer.provider import AcceptedContext, BorrowedBuffer, StoreStatus

_SUCCESS = StoreStatus(0x0000)
_Arguments = TypeVarTuple("_Arguments")


class StreamedStorage:
    """The provider of C-STORE, on the association's thread."""

    def __init__(self, account: AssociationRecorder, reception: ObjectDispatcher) -> None:
        self._account = account
        self._reception = reception
        self._verdicts = StoreResponses(account)

    def begin(self, command: Command, context: AcceptedContext) -> StreamedObject:
        """Begin a C-STORE-RQ (PS3.7 9.1.1)."""
        problem = problem_of_command(
            command.sop_class_uid, command.sop_instance_uid, command.priority
        )
        return StreamedObject(
            self._reception, self._command(command, context), self._verdicts, problem
        )

    def _command(self, command: Command, context: AcceptedContext) -> StoreCommand:
        meta = FileMeta(
            sop_class_uid=command.sop_class_uid,
            sop_instance_uid=command.sop_instance_uid,
            transfer_syntax_uid=context.transfer_syntax_uid,
            calling_ae_title=self._account.calling_ae_title,
            called_ae_title=self._account.called_ae_title,
            peer_address=self._account.peer_address,
        )
        return StoreCommand(meta, context.sop_class_uid, self._account.shown)


class StreamedObject:
    """One data set in transit.

    After the first problem its bytes are discarded, and the response follows the last one.
    """

    def __init__(
        self,
        reception: ObjectDispatcher,
        command: StoreCommand,
        verdicts: StoreResponses,
        problem: Exception | None,
    ) -> None:
        self._began = time.monotonic()
        self._verdicts = verdicts
        self._problem = problem
        self._sop_class_uid = command.meta.sop_class_uid
        self._arriving: Arriving | None = None
        self._attempt(self._begin, reception, command)

    def _begin(self, reception: ObjectDispatcher, command: StoreCommand) -> None:
        self._arriving = reception.begin(command)

    def write(self, pieces: Sequence[memoryview]) -> None:
        """Take the next bytes."""
        if self._arriving is not None:
            self._attempt(self._arriving.write, pieces)

    @property
    def reads_after(self) -> int | None:
        """See `streaming.provider.Incoming`; None after a problem."""
        return None if self._arriving is None else self._arriving.reads_after

    def receive(self, unread: BorrowedBuffer, size: int) -> None:
        """Take the next bytes, from the connection itself."""
        if self._arriving is not None:
            self._attempt(self._arriving.receive, unread, size)

    def finish(self) -> StoreStatus:
        """Return the status: success when the object is durable, else the failure."""
        if self._arriving is not None:
            self._attempt(self._commit, self._arriving)
        if self._problem is None:
            return _SUCCESS
        failure = self._verdicts.failed(self._problem)
        return StoreStatus(failure.status, failure.comment)

    def _commit(self, arriving: Arriving) -> None:
        self._verdicts.taken(arriving.commit(), self._sop_class_uid, self._began)

    def _attempt(self, step: Callable[[Unpack[_Arguments]], None], *arguments: *_Arguments) -> None:
        if self._problem is not None:
            return
        try:
            step(*arguments)
        except Exception as error:  # noqa: BLE001 - the edge of C-STORE: the sender gets a status for any error
            self._problem = error
            self.close()

    def close(self) -> None:
        """Remove all bytes of an unacknowledged object."""
        if self._arriving is not None:
            self._arriving.close()
        self._arriving = None

"""The Storage SCP of one association (PS3.4 annex B): pynetdicom's events in, statuses out."""

from __future__ import annotations

import threading
import time

from pydicom.dataset import Dataset
from pynetdicom.association import Association
from pynetdicom.dimse_messages import C_STORE_RQ
from pynetdicom.dimse_primitives import C_STORE
from pynetdicom.events import Event
from pynetdicom.pdu import P_DATA_TF

from hilum.receive.account import Account
from hilum.receive.file_meta import FileMeta
from hilum.receive.reception import Reception
from hilum.receive.refusals import Refusal
from hilum.receive.store_command import StoreRequest
from hilum.receive.verdicts import Verdicts, problem_of_command

_SUCCESS = 0x0000
_MAXIMUM_COMMAND_BYTES = 64 << 10
_REQUIRED = ("AffectedSOPClassUID", "AffectedSOPInstanceUID")


class Storage:
    """Receives the objects of one association. `store` runs on its thread, the rest on the thread that reads PDUs."""

    def __init__(self, assoc: Association, account: Account, reception: Reception, maximum_object_bytes: int) -> None:
        self._assoc, self._account, self._reception = assoc, account, reception
        self._verdicts = Verdicts(account)
        self._maximum_object_bytes = maximum_object_bytes
        self._message_began = time.monotonic()
        self._storing = threading.Event()
        self.whole_messages = 0

    @property
    def is_busy(self) -> bool:
        """Whether a message is being received or answered."""
        return self._storing.is_set() or self._assoc.dimse.message is not None or not self._assoc.dimse.msg_queue.empty()

    def store(self, event: Event) -> Dataset | int:
        """EVT_C_STORE: the status that answers the request (PS3.7 9.1.1)."""
        self._storing.set()
        try:
            taken = self._reception.store(self._request(event))
        except Exception as error:  # noqa: BLE001 - the C-STORE edge: the sender gets a status, whatever went wrong
            return self._failure(error)
        finally:
            self._storing.clear()
        self._verdicts.taken(taken, self._message_began)
        return _SUCCESS

    def _request(self, event: Event) -> StoreRequest:
        meta = FileMeta(
            sop_class_uid=str(event.request.AffectedSOPClassUID),
            sop_instance_uid=str(event.request.AffectedSOPInstanceUID),
            transfer_syntax_uid=str(event.context.transfer_syntax),
            calling_ae_title=self._account.calling_ae_title,
            called_ae_title=self._account.called_ae_title,
            peer_address=self._account.peer_address,
        )
        return StoreRequest(meta, str(event.context.abstract_syntax), event.request.DataSet.getbuffer(), self._account.shown)

    def _failure(self, error: Exception) -> Dataset:
        failure = self._verdicts.failed(error)
        response = Dataset()
        response.Status, response.ErrorComment = failure.status, failure.comment
        return response

    def pdu_received(self, event: Event) -> None:
        """EVT_PDU_RECV: keep what one message may take in memory bounded, and note when it began."""
        if not isinstance(event.pdu, P_DATA_TF):
            return
        message = self._assoc.dimse.message
        if message is None:
            self._message_began = time.monotonic()
        elif message.encoded_command_set.tell() > _MAXIMUM_COMMAND_BYTES:
            self._assoc.abort()
        elif message.data_set.tell() > self._maximum_object_bytes:
            # What follows is written over itself: the object stays too large to be stored, and grows no more.
            message.data_set.seek(self._maximum_object_bytes)

    def message_received(self, event: Event) -> None:
        """EVT_DIMSE_RECV: answer a command that lacks what pynetdicom needs; it would ignore the one and abort for the other."""
        self.whole_messages += 1
        if isinstance(event.message, C_STORE_RQ) and (problem := _problem(event.message.command_set)) is not None:
            self._refuse_command(event.message, problem)

    def _refuse_command(self, message: C_STORE_RQ, problem: Refusal) -> None:
        if (message_id := message.command_set.get("MessageID")) is None:
            self._assoc.abort()
            return
        failure = self._verdicts.refused(problem)
        response = C_STORE()
        response.MessageIDBeingRespondedTo = message_id
        response.Status, response.ErrorComment = failure.status, failure.comment
        self._assoc.dimse.send_msg(response, message.context_id)
        for keyword in _REQUIRED:  # without them pynetdicom lets the message lie
            if keyword in message.command_set:
                delattr(message.command_set, keyword)


def _problem(command_set: Dataset) -> Refusal | None:
    sop_class, sop_instance = (str(command_set.get(keyword) or "") for keyword in _REQUIRED)
    return problem_of_command(sop_class, sop_instance, command_set.get("Priority"))

"""A Storage SCU that sends exactly the bytes it is given, right or wrong, and says how each request was answered."""

from __future__ import annotations

from io import BytesIO
from typing import Self

from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian
from pynetdicom import AE
from pynetdicom.association import Association
from pynetdicom.dimse_primitives import C_STORE

DX = str(DigitalXRayImageStorageForPresentation)


class RawScu:
    """One association, for one SOP Class and Transfer Syntax and for Verification."""

    def __init__(
        self,
        port: int,
        *,
        sop_class_uid: str = DX,
        transfer_syntax_uid: str = ExplicitVRLittleEndian,
        called: str = "HILUM",
        calling: str = "RAWSCU",
    ) -> None:
        ae = AE(calling)
        ae.add_requested_context(sop_class_uid, [transfer_syntax_uid])
        ae.add_requested_context("1.2.840.10008.1.1")
        ae.acse_timeout = ae.dimse_timeout = ae.network_timeout = 30
        self.assoc: Association = ae.associate("127.0.0.1", port, ae_title=called)
        self._sop_class_uid = sop_class_uid
        self._message_id = 0

    def store(
        self, encoded: bytes, sop_instance_uid: str | None, *, sop_class_uid: str | None = None
    ) -> tuple[int, str]:
        """Status and Error Comment of one C-STORE; -1 when no response came."""
        self._message_id += 1
        request = C_STORE()
        request.MessageID = self._message_id
        request.AffectedSOPClassUID = sop_class_uid or self._sop_class_uid
        request.AffectedSOPInstanceUID = sop_instance_uid
        request.Priority = 2
        request.DataSet = BytesIO(encoded) if encoded else None
        response = self._exchange(request)
        return (
            (-1, "")
            if response is None
            else (int(response.Status), str(response.ErrorComment or ""))
        )

    def _exchange(self, request: C_STORE) -> C_STORE | None:
        # As pynetdicom's own send_c_store does it, but without building a data set.
        stop_reading(self.assoc)
        self.assoc.dimse.send_msg(request, 1)
        return self.assoc.dimse.get_msg(block=True)[1]

    def echo(self) -> int:
        """Status of a C-ECHO; -1 when no response came."""
        return (
            int(getattr(self.assoc.send_c_echo(), "Status", -1))
            if self.assoc.is_established
            else -1
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.assoc.is_established and not self.assoc.acse.is_aborted():
            self.assoc.release()


def rejection_of(assoc: Association) -> tuple[int, int, int] | None:
    """Result, source and reason of the A-ASSOCIATE-RJ that this association got; None: it got none.

    pynetdicom 3.0.4 overlooks one in a thousand on a busy machine: when the answer and the end of
    the connection have been read before the thread that associates looks whether there is a
    connection, it says that there was none. The answer is in its queue then.
    """
    answer = assoc.acceptor.primitive or assoc.dul.receive_pdu()
    if answer is None or not getattr(answer, "result", 0):
        return None
    return answer.result, answer.result_source, answer.diagnostic


def stop_reading(assoc: Association) -> None:
    """End the thread that looks for requests of the peer, so that no response is taken from its waiter.

    To pause it, as pynetdicom does, is a race: it says that it is paused a moment before it is, and
    on a busy machine a moment is long.
    """
    if assoc.is_alive() and assoc.is_established:
        assoc._kill = True
        assoc.join()
        assoc._is_paused = True  # who sends or releases waits for this

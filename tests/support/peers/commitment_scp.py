"""A Storage Commitment SCP of pynetdicom that answers and reports as a test says."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pynetdicom import AE, build_role, evt
from pynetdicom.association import Association
from pynetdicom.events import Event

from tests.support.peers.committing import INSTANCE, PUSH_MODEL, Pair

_SECONDS = 30


@dataclass
class AskedFor:
    """A request as it came."""

    transaction_uid: str
    references: list[Pair]
    calling: str
    association: Association


class ScriptedCommitmentScp:
    """Answers N-ACTION with `statuses` in turn, then success; None breaks the association instead.

    `then` runs on a thread of its own after each request that was taken.
    """

    def __init__(
        self,
        ae_title: str = "PACS",
        statuses: Iterable[int | None] = (),
        then: Callable[[AskedFor], object] | None = None,
        port: int = 0,
    ) -> None:
        self.ae_title = ae_title
        self.asked: queue.Queue[AskedFor] = queue.Queue()
        self.then = then
        self.reported: queue.Queue[int] = queue.Queue()
        self._statuses: Iterator[int | None] = iter(statuses)
        self._ae = AE(ae_title)
        self._ae.add_supported_context(PUSH_MODEL)
        self._ae.acse_timeout = self._ae.dimse_timeout = self._ae.network_timeout = _SECONDS
        self._server = self._ae.start_server(
            ("127.0.0.1", port), block=False, evt_handlers=[(evt.EVT_N_ACTION, self._take)]
        )
        self.port = int(self._server.server_address[1])

    def _take(self, event: Event) -> tuple[int, None]:
        status = next(self._statuses, 0x0000)
        information = event.action_information
        asked = AskedFor(
            str(information.TransactionUID),
            [
                (str(item.ReferencedSOPClassUID), str(item.ReferencedSOPInstanceUID))
                for item in information.ReferencedSOPSequence
            ],
            str(event.assoc.requestor.ae_title).strip(),
            event.assoc,
        )
        self.asked.put(asked)
        if status is None:
            event.assoc.abort()
            return 0x0110, None
        if status == 0 and self.then is not None:
            threading.Thread(target=self.then, args=(asked,), daemon=True).start()
        return status, None

    def next_request(self) -> AskedFor:
        """Waits for it."""
        return self.asked.get(timeout=60)

    def report_here(self, asked: AskedFor) -> None:
        """Report success over the association of the request; its status goes to `reported`."""
        self.reported.put(report_over(asked.association, asked.transaction_uid, asked.references))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()


def report_over(
    association: Association,
    transaction_uid: str,
    kept: Iterable[Pair],
    failed: Mapping[Pair, int] | None = None,
    event_type: int | None = None,
    instance_uid: str = INSTANCE,
) -> int:
    """The status of an N-EVENT-REPORT; -1: no answer."""
    information = Dataset()
    information.TransactionUID = transaction_uid
    if kept := list(kept):
        information.ReferencedSOPSequence = Sequence([_item(*pair) for pair in kept])
    if failed:
        information.FailedSOPSequence = Sequence(
            [_item(*pair, reason) for pair, reason in failed.items()]
        )
    kind = event_type or (2 if failed else 1)
    status, _ = association.send_n_event_report(information, kind, PUSH_MODEL, instance_uid)
    return int(status.get("Status", -1))


def _item(sop_class_uid: str, sop_instance_uid: str, reason: int | None = None) -> Dataset:
    item = Dataset()
    item.ReferencedSOPClassUID = sop_class_uid
    item.ReferencedSOPInstanceUID = sop_instance_uid
    if reason is not None:
        item.FailureReason = reason
    return item


@contextmanager
def reporting(
    port: int, ae_title: str = "PACS", *, proposes_role: bool = True
) -> Iterator[Association]:
    """An association to a listener, in which this AE Title proposes to be the SCP."""
    ae = AE(ae_title)
    ae.add_requested_context(PUSH_MODEL)
    ae.acse_timeout = ae.dimse_timeout = ae.network_timeout = _SECONDS
    roles = [build_role(PUSH_MODEL, scp_role=True)] if proposes_role else None
    association = ae.associate("127.0.0.1", port, ae_title="HILUM", ext_neg=roles)
    assert association.is_established
    try:
        yield association
    finally:
        if association.is_established:
            association.release()

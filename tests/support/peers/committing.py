"""Storage commitment: an SCU of pynetdicom, and the dispatcher's loop in a forked process."""

from __future__ import annotations

import asyncio
import queue
import signal
import ssl
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from typing import Self

from pydicom.dataset import Dataset
from pydicom.sequence import Sequence
from pynetdicom import AE, evt
from pynetdicom.association import Association
from pynetdicom.events import Event

from hilum.pipeline import STAGES, StageLoop
from hilum.processes.commitment_handler import CommitHandler
from hilum.settings import CommitmentPeer, Settings, restore
from hilum.store.ledger import Ledger
from tests.support.machine.forks import FORKS

PUSH_MODEL, INSTANCE = "1.2.840.10008.1.20.1", "1.2.840.10008.1.20.1.1"
OWNER = "dispatcher-of-the-test"

Pair = tuple[str, str]


def action_information(transaction_uid: str | None, references: Iterable[Pair] | None) -> Dataset:
    """(SOP Class UID, SOP Instance UID) each."""
    information = Dataset()
    if transaction_uid is not None:
        information.TransactionUID = transaction_uid
    if references is not None:
        information.ReferencedSOPSequence = Sequence([_item(*pair) for pair in references])
    return information


def _item(sop_class_uid: str, sop_instance_uid: str) -> Dataset:
    item = Dataset()
    item.ReferencedSOPClassUID, item.ReferencedSOPInstanceUID = sop_class_uid, sop_instance_uid
    return item


class Report:
    """A report as it came."""

    def __init__(
        self, event_type: int, information: Dataset, *, is_same_association: bool, calling: str
    ) -> None:
        self.event_type, self.is_same_association, self.calling = (
            event_type,
            is_same_association,
            calling,
        )
        self.transaction_uid = str(information.TransactionUID)
        self.committed = [_pair(item) for item in information.get("ReferencedSOPSequence", [])]
        self.failed = {
            _pair(item): int(item.FailureReason)
            for item in information.get("FailedSOPSequence", [])
        }


def _pair(item: Dataset) -> Pair:
    return str(item.ReferencedSOPClassUID), str(item.ReferencedSOPInstanceUID)


class CommitmentScu:
    """Sends requests as `ae_title`; takes reports on its own port and on those associations.

    `statuses` answer them in turn. While `may_answer` is not set, reports stay unanswered.
    """

    def __init__(
        self,
        ae_title: str,
        statuses: Iterable[int] = (),
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.ae_title = ae_title
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.reports: queue.Queue[Report] = queue.Queue()
        self._statuses: Iterator[int] = iter(statuses)
        self._ae = AE(ae_title)
        self._ae.add_supported_context(PUSH_MODEL, scu_role=False, scp_role=True)
        self._ae.acse_timeout = self._ae.dimse_timeout = self._ae.network_timeout = 30
        handlers = [(evt.EVT_N_EVENT_REPORT, self._take, [False])]
        self._server = self._ae.start_server(
            ("127.0.0.1", port), block=False, evt_handlers=handlers, ssl_context=tls
        )
        self.port = int(self._server.server_address[1])

    def _take(self, event: Event, is_same_association: bool) -> tuple[int, None]:
        calling = str(event.assoc.requestor.ae_title).strip()
        self.reports.put(
            Report(
                event.event_type,
                event.event_information,
                is_same_association=is_same_association,
                calling=calling,
            )
        )
        self.may_answer.wait(60)
        return next(self._statuses, 0), None

    @contextmanager
    def associated(
        self, port: int, *also: str, tls: ssl.SSLContext | None = None
    ) -> Iterator[Association]:
        """An association for storage commitment, and for these classes."""
        ae = AE(self.ae_title)
        for sop_class in (PUSH_MODEL, *also):
            ae.add_requested_context(sop_class, "1.2.840.10008.1.2.1")
        ae.acse_timeout = ae.dimse_timeout = ae.network_timeout = 30
        handlers = [(evt.EVT_N_EVENT_REPORT, self._take, [True])]
        assoc = ae.associate(
            "127.0.0.1",
            port,
            ae_title="HILUM",
            evt_handlers=handlers,
            tls_args=tls and (tls, "127.0.0.1"),
        )
        assert assoc.is_established
        try:
            yield assoc
        finally:
            if assoc.is_established:
                assoc.release()

    def ask(self, port: int, transaction_uid: str, references: Iterable[Pair]) -> int:
        """Ask on an association that is released at once; the status."""
        with self.associated(port) as assoc:
            return ask(assoc, action_information(transaction_uid, references))

    def next_report(self, seconds: float = 60.0) -> Report:
        """Waits for it."""
        return self.reports.get(timeout=seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()


def ask(
    assoc: Association,
    information: Dataset | None,
    action_type: int = 1,
    instance_uid: str = INSTANCE,
) -> int:
    """The status of an N-ACTION; -1: no answer."""
    status, _ = assoc.send_n_action(information, action_type, PUSH_MODEL, instance_uid)
    return int(status.get("Status", -1))


def with_address(settings: Settings, **ports: int) -> Settings:
    """Reports for these AE Titles go to these ports; quick pauses between tries."""
    peers = {
        title: CommitmentPeer(host="127.0.0.1", port=port, timeout_seconds=5.0)
        for title, port in ports.items()
    }
    quick = settings.pipeline.model_copy(update={"backoff_seconds": 0.2, "poll_seconds": 0.5})
    return settings.model_copy(update={"commitment": peers, "pipeline": quick})


class Dispatcher:
    """The stage *commit* in a process of its own, alive inside a `with` block."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.child: ForkServerProcess | None = None

    def start(self) -> None:
        """Start it."""
        self.child = FORKS.Process(target=_serve, args=(self._settings.dump(),), daemon=True)
        self.child.start()

    def kill(self) -> None:
        """kill -9, and what the supervisor does then."""
        assert self.child is not None
        self.child.kill()
        self.child.join()
        ledger = Ledger(self._settings.ledger_url)
        ledger.end_leases(OWNER, is_clean=False)
        ledger.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.child is not None and self.child.exitcode is None:
            self.child.terminate()
            self.child.join(30)


def _serve(settings_text: str) -> None:
    """The child."""
    asyncio.run(_dispatch(restore(settings_text)))


async def _dispatch(settings: Settings) -> None:
    ledger = Ledger(settings.ledger_url)
    handler = CommitHandler(settings, ledger)
    loop = StageLoop(STAGES["commit"], ledger, settings.pipeline, OWNER, handler.handle)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, loop.stop)
    await loop.run()
    handler.close()
    ledger.close()

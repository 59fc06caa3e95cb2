"""Studies at a constant rate over a few associations: an open loop, which does not slow down when the server does."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import generate_uid
from pynetdicom import AE, evt
from pynetdicom.association import Association
from pynetdicom.events import Event

CALLING_AE_TITLE = "LOADGEN"


@dataclass(frozen=True, slots=True)
class Peer:
    """Where the studies go."""

    ae_title: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Peer:
        """`AET@host:port`. Raises ValueError."""
        ae_title, at, rest = text.partition("@")
        host, colon, port = rest.rpartition(":")
        if not (at and colon and ae_title and host and port.isdigit()):
            raise ValueError(f"{text!r}: give AET@host:port, for example HILUM@127.0.0.1:11112")
        return cls(ae_title, host, int(port))


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one study at the sender; times of `time.monotonic`. `failure` None: all images were answered with Success."""

    study_instance_uid: str
    intended_at: float
    started_at: float
    ended_at: float
    failure: str | None


class Sender:
    """`associations` threads, each with an association that it keeps."""

    def __init__(self, peer: Peer, studies: Sequence[Sequence[Dataset]], associations: int) -> None:
        self.sent: list[Sent] = []
        self._peer = peer
        self._studies = studies
        self._orders: queue.Queue[tuple[int, float] | None] = queue.Queue()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(associations)]

    def run(self, rate: float, seconds: float, progress: Callable[[int], None] = lambda _: None) -> None:
        """Start `rate` studies a second for `seconds`, whatever the server does; returns when all are answered."""
        for thread in self._threads:
            thread.start()
        begin = time.monotonic() + 0.5
        total = max(1, round(rate * seconds))
        for number in range(total):
            intended = begin + number / rate
            time.sleep(max(0.0, intended - time.monotonic()))
            self._orders.put((number, intended))
            progress(number + 1)
        for _ in self._threads:
            self._orders.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        association: Association | None = None
        while (order := self._orders.get()) is not None:
            number, intended = order
            images = fresh_study(self._studies[number % len(self._studies)])
            started = time.monotonic()
            if association is None or not association.is_established:
                association = self._associate()
            failure = _store_all(association, images)
            done = Sent(images[0].StudyInstanceUID, intended, started, time.monotonic(), failure)
            with self._lock:
                self.sent.append(done)
        if association is not None and association.is_established:
            association.release()

    def _associate(self) -> Association:
        ae = AE(CALLING_AE_TITLE)
        kinds = {(image.file_meta.TransferSyntaxUID, image.SOPClassUID) for study in self._studies for image in study}
        for syntax, sop_class in sorted(kinds):
            ae.add_requested_context(sop_class, syntax)
        peer = self._peer
        return ae.associate(peer.host, peer.port, ae_title=peer.ae_title, max_pdu=0, evt_handlers=[(evt.EVT_CONN_OPEN, without_delay)])


def without_delay(event: Event) -> None:
    """TCP_NODELAY: otherwise Nagle and the delayed ACK cost 40 ms an object, and the load test would measure that."""
    event.assoc.dul.socket.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def fresh_study(images: Sequence[Dataset]) -> list[Dataset]:
    """The same pictures under new UIDs: a study that the server has never seen."""
    study_uid, series_uid = generate_uid(), generate_uid()
    return [_fresh(image, study_uid, series_uid, generate_uid()) for image in images]


def _fresh(image: Dataset, study_uid: str, series_uid: str, instance_uid: str) -> Dataset:
    """A data set that shares all elements but four. `copy.copy` would share the dictionary, and assignment the elements."""
    fresh = Dataset()
    fresh.update(image)
    for keyword, value in (("StudyInstanceUID", study_uid), ("SeriesInstanceUID", series_uid), ("SOPInstanceUID", instance_uid)):
        fresh.add_new(keyword, "UI", value)
    fresh.file_meta = FileMetaDataset()
    fresh.file_meta.TransferSyntaxUID = image.file_meta.TransferSyntaxUID
    return fresh


def _store_all(association: Association, images: Sequence[Dataset]) -> str | None:
    """Send every image; the first thing that went wrong, or None."""
    if not association.is_established:
        return "no association"
    for image in images:
        try:
            status = association.send_c_store(image).get("Status")
        except (RuntimeError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        if status != 0x0000:
            return "no answer" if status is None else f"status 0x{status:04X}"
    return None

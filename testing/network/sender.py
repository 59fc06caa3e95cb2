"""Studies given as data sets, at a constant rate from this very process.

What small programs need; scenarios use `senders`.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence

from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import generate_uid
from pynetdicom.events import Event

from load_tests.load.arrivals import constant
from load_tests.load.mix import Mix, Part
from testing.network.peer_address import Peer
from testing.network.sending import Manners, OnTime, Sending, Sent
from testing.phantoms.encoded import encode, with_uids

__all__ = ["CALLING_AE_TITLE", "Peer", "Sender", "Sent", "fresh_study", "without_delay"]

CALLING_AE_TITLE = "LOADGEN"


class Sender:
    """`associations` threads, each with an association that it keeps.

    Pictures are chosen among `studies`; UIDs are always new.
    """

    def __init__(self, peer: Peer, studies: Sequence[Sequence[Dataset]], associations: int) -> None:
        self.sent: list[Sent] = []
        self._peer = peer
        self._associations = associations
        self._mix = Mix(
            (
                Part(
                    1.0,
                    CALLING_AE_TITLE,
                    tuple(tuple(encode(image) for image in study) for study in studies),
                ),
            )
        )

    def run(
        self, rate: float, seconds: float, progress: Callable[[int], None] = lambda _: None
    ) -> None:
        """Start `rate` studies a second for `seconds`, whatever the server does.

        Returns when all are answered.
        """

        def note(sent: Sent) -> None:
            self.sent.append(sent)
            progress(len(self.sent))

        orders = OnTime(enumerate(constant(rate, seconds)), time.monotonic() + 0.1)
        sending = Sending(self._peer, self._mix, Manners(self._associations), orders, note)
        sending.start()
        sending.join()


def without_delay(event: Event) -> None:
    """EVT_CONN_OPEN of pynetdicom.

    TCP_NODELAY; otherwise Nagle and the delayed ACK cost 40 ms an object.
    """
    event.assoc.dul.socket.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def fresh_study(images: Sequence[Dataset]) -> list[Dataset]:
    """The same pictures under new UIDs: a study that the server has never seen."""
    study_uid = generate_uid()
    series_uid = generate_uid()
    return [_fresh(image, study_uid, series_uid) for image in images]


def _fresh(image: Dataset, study_uid: str, series_uid: str) -> Dataset:
    fresh = with_uids(
        image,
        {
            "StudyInstanceUID": study_uid,
            "SeriesInstanceUID": series_uid,
            "SOPInstanceUID": generate_uid(),
        },
    )
    fresh.file_meta = FileMetaDataset()
    fresh.file_meta.TransferSyntaxUID = image.file_meta.TransferSyntaxUID
    return fresh

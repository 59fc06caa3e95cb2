"""A DICOMweb archive that takes one class of reports alone, and the dispatcher that finds it."""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path

import pydicom
from pydicom.dataset import Dataset
from pydicom.uid import BasicTextSRStorage

from hilum.domain import DeliveryState
from hilum.settings import LedgerSection, Settings, StowDestination
from testing.phantoms.phantom import make_study
from tests.support.deliver.stow_receiver import answer, item
from tests.support.ledger.dispatching import Dispatcher
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.reports.results import make_release
from tests.support.retrieve.web_server import Received, Reply, WebServer


class BasicTextArchive:
    """Stores Basic Text SR, and refuses other classes with 0122."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.stored: list[Dataset] = []

    def __call__(self, request: Received) -> Reply:
        part = request.body.partition(b"\r\n\r\n")[2]
        received = pydicom.dcmread(io.BytesIO(part))
        uid = str(received.SOPInstanceUID)
        if received.SOPClassUID != BasicTextSRStorage:
            self.refused.append(str(received.SOPClassUID.keyword))
            return answer([], [item(uid, failure=0x0122)], 409)
        self.stored.append(received)
        return answer([item(uid)])


def test_a_report_goes_down_the_ladder_until_it_is_stored(tmp_path: Path) -> None:
    archive = BasicTextArchive()
    with WebServer(archive) as server:
        settings = Settings(
            ledger=LedgerSection(url=migrated_sqlite(tmp_path)),
            destinations={"archive": StowDestination(url=server.url)},
        )
        with closing(Dispatcher(settings, make_release())) as dispatcher:
            dispatcher.read(make_study(7, views=("PA",), rows=32, columns=32)[0])
            dispatcher.assemble()
            dispatcher.report()
            states = [dispatcher.deliver("archive")[0].state for _ in range(4)]
            assert dispatcher.deliver("archive") == []

    assert states == [DeliveryState.CANCELLED] * 3 + [DeliveryState.DELIVERED]
    assert archive.refused == [
        "Comprehensive3DSRStorage",
        "ComprehensiveSRStorage",
        "EnhancedSRStorage",
    ]
    (stored,) = archive.stored
    assert stored.SOPClassUID == BasicTextSRStorage

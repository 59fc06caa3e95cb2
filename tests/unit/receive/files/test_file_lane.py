"""What a killed `hilum ingest` leaves in the archive is read with its own priority, by any process that finds it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from hilum.domain import Priority
from hilum.receive.indexing.priority_folder import folder_with_priority
from hilum.receive.indexing.recovery import recover
from hilum.store.archive.archive import Archive
from hilum.store.ledger import Ledger
from hilum.store.schema import tables
from testing.phantoms import phantom
from tests.support.ledger.street import Clock, Street
from tests.support.server.listening import make_settings


@pytest.mark.parametrize(
    ("process", "priority"),
    [
        (folder_with_priority("host-ingest-0", Priority.REANALYSIS), Priority.REANALYSIS),
        (folder_with_priority("host-ingest-0", Priority.URGENT), Priority.URGENT),
        (folder_with_priority("host-ingest-0", None), Priority.LIVE),
        ("host.live-listener-0", Priority.LIVE),
    ],
)
def test_the_scan_at_start_reads_leftovers_with_their_priority(
    process: str, priority: Priority, tmp_path: Path
) -> None:
    settings = make_settings(tmp_path)
    archive = Archive(settings.archive_dir, process)
    file = phantom.save(phantom.make_instance(seed=3, rows=64, columns=64), tmp_path / "pa.dcm")
    with archive.begin() as incoming:
        incoming.write(file.read_bytes())
        incoming.commit()
    with contextlib.closing(Ledger(settings.ledger_url)) as ledger:
        recover(settings, ledger, Archive(settings.archive_dir))
        (reading,) = Street(ledger, Clock()).rows(tables.reading)
    assert Priority(reading.priority) is priority
    assert list(archive.unindexed()) == []

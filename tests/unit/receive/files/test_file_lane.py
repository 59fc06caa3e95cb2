"""What a killed `hilum ingest` leaves in the archive is read in its own lane, whoever finds it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from hilum.domain import Lane
from hilum.receive.indexing.priority_folder import folder_in_lane
from hilum.receive.indexing.recovery import recover
from hilum.store.archive.archive import Archive
from hilum.store.ledger import Ledger
from hilum.store.schema import tables
from testing.phantoms import phantom
from tests.support.listening import make_settings
from tests.support.street import Clock, Street


@pytest.mark.parametrize(
    ("process", "lane"),
    [
        (folder_in_lane("host-ingest-0", Lane.REANALYSIS), Lane.REANALYSIS),
        (folder_in_lane("host-ingest-0", Lane.URGENT), Lane.URGENT),
        (folder_in_lane("host-ingest-0", None), Lane.LIVE),
        ("host.live-listener-0", Lane.LIVE),
    ],
)
def test_the_scan_at_start_reads_leftovers_in_their_lane(
    process: str, lane: Lane, tmp_path: Path
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
    assert Lane(reading.lane) is lane
    assert list(archive.unindexed()) == []

"""What becomes of the parts of a STOW-RS request, without a web server around."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydicom.uid import EnhancedSRStorage, SecondaryCaptureImageStorage

from hilum.api.routes import stow
from hilum.observability import telemetry
from hilum.services.stow import StowOutcome, StowStore, stow_store
from hilum.settings import Receive, Settings, Site, Studies
from hilum.store.ledger import Ledger
from hilum.store.migrations.migrate import migrate
from hilum.store.queries.views import LedgerViews
from testing.phantoms.phantom import make_instance
from tests.support.ledger.database import rows_of
from tests.support.machine.disks import dead_disk
from tests.support.machine.waiting import wait_for
from tests.support.peers.stow import encoded


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(
        site=Site(state_dir=tmp_path / "state"),
        receive=Receive(reserve_bytes=0, maximum_object_bytes=1 << 20),
        studies=Studies(quiet_seconds=600),
    )
    made.site.state_dir.mkdir()
    migrate(made.ledger_url)
    return made


@pytest.fixture
def store(settings: Settings, request: pytest.FixtureRequest) -> Iterator[StowStore]:
    """A parameter says for how many seconds it waits for rows."""
    ledger, views = Ledger(settings.ledger_url), LedgerViews(settings.ledger_url)
    with stow_store(
        settings, ledger, views, threading.Event(), getattr(request, "param", 60.0)
    ) as found:
        yield found
    views.close()
    ledger.close()


def put(store: StowStore, content: bytes, piece: int = 100_000) -> StowOutcome:
    part = store.open("10.0.0.7").begin(None)
    for start in range(0, len(content), piece):
        part.write(content[start : start + piece])
    return part.end()


def quiet_seconds_left(settings: Settings) -> float:
    with sqlite3.connect(settings.site.state_dir / "ledger.sqlite") as connection:
        ((due_at,),) = connection.execute("SELECT due_at FROM study").fetchall()
    return float(due_at) - time.time()


def refused(status: str) -> float:
    (metric,) = telemetry.INSTANCES_REFUSED.collect()
    return sum(
        sample.value
        for sample in metric.samples
        if sample.labels.get("status") == status and sample.name.endswith("_total")
    )


def test_a_part_beyond_the_limit_is_refused_for_good(store: StowStore) -> None:
    before = refused("0xA700")
    outcome = put(store, encoded(make_instance(1, rows=9000, columns=64)))
    assert (outcome.failure, outcome.is_transient, outcome.comment) == (
        0xA700,
        False,
        "Larger than the limit of 1 MiB",
    )
    assert stow._answer([outcome]).status_code == 409
    assert refused("0xA700") == before + 1, "as for C-STORE"


def test_a_part_that_may_come_again_is_said_so() -> None:
    later = StowOutcome(
        "1.2", "1.3", "", 0xA700, "Storage is nearly full; send again later", is_transient=True
    )
    answer = stow._answer([later])
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
    never = StowOutcome("1.2", "1.4", "", 0xC000, "Not a DICOM file")
    assert stow._answer([later, never]).status_code == 409


def test_while_the_archive_is_a_dead_mount_nothing_can_be_taken(
    store: StowStore, settings: Settings
) -> None:
    with dead_disk(settings.archive_dir):
        assert "Transport endpoint is not connected" in (store.open("10.0.0.7").refusal() or "")
    assert store.open("10.0.0.7").refusal() is None


def test_a_part_that_does_not_say_its_transfer_syntax_is_refused(store: StowStore) -> None:
    content = encoded(make_instance(2, rows=64, columns=64))
    at = content.index(b"\x02\x00\x10\x00UI")
    length = int.from_bytes(content[at + 6 : at + 8], "little")
    outcome = put(store, content[: at + 8] + bytes(length) + content[at + 8 + length :])
    assert (outcome.failure, outcome.comment) == (
        0xC000,
        "File Meta Information lacks Transfer Syntax UID (0002,0010)",
    )


def test_a_part_that_is_no_image_is_taken_and_not_kept(
    store: StowStore, settings: Settings
) -> None:
    report = make_instance(2, rows=64, columns=64)
    del report.PixelData
    report.SOPClassUID = report.file_meta.MediaStorageSOPClassUID = EnhancedSRStorage
    visit = store.open("10.0.0.7")
    assert visit.refusal() is None
    part = visit.begin(None)
    part.write(encoded(report))
    assert part.end() == StowOutcome(EnhancedSRStorage, report.SOPInstanceUID, "")
    visit.end(200, "")
    (row,) = wait_for(
        lambda: rows_of(settings.site.state_dir, "SELECT * FROM association"), what="the row"
    )
    assert (row["outcome"], row["reason"], row["stored"]) == (
        "released",
        "other_objects_discarded",
        0,
    )
    assert "1 Enhanced SR Storage" in row["advice"]
    assert not rows_of(settings.site.state_dir, "SELECT * FROM instance")


def test_a_study_is_closed_when_all_its_images_have_rows(
    store: StowStore, settings: Settings
) -> None:
    images = [
        make_instance(3, rows=64, columns=64),
        make_instance(3, number=2, rows=64, columns=64),
    ]
    outcomes = [put(store, encoded(image)) for image in images]
    assert {outcome.study_instance_uid for outcome in outcomes} == {str(images[0].StudyInstanceUID)}
    store.close(outcomes)
    assert quiet_seconds_left(settings) <= 0


@pytest.mark.parametrize("store", [1.0], indirect=True)
def test_a_study_whose_rows_do_not_come_keeps_its_quiet_period(
    store: StowStore, settings: Settings
) -> None:
    stored = put(store, encoded(make_instance(4, rows=64, columns=64)))
    with contextlib.closing(LedgerViews(settings.ledger_url)) as views:
        wait_for(lambda: views.digests([stored.sop_instance_uid]), what="the row")
    with sqlite3.connect(settings.site.state_dir / "ledger.sqlite") as connection:
        connection.execute("UPDATE study SET due_at = due_at + 600")
    store.close([stored, StowOutcome(stored.sop_class_uid, "1.2.3", stored.study_instance_uid)])
    assert quiet_seconds_left(settings) > 500


def test_a_ledger_that_fails_does_not_take_the_answer_back(
    store: StowStore, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = put(store, encoded(make_instance(5, rows=64, columns=64)))
    store._await_rows({stored.sop_instance_uid})
    with sqlite3.connect(settings.site.state_dir / "ledger.sqlite") as connection:
        connection.execute("ALTER TABLE study RENAME TO away")
    store.close([stored])
    assert "study_not_closed" in capsys.readouterr().out


def test_what_is_no_image_has_no_study_to_wait_for(store: StowStore, settings: Settings) -> None:
    image = make_instance(6, rows=64, columns=64)
    with contextlib.closing(Ledger(settings.ledger_url)) as ledger:
        image.Manufacturer, image.DeviceSerialNumber = settings.report.manufacturer, ledger.serial
    image.SOPClassUID = image.file_meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    assert put(store, encoded(image)) == StowOutcome(image.SOPClassUID, image.SOPInstanceUID, "")

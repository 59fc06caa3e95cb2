"""Retention of rows on SQLite and on a real PostgreSQL: which studies leave the ledger, and which never do."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, Table, event, insert, update

from hilum.domain import (
    Actor,
    CampaignState,
    Channel,
    DeliveryState,
    Priority,
    ReadingState,
    RemovalReason,
)
from hilum.services.forgotten_studies import (
    MONTH_SECONDS,
    Forgetting,
    ForgottenBatch,
    preview,
    rows_before,
)
from hilum.settings import Settings
from hilum.store.admin.erase import Erasure
from hilum.store.archive.archive import Archive
from hilum.store.audit.log import AuditFilter, AuditLog, Deed
from hilum.store.ledger import RecordOutcome
from hilum.store.queries.views import LedgerViews
from hilum.store.retention.policy import RetentionPolicy, Rule
from hilum.store.retention.rows import OldStudy, RowRetention, RowsKept, StudyWalk
from hilum.store.schema import tables
from hilum.verbs import Verb, VerbOutcome
from tests.support.ledger.arrivals import arrival_of
from tests.support.ledger.database import change
from tests.support.ledger.street import RELEASE, Clock, Street

OLD = "1.2.3"
ROWS = (
    tables.study,
    tables.instance,
    tables.reading,
    tables.result,
    tables.document,
    tables.delivery,
)


def store(archive: Archive, study: str, number: int) -> None:
    """A file in the place of the image that `Street.walk` records."""
    file = archive.root / "studies" / f"{study}.{number}.dcm"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"x" * 1000)


def release_pixels(url: str, archive: Archive, clock: Clock) -> None:
    """Mark all pixels that may leave; their files are still there."""
    clock.now += 10
    with closing(RetentionPolicy(url, archive, clock)) as pixels:
        pixels.release(Rule(frozenset(Priority), clock.now, "age"))


def remove_files(url: str, archive: Archive, clock: Clock) -> None:
    with closing(RetentionPolicy(url, archive, clock)) as pixels:
        pixels.remove_files()


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    (tmp_path / "archive" / "locks").mkdir(parents=True)
    return Archive(tmp_path / "archive")


@pytest.fixture
def settings(ledger_url: str, tmp_path: Path) -> Settings:
    said = {"site": {"state_dir": str(tmp_path)}, "ledger": {"url": ledger_url}}
    return Settings.model_validate({**said, "retention": {"days": 1, "row_months": 24}})


@pytest.fixture
def retained(ledger_url: str) -> Iterator[RowRetention]:
    with closing(RowRetention(ledger_url)) as opened:
        yield opened


@pytest.fixture
def forgetting(settings: Settings, retained: RowRetention, clock: Clock) -> Forgetting:
    return Forgetting(settings, retained, clock)


@pytest.fixture
def end(ledger_url: str, street: Street, clock: Clock, archive: Archive) -> Callable[[str], None]:
    """Pass a study through all stages, and let its pixels leave."""

    def walk(study: str, number: int = 1) -> None:
        store(archive, study, number)
        street.walk(study, number)
        release_pixels(ledger_url, archive, clock)
        remove_files(ledger_url, archive, clock)

    return walk


def years_later(clock: Clock) -> float:
    """Move the clock, and return the bound of retention."""
    clock.now += 25 * MONTH_SECONDS
    before = rows_before(24, clock.now)
    assert before is not None
    return before


@pytest.fixture
def forget(forgetting: Forgetting, clock: Clock) -> Callable[[], ForgottenBatch]:
    """Let the studies leave that are old years later."""
    return lambda: forgetting.next_batch(years_later(clock), StudyWalk())


def counts(street: Street) -> dict[str, int]:
    return {table.name: len(street.rows(table)) for table in ROWS}


def empty(street: Street) -> bool:
    return not any(counts(street).values())


def test_all_rows_of_an_old_study_leave_when_they_are_exported(
    street: Street,
    end: Callable[[str], None],
    forget: Callable[[], ForgottenBatch],
    settings: Settings,
) -> None:
    end(OLD)

    batch = forget()

    assert empty(street)
    assert batch.studies == 1
    exported = settings.row_exports_dir / batch.file
    assert exported.exists()
    assert OLD.encode() in exported.read_bytes()
    assert stat.S_IMODE(settings.row_exports_dir.stat().st_mode) == 0o700


def test_a_study_with_a_superseded_result_leaves(
    street: Street, end: Callable[..., None], forget: Callable[[], ForgottenBatch]
) -> None:
    end(OLD)
    end(OLD, 2)
    assert len(street.rows(tables.result)) == 2

    forget()

    assert empty(street)


def test_a_younger_study_stays(
    street: Street, clock: Clock, end: Callable[[str], None], forgetting: Forgetting
) -> None:
    end(OLD)
    clock.now += 24 * MONTH_SECONDS
    end("1.2.4")
    clock.now += MONTH_SECONDS

    before = rows_before(24, clock.now)
    assert before is not None
    forgetting.next_batch(before, StudyWalk())

    assert [row.study_instance_uid for row in street.rows(tables.study)] == ["1.2.4"]


def test_rows_stay_when_their_export_cannot_be_written(
    street: Street,
    end: Callable[[str], None],
    forget: Callable[[], ForgottenBatch],
    settings: Settings,
) -> None:
    end(OLD)
    settings.row_exports_dir.write_text("a file in the place of the folder")

    with pytest.raises(OSError, match="exists"):
        forget()

    assert not empty(street)


def die_at(retained: RowRetention, transaction: int) -> None:
    """End the process, as it were, at the beginning of this transaction, once."""
    left = iter(range(1, transaction + 1))

    def begins(_connection: Connection) -> None:
        if next(left, 0) == transaction:
            raise SystemExit

    event.listen(retained._engine, "begin", begins)


def die_in_a_batch(
    forgetting: Forgetting, retained: RowRetention, clock: Clock, transaction: int
) -> float:
    """Begin a batch years later that ends at this transaction; the bound of retention."""
    before = years_later(clock)
    die_at(retained, transaction)
    with pytest.raises(SystemExit):
        forgetting.next_batch(before, StudyWalk())
    return before


def test_the_next_turn_goes_on_where_an_export_could_not_be_written(
    street: Street,
    clock: Clock,
    end: Callable[[str], None],
    forgetting: Forgetting,
    settings: Settings,
) -> None:
    end(OLD)
    before = years_later(clock)
    walk = StudyWalk()
    settings.row_exports_dir.write_text("a file in the place of the folder")
    with pytest.raises(OSError, match="exists"):
        forgetting.next_batch(before, walk)
    settings.row_exports_dir.unlink()

    forgetting.next_batch(before, walk)

    assert empty(street)


def test_an_export_without_a_deletion_after_it_is_written_again(
    street: Street,
    clock: Clock,
    end: Callable[[str], None],
    forgetting: Forgetting,
    retained: RowRetention,
    settings: Settings,
) -> None:
    end(OLD)
    before = die_in_a_batch(forgetting, retained, clock, 1)
    assert not empty(street)
    files = sorted(settings.row_exports_dir.iterdir())
    for file in files:
        file.write_text("half")

    batch = forgetting.next_batch(before, StudyWalk())

    assert (settings.row_exports_dir / batch.file).read_bytes() != b"half"
    assert sorted(settings.row_exports_dir.iterdir()) == files
    assert empty(street)


def test_an_export_never_takes_the_place_of_one_of_other_studies(
    street: Street,
    end: Callable[[str], None],
    forget: Callable[[], ForgottenBatch],
    settings: Settings,
) -> None:
    """SQLite gives the rows of the second study the numbers of the first."""
    files = []
    for study in (OLD, "1.2.4", OLD):
        end(study)
        files.append(settings.row_exports_dir / forget().file)

    assert empty(street)
    assert len(set(files)) == 3
    assert [study.encode() in file.read_bytes() for study in (OLD, "1.2.4") for file in files] == [
        *(True, False, True),
        *(False, True, False),
    ]


def test_a_batch_that_ends_between_two_transactions_is_in_the_audit_and_in_its_export(
    ledger_url: str,
    street: Street,
    clock: Clock,
    end: Callable[[str], None],
    forgetting: Forgetting,
    retained: RowRetention,
    settings: Settings,
) -> None:
    for number in range(30):
        end(f"1.2.{number}")
    before = die_in_a_batch(forgetting, retained, clock, 3)  # the first writes that it begins
    assert counts(street)["study"] == 5
    exported = {file: file.read_bytes() for file in settings.row_exports_dir.iterdir()}

    batch = forgetting.next_batch(before, StudyWalk())

    assert (batch.studies, empty(street)) == (5, True)
    assert {file: file.read_bytes() for file in exported} == exported
    with closing(AuditLog(ledger_url, clock)) as log:
        done, begun = log.list(AuditFilter(verb=Verb.FORGET_STUDIES))[0]
    assert (done["outcome"], done["name"]) == (VerbOutcome.DONE, batch.file)
    assert (begun["outcome"], begun["name"] in {file.name for file in exported}) == (
        VerbOutcome.BEGUN,
        True,
    )


def test_a_study_that_another_host_has_removed_is_passed_by(
    street: Street, clock: Clock, end: Callable[[str], None], retained: RowRetention
) -> None:
    end(OLD)
    before = years_later(clock)
    chosen = retained.next_studies(before, StudyWalk(), 10)

    gone = [retained.remove(chosen, before, clock.now, new_deed())["study"] for _ in range(2)]

    assert gone == [1, 0]


def new_deed() -> Deed:
    return Deed(Verb.FORGET_STUDIES, Actor("hilum", Channel.CLI))


def _reasons(retained: RowRetention, before: float, uid: str = OLD) -> set[RowsKept]:
    found = {
        each.study_instance_uid: each.kept
        for each in retained.next_studies(before, StudyWalk(), 100)
    }
    return set(found[uid])


def test_a_study_with_pixels_stays(
    street: Street, clock: Clock, archive: Archive, retained: RowRetention
) -> None:
    store(archive, OLD, 1)
    street.walk(OLD, 1)

    assert _reasons(retained, years_later(clock)) == {RowsKept.PIXELS}


def test_a_study_with_a_file_that_is_not_deleted_yet_stays(
    ledger_url: str, street: Street, clock: Clock, archive: Archive, retained: RowRetention
) -> None:
    store(archive, OLD, 1)
    street.walk(OLD, 1)
    release_pixels(ledger_url, archive, clock)

    assert _reasons(retained, years_later(clock)) == {RowsKept.PIXELS}


def _set(street: Street, table: Table, **values: object) -> None:
    change(street.ledger, update(table).values(**values))


@pytest.mark.parametrize("state", [DeliveryState.DUE, DeliveryState.DEAD, DeliveryState.WITHHELD])
def test_a_study_with_a_report_that_is_not_delivered_stays(
    street: Street,
    clock: Clock,
    end: Callable[[str], None],
    retained: RowRetention,
    state: DeliveryState,
) -> None:
    end(OLD)
    _set(street, tables.delivery, state=state)

    assert _reasons(retained, years_later(clock)) == {RowsKept.UNDELIVERED}


def test_a_study_with_a_failed_reading_stays(
    street: Street, clock: Clock, end: Callable[[str], None], retained: RowRetention
) -> None:
    end(OLD)
    _set(street, tables.reading, state=ReadingState.FAILED)

    assert _reasons(retained, years_later(clock)) == {RowsKept.PERSON}


def test_a_study_with_a_quarantined_object_stays(
    street: Street, clock: Clock, end: Callable[[str], None], retained: RowRetention
) -> None:
    end(OLD)
    other = arrival_of(f"{OLD}.1", OLD, (RELEASE,), pixel_digest="other", digest="other")
    assert street.ledger.record([other]) == [RecordOutcome.CONFLICT]

    assert _reasons(retained, years_later(clock)) == {RowsKept.PERSON}


def test_a_study_that_a_late_image_opens_stays(
    street: Street, clock: Clock, end: Callable[[str], None], retained: RowRetention
) -> None:
    end(OLD)
    street.receive(OLD, 2)

    assert RowsKept.OPEN in _reasons(retained, years_later(clock))


def _plan(street: Street, state: CampaignState) -> None:
    campaign = {
        "id": 1,
        "name": "old",
        "source": "archive",
        "state": state,
        "request": {},
        "options": {},
        "doubts": [],
        "created_at": 0.0,
        "changed_at": 0.0,
    }
    series = {
        "campaign_id": 1,
        "study_instance_uid": OLD,
        "series_instance_uid": f"{OLD}.0",
        "day": "20240101",
        "modality": "DX",
        "state": "read",
        "due_at": 0.0,
    }
    change(
        street.ledger,
        insert(tables.campaign).values(campaign),
        insert(tables.campaign_series).values(series),
    )


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        (CampaignState.PLANNED, {RowsKept.CAMPAIGN}),
        (CampaignState.RUNNING, {RowsKept.CAMPAIGN}),
        (CampaignState.PAUSED, {RowsKept.CAMPAIGN}),
        (CampaignState.FINISHED, set()),
    ],
)
def test_a_study_of_an_open_campaign_stays(
    street: Street,
    clock: Clock,
    end: Callable[[str], None],
    retained: RowRetention,
    state: CampaignState,
    kept: set[RowsKept],
) -> None:
    end(OLD)
    _plan(street, state)

    assert _reasons(retained, years_later(clock)) == kept


def _compare(street: Street, candidate: str | None) -> None:
    compared = {
        "study_instance_uid": OLD,
        "release": RELEASE,
        "shadow": "next@1",
        "state": "compared",
        "priority": 3,
        "due_at": 0.0,
    }
    alias = {
        "alias": "chest",
        "configured": RELEASE,
        "serving": RELEASE,
        "candidate": candidate,
        "state": "steady",
        "changed_at": 0.0,
        "changed_by": "maria",
    }
    change(
        street.ledger,
        insert(tables.comparison).values(compared),
        insert(tables.rollout).values(alias),
    )


@pytest.mark.parametrize(("candidate", "kept"), [("next@1", {RowsKept.COMPARISON}), (None, set())])
def test_a_study_of_an_open_rollout_stays(
    street: Street,
    clock: Clock,
    end: Callable[[str], None],
    retained: RowRetention,
    candidate: str | None,
    kept: set[RowsKept],
) -> None:
    end(OLD)
    _compare(street, candidate)

    assert _reasons(retained, years_later(clock)) == kept


def test_a_study_that_the_audit_names_stays(
    ledger_url: str,
    street: Street,
    clock: Clock,
    end: Callable[[str], None],
    retained: RowRetention,
) -> None:
    end(OLD)
    with closing(AuditLog(ledger_url, clock)) as log:
        log.end(Deed(Verb.READ_STUDY, Actor("maria", Channel.PAGE), OLD), VerbOutcome.DONE)

    assert _reasons(retained, years_later(clock)) == {RowsKept.AUDIT}


def test_the_tombstones_of_an_erased_study_stay(
    ledger_url: str,
    street: Street,
    clock: Clock,
    archive: Archive,
    end: Callable[[str], None],
    forget: Callable[[], ForgottenBatch],
) -> None:
    end(OLD)
    with closing(Erasure(ledger_url, archive, clock)) as erasure:
        erasure.erase_study(OLD)
    before = counts(street)

    forget()

    assert counts(street) == before


def test_a_study_that_changes_after_its_export_stays(
    street: Street, clock: Clock, end: Callable[[str], None], retained: RowRetention
) -> None:
    end(OLD)
    before = years_later(clock)
    chosen = retained.next_studies(before, StudyWalk(), 10)
    street.receive(OLD, 2)

    gone = retained.remove(chosen, before, clock.now, new_deed())

    assert gone["study"] == 0
    assert len(street.rows(tables.instance)) == 2


def test_a_walk_passes_studies_that_stay(
    street: Street, clock: Clock, end: Callable[[str], None], retained: RowRetention
) -> None:
    for number in range(5):
        end(f"1.2.{number}")
        clock.now += 1
    before = years_later(clock)
    walk = StudyWalk()

    parts = [retained.next_studies(before, walk, 2) for _ in range(4)]

    names = [[each.study_instance_uid for each in part] for part in parts]
    assert names == [["1.2.0", "1.2.1"], ["1.2.2", "1.2.3"], ["1.2.4"], []]
    assert isinstance(parts[0][0], OldStudy)


def test_many_studies_leave_with_their_beginning_and_end_in_the_audit(
    ledger_url: str,
    clock: Clock,
    street: Street,
    end: Callable[[str], None],
    forget: Callable[[], ForgottenBatch],
) -> None:
    for number in range(30):  # more than one transaction
        end(f"1.2.{number}")

    batch = forget()

    with closing(AuditLog(ledger_url, clock)) as log:
        items, _ = log.list(AuditFilter(verb=Verb.FORGET_STUDIES), limit=10)
    assert [(item["outcome"], item["count"], item["name"]) for item in items] == [
        (VerbOutcome.DONE, 30, batch.file),
        (VerbOutcome.BEGUN, 0, batch.file),
    ]
    assert len({item["deed"] for item in items}) == 1
    assert empty(street)


def test_an_old_object_of_a_forgotten_study_that_is_sent_again_is_read_as_a_new_one(
    ledger_url: str,
    street: Street,
    clock: Clock,
    end: Callable[[str], None],
    forget: Callable[[], ForgottenBatch],
) -> None:
    end(OLD)
    forget()

    street.walk(OLD, 1)

    with closing(LedgerViews(ledger_url, clock)) as views:
        found = views.study(OLD)
    assert found is not None
    assert [item["supersedes_id"] for item in found["results"]] == [None]
    assert {row.state for row in street.rows(tables.delivery)} == {"delivered"}


def test_a_rejected_image_of_a_forgotten_study_stays_out_of_results(
    street: Street, clock: Clock, end: Callable[[str], None], forget: Callable[[], ForgottenBatch]
) -> None:
    end(OLD)
    rejected = {
        "sop_instance_uid": f"{OLD}.1",
        "study_instance_uid": OLD,
        "reason": RemovalReason.BY_HAND,
        "calling_ae_title": "CR1",
        "received_at": clock.now,
        "holds_for_all": True,
    }
    change(street.ledger, insert(tables.rejection).values(rejected))
    forget()

    street.receive(OLD, 1)

    (image,) = street.rows(tables.instance)
    assert image.is_removed


def test_a_preview_counts_what_would_leave_and_why_others_stay(
    street: Street,
    clock: Clock,
    end: Callable[[str], None],
    settings: Settings,
) -> None:
    end(OLD)
    end("1.2.4")
    change(
        street.ledger,
        update(tables.delivery).where(tables.delivery.c.id == 1).values(state=DeliveryState.DEAD),
    )

    found = preview(settings, years_later(clock), 100)

    assert (found.looked_at, found.leaving) == (2, 1)
    assert dict(found.kept) == {RowsKept.UNDELIVERED: 1}

"""Tables of any set of studies, on SQLite and on a real PostgreSQL."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sqlalchemy import insert, update

from hilum.domain import ExpectedImage, ImageReason, PlannedSeries
from hilum.errors import ConfigurationError
from hilum.services import export as exporting
from hilum.services.export import ExportCounts, ExportTarget, export
from hilum.services.export_tables.columns import ExportTable, columns_of
from hilum.services.export_tables.csv_table import unguarded
from hilum.settings import LedgerSection, Settings, Site
from hilum.store.admin.erase import Erasure
from hilum.store.archive.archive import Archive
from hilum.store.ledger import Ledger
from hilum.store.queries.exports import StudySelection
from hilum.store.queries.views import LedgerViews
from hilum.store.schema.tables import campaign as campaign_table
from hilum.store.schema.tables import campaign_image, campaign_series, instance, reading, result
from hilum.store.schema.tables import study as study_table
from hilum.timestamps import iso
from tests.support.ledger.arrivals import BEGAN_AT
from tests.support.ledger.database import change, rows, transaction
from tests.support.ledger.read_studies import (
    ACCESSION,
    CHEST,
    CHEST_2,
    NAME,
    PATIENT,
    ReadStudies,
    calibrated,
    plan,
)
from tests.support.ledger.street import Clock
from tests.support.machine.disks import small_disk

Row = dict[str, str]
FINDINGS = ["effusion", "pneumothorax", "infiltration", "thickening", "nodule"]
ALL = StudySelection()


class Exporter:
    """Exports one ledger into a folder, and reads the tables back."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder

    def run(
        self, chosen: StudySelection = ALL, name: str = "out.csv", **options: bool
    ) -> ExportCounts:
        return export(self.settings, chosen, ExportTarget(self.folder / name, **options))

    def tables(self, chosen: StudySelection = ALL, **options: bool) -> tuple[list[Row], list[Row]]:
        self.run(chosen, replaces=True, **options)
        return rows_of(self.folder / "out.csv"), rows_of(self.folder / "out.not_read.csv")

    def images(self, chosen: StudySelection = ALL, **options: bool) -> list[tuple[str, str]]:
        """Image and release of each row of the first finding."""
        return [
            (row["sop_instance_uid"], row["release"])
            for row in self.tables(chosen, **options)[0]
            if row["finding"] == FINDINGS[0]
        ]

    def unread(self, chosen: StudySelection = ALL) -> list[tuple[str, str, str, str]]:
        return [
            (row["sop_instance_uid"], row["release"], row["state"], row["reason"])
            for row in self.tables(chosen)[1]
        ]


def rows_of(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture
def exporter(ledger_url: str, tmp_path: Path) -> Exporter:
    settings = Settings(site=Site(state_dir=tmp_path), ledger=LedgerSection(url=ledger_url))
    folder = tmp_path / "results"
    folder.mkdir()
    return Exporter(settings, folder)


@pytest.fixture
def studies(ledger: Ledger, clock: Clock) -> ReadStudies:
    return ReadStudies(ledger, clock, CHEST)


def test_each_image_release_and_finding_is_one_row(
    studies: ReadStudies, exporter: Exporter
) -> None:
    studies.walk("1.2.10", 1, 2)

    found, unread = exporter.tables()

    assert [(row["sop_instance_uid"], row["finding"]) for row in found] == [
        (uid, finding) for uid in ("1.2.10.1", "1.2.10.2") for finding in FINDINGS
    ]
    assert unread == []
    first = found[0]
    assert list(first) == [
        item.name for item in columns_of(ExportTable.IMAGES, has_identifiers=False)
    ]
    assert {key: value for key, value in first.items() if value} == {
        "format_version": "1",
        "study_instance_uid": "1.2.10",
        "series_instance_uid": "1.2.10.0",
        "sop_instance_uid": "1.2.10.1",
        "release": "chest@1",
        "preprocessing_version": "hp1-0",
        "view": "PA",
        "finding": "effusion",
        "finding_text": "Pleural effusion",
        "code_scheme": "SCT",
        "code_value": "60046008",
        "logit": "0.4472",
        "score": first["score"],
        "operating_point": "0.5",
        "decision": "present",
        "is_trained": "true",
        "is_calibrated": "false",
        "is_shadow": "false",
        "revision": "1",
        "is_current": "true",
        "calling_ae_title": "MODALITY",
        "called_ae_title": "HILUM",
        "study_date": "2019-03-01",
        "received_at": iso(BEGAN_AT),
        "read_at": iso(BEGAN_AT),
        "result_at": iso(BEGAN_AT + 11),
    }
    assert 0.6 < float(first["score"]) < 0.62


def test_a_private_code_and_a_missing_operating_point_stay_empty(
    studies: ReadStudies, exporter: Exporter
) -> None:
    studies.walk("1.2.10", 1)
    found = {row["finding"]: row for row in exporter.tables()[0]}
    assert (found["thickening"]["code_scheme"], found["thickening"]["code_value"]) == ("", "")
    assert (found["nodule"]["operating_point"], found["nodule"]["decision"]) == ("", "undecided")


def test_a_probability_is_given_where_the_finding_is_of_one_image_alone(
    ledger: Ledger, clock: Clock, exporter: Exporter
) -> None:
    studies = ReadStudies(ledger, clock, calibrated(CHEST))
    studies.walk("1.2.10", 1)
    studies.walk("1.2.11", 1, 2)

    images, _ = exporter.tables()
    by_study, _ = exporter.tables(by_study=True)

    has_probability = {row["sop_instance_uid"]: bool(row["probability"]) for row in images}
    assert has_probability == {"1.2.10.1": True, "1.2.11.1": False, "1.2.11.2": False}
    assert all(row["probability"] and row["is_calibrated"] == "true" for row in by_study)
    assert images[0]["probability"] == by_study[0]["probability"] != images[0]["score"]


def test_a_study_is_one_row_for_each_release_and_finding(
    studies: ReadStudies, exporter: Exporter
) -> None:
    studies.receive("1.2.10", 1, 2)
    studies.read({"1.2.10.2": ImageReason.IMPLAUSIBLE_PIXELS.value})
    studies.assemble()

    found, unread = exporter.tables(by_study=True)

    assert [row["finding"] for row in found] == FINDINGS
    assert (found[0]["outcome"], found[0]["images"], found[0]["images_read"]) == (
        "partial",
        "2",
        "1",
    )
    assert found[0]["source_sop_instance_uids"] == "1.2.10.1"
    assert [row["sop_instance_uid"] for row in unread] == ["1.2.10.2"]


def test_an_image_without_numbers_is_listed_with_reason_and_sentence(
    studies: ReadStudies, exporter: Exporter
) -> None:
    reason = ImageReason.LATERAL_NOT_SUPPORTED
    studies.receive("1.2.10", 1, 2)
    studies.read({"1.2.10.2": reason.value})
    studies.assemble()

    found, (unread,) = exporter.tables()

    assert {row["sop_instance_uid"] for row in found} == {"1.2.10.1"}
    assert (unread["state"], unread["reason"]) == ("not_analysed", reason.value)
    assert unread["sentence"] == reason.meaning
    assert unread["detail"] == "'=1+1 is not a number", "no spreadsheet runs it"
    assert unguarded(unread["detail"]) == "=1+1 is not a number"
    assert unread["read_at"]


def test_an_image_without_a_result_waits(studies: ReadStudies, exporter: Exporter) -> None:
    studies.receive("1.2.10", 1)
    assert exporter.unread() == [("1.2.10.1", "chest@1", "waiting", "")]
    studies.read()
    assert exporter.unread() == [("1.2.10.1", "chest@1", "waiting", "")], "until there is a result"
    studies.assemble()
    assert exporter.unread() == []


def test_a_late_image_waits_beside_the_current_result(
    studies: ReadStudies, exporter: Exporter
) -> None:
    studies.walk("1.2.10", 1)
    studies.receive("1.2.10", 2)
    assert exporter.images() == [("1.2.10.1", "chest@1")]
    assert exporter.unread() == [("1.2.10.2", "chest@1", "waiting", "")]


def test_a_late_lateral_image_has_its_reason_though_no_result_names_it(
    studies: ReadStudies, exporter: Exporter
) -> None:
    reason = ImageReason.LATERAL_NOT_SUPPORTED.value
    studies.walk("1.2.10", 1)
    studies.receive("1.2.10", 2)
    studies.read({"1.2.10.2": reason})
    studies.assemble()
    assert exporter.unread() == [("1.2.10.2", "chest@1", "not_analysed", reason)]


def test_an_image_that_a_named_release_was_not_given_is_listed(
    studies: ReadStudies, exporter: Exporter
) -> None:
    studies.walk("1.2.10", 1)
    chosen = StudySelection(releases=("chest@1", "chest@2"))
    assert exporter.images(chosen) == [("1.2.10.1", "chest@1")]
    assert exporter.unread(chosen) == [("1.2.10.1", "chest@2", "not_requested", "")]


def test_every_image_is_in_one_of_the_tables_for_each_release(
    ledger: Ledger, clock: Clock, exporter: Exporter
) -> None:
    studies = ReadStudies(ledger, clock, CHEST, CHEST_2)
    studies.receive("1.2.10", 1, 2, 3)
    studies.read({"1.2.10.2": ImageReason.IMPLAUSIBLE_PIXELS.value})
    studies.assemble()
    studies.receive("1.2.11", 1)

    read = exporter.images()
    unread = [item[:2] for item in exporter.unread()]

    wanted = {f"1.2.10.{number}" for number in (1, 2, 3)} | {"1.2.11.1"}
    assert sorted(read + unread) == sorted(
        (uid, release) for uid in wanted for release in ("chest@1", "chest@2")
    )


def test_conditions_hold_together(studies: ReadStudies, exporter: Exporter) -> None:
    studies.walk("1.2.10", 1, calling_ae_title="CR1", study_date="20180601")
    later = studies.clock.now
    studies.walk("1.2.11", 1, calling_ae_title="CR1", study_date="20190601")
    studies.walk("1.2.12", 1, calling_ae_title="CR2", called_ae_title="OLD", study_date="")

    def uids(chosen: StudySelection) -> list[str]:
        return [uid for uid, _ in exporter.images(chosen)]

    assert uids(StudySelection(received_since=later)) == ["1.2.11.1", "1.2.12.1"]
    assert uids(StudySelection(received_until=later)) == ["1.2.10.1"]
    assert uids(StudySelection(calling_ae_titles=("CR1",), received_since=later)) == ["1.2.11.1"]
    assert uids(StudySelection(called_ae_titles=("OLD",))) == ["1.2.12.1"]
    assert uids(StudySelection(study_instance_uids=("1.2.12", "1.2.10"))) == [
        "1.2.10.1",
        "1.2.12.1",
    ]
    assert uids(StudySelection(study_date_from=date(2019, 1, 1))) == ["1.2.11.1"]
    assert uids(StudySelection(study_date_to=date(2018, 6, 1))) == ["1.2.10.1"]


def test_only_current_results_count_unless_all_are_wanted(
    studies: ReadStudies, exporter: Exporter
) -> None:
    studies.walk("1.2.10", 1)
    studies.walk("1.2.10", 2)

    assert exporter.images() == [("1.2.10.1", "chest@1"), ("1.2.10.2", "chest@1")]
    found, _ = exporter.tables(StudySelection(has_all_revisions=True))
    revisions = {(row["sop_instance_uid"], row["revision"], row["is_current"]) for row in found}
    assert revisions == {
        ("1.2.10.1", "1", "false"),
        ("1.2.10.1", "2", "true"),
        ("1.2.10.2", "2", "true"),
    }


def test_a_shadow_is_left_out_unless_it_is_wanted(
    ledger: Ledger, clock: Clock, exporter: Exporter
) -> None:
    studies = ReadStudies(ledger, clock, CHEST, CHEST_2)
    studies.walk("1.2.10", 1)
    change(
        ledger,
        update(reading).where(reading.c.release == "chest@2").values(is_shadow=True),
        update(result)
        .where(result.c.release == "chest@2")
        .values(state="shadow", is_current=False),
    )

    assert exporter.images() == [("1.2.10.1", "chest@1")]
    assert exporter.unread() == []
    found, _ = exporter.tables(StudySelection(has_shadows=True))
    assert {(row["release"], row["is_shadow"], row["is_current"]) for row in found} == {
        ("chest@1", "false", "true"),
        ("chest@2", "true", "true"),
    }


def test_no_patient_is_named_unless_it_is_wanted(studies: ReadStudies, exporter: Exporter) -> None:
    studies.walk("1.2.10", 1)
    studies.receive("1.2.11", 1)

    exporter.run()
    written = "".join(
        (exporter.folder / name).read_text() for name in ("out.csv", "out.not_read.csv")
    )
    assert not any(word in written for word in (PATIENT, ACCESSION, NAME, "DOE"))

    for table in exporter.tables(has_identifiers=True):
        assert {(row["accession_number"], row["patient_id"]) for row in table} == {
            (ACCESSION, PATIENT)
        }, "leading zeros stay"
    assert "DOE" not in (exporter.folder / "out.csv").read_text()


@pytest.fixture
def campaign(
    studies: ReadStudies, ledger: Ledger, ledger_url: str, clock: Clock
) -> Iterator[StudySelection]:
    """One image read, one missing, one of a dead series, one series not listed yet, one empty."""
    studies.walk("1.2.10", 1, 2)
    listed = {
        PlannedSeries("1.2.10", "1.2.10.0", "20190301", "DX"): (
            ExpectedImage("1.2.10.1", origin="/old/a.dcm"),
            ExpectedImage("1.2.10.1", origin="/old/copy of a.dcm"),
            ExpectedImage("1.2.10.9", origin="-old/b.dcm"),
        ),
        PlannedSeries("1.2.20", "1.2.20.0", "20190401", "DX", origin="row 17"): (),
        PlannedSeries("1.2.21", "1.2.21.0", "20190402", "DX", origin="row 18"): (),
        PlannedSeries("1.2.22", "1.2.22.0", "", "DX", origin="row 19"): (),
    }
    number = plan(ledger_url, clock, "old-chests", listed)
    change(
        ledger,
        update(campaign_table).values(release="chest@1"),
        update(campaign_image)
        .where(campaign_image.c.sop_instance_uid == "1.2.10.9")
        .values(state="missing", reason="offline", detail="OFFLINE"),
        update(campaign_series)
        .where(campaign_series.c.study_instance_uid == "1.2.20")
        .values(state="dead", reason="not_received"),
        update(campaign_series)
        .where(campaign_series.c.study_instance_uid == "1.2.22")
        .values(state="nothing_to_read"),
    )
    return iter([StudySelection(campaign_id=number)])


def test_a_campaign_exports_its_images_alone_each_under_each_origin(
    campaign: Iterator[StudySelection], exporter: Exporter
) -> None:
    found, _ = exporter.tables(next(campaign))
    assert {(row["sop_instance_uid"], row["origin"], row["campaign"]) for row in found} == {
        ("1.2.10.1", "/old/a.dcm", "old-chests"),
        ("1.2.10.1", "/old/copy of a.dcm", "old-chests"),
    }
    assert len(found) == 2 * len(FINDINGS)


def test_a_campaign_lists_every_image_and_series_that_it_lacks(
    campaign: Iterator[StudySelection], exporter: Exporter
) -> None:
    _, unread = exporter.tables(next(campaign))
    said = [
        (row["series_instance_uid"], row["sop_instance_uid"], row["state"], row["reason"])
        for row in unread
    ]
    assert said == [
        ("1.2.10.0", "1.2.10.9", "missing", "offline"),
        ("1.2.20.0", "", "dead", "not_received"),
        ("1.2.21.0", "", "waiting", ""),
        ("1.2.22.0", "", "nothing_to_read", ""),
    ]
    assert {row["release"] for row in unread} == {"chest@1"}, "that of the campaign"
    assert [unguarded(row["origin"]) for row in unread] == [
        "-old/b.dcm",
        "row 17",
        "row 18",
        "row 19",
    ]
    assert unread[0]["origin"] == "'-old/b.dcm"
    assert unread[0]["sentence"] == "The source says that the image is offline or unavailable."
    assert [row["study_date"] for row in unread] == ["2019-03-01", "2019-04-01", "2019-04-02", ""]


def test_a_campaign_is_narrowed_by_origin_and_by_day(
    campaign: Iterator[StudySelection], exporter: Exporter
) -> None:
    chosen = next(campaign)
    narrowed = dataclasses.replace(chosen, origin_prefix="/old/copy")
    found, unread = exporter.tables(narrowed)
    assert {row["origin"] for row in found} == {"/old/copy of a.dcm"}
    assert unread == []
    of_april = dataclasses.replace(chosen, study_date_from=date(2019, 4, 2))
    assert [row["study_instance_uid"] for row in exporter.tables(of_april)[1]] == ["1.2.21"]


def test_without_a_campaign_an_image_has_one_origin(
    campaign: Iterator[StudySelection], exporter: Exporter
) -> None:
    next(campaign)
    found, unread = exporter.tables()
    assert [(row["sop_instance_uid"], row["origin"]) for row in found[:: len(FINDINGS)]] == [
        ("1.2.10.1", "/old/a.dcm"),
        ("1.2.10.2", ""),
    ]
    assert unread == []


def test_a_study_that_was_erased_is_a_tombstone_of_its_campaign_alone(
    campaign: Iterator[StudySelection], exporter: Exporter, ledger: Ledger, tmp_path: Path
) -> None:
    with closing(Erasure(ledger.url, Archive(tmp_path / "archive"))) as erasure:
        erasure.erase_study("1.2.10")
    chosen = next(campaign)

    found, unread = exporter.tables(chosen)

    assert found == []
    erased = [row for row in unread if row["reason"] == "erased"]
    assert {row["state"] for row in erased} == {"erased"}
    assert len([row for row in erased if row["sop_instance_uid"]]) == 3, "each place in the list"
    assert len([row for row in erased if not row["sop_instance_uid"]]) == 1, "and the series"
    written = (exporter.folder / "out.not_read.csv").read_text()
    assert not any(word in written for word in ("1.2.10", "old/a", "old/b"))
    assert exporter.tables() == ([], [])


def test_an_image_that_left_the_archive_after_its_campaign_is_listed(
    campaign: Iterator[StudySelection], exporter: Exporter, ledger: Ledger
) -> None:
    """The archive has no row under its UID any more."""
    change(
        ledger,
        update(campaign_image)
        .where(campaign_image.c.sop_instance_uid == "1.2.10.1")
        .values(state="released"),
        "UPDATE instance SET study_instance_uid = '2.25.1', sop_instance_uid = '2.25.2'"
        " WHERE sop_instance_uid = '1.2.10.1'",
        "UPDATE reading SET study_instance_uid = '2.25.1', state = 'erased'",
        "UPDATE result SET study_instance_uid = '2.25.1', state = 'erased'",
    )

    found, unread = exporter.tables(next(campaign))

    assert found == []
    said = [(row["sop_instance_uid"], row["state"], row["reason"]) for row in unread[:2]]
    assert said == [("1.2.10.1", "gone", "")] * 2


def test_an_image_that_came_in_another_study_names_it(
    campaign: Iterator[StudySelection], exporter: Exporter, studies: ReadStudies
) -> None:
    studies.walk("1.2.30", 1, sop_instance_uid="1.2.10.9")
    _, unread = exporter.tables(next(campaign))
    said = (unread[0]["sop_instance_uid"], unread[0]["state"], unread[0]["detail"])
    assert said == ("1.2.10.9", "other_study", "1.2.30")


def test_a_study_that_comes_after_the_beginning_is_left_out(
    studies: ReadStudies, views: LedgerViews
) -> None:
    studies.receive("1.2.10", 1)
    until = views.last_study()
    studies.receive("1.2.11", 1)
    uids, last = views.export_page(ALL, None, until, 10)
    assert uids == ["1.2.10"]
    assert views.export_page(ALL, last, until, 10) == ([], None)


def test_parquet_holds_the_same_values_with_types(
    campaign: Iterator[StudySelection], exporter: Exporter
) -> None:
    chosen = next(campaign)
    exporter.run(chosen, has_identifiers=True, replaces=True)
    exporter.run(chosen, "out.parquet", has_identifiers=True)

    for name, table in (("out", ExportTable.IMAGES), ("out.not_read", ExportTable.NOT_READ)):
        file = str(exporter.folder / f"{name}.parquet")
        described = dict(
            duckdb.sql(f"DESCRIBE SELECT * FROM '{file}'").project("#1, #2").fetchall()
        )
        columns = columns_of(table, has_identifiers=True)
        assert list(described) == [item.name for item in columns]
        assert described["study_instance_uid"] == "VARCHAR"
        assert described["study_date"] == "DATE"
        assert described["received_at"] == "TIMESTAMP WITH TIME ZONE"
        names = ", ".join(
            f"strftime({item.name} AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S.%gZ')"
            if item.type == "moment"
            else f"{item.name}::VARCHAR"
            for item in columns
        )
        read_back = duckdb.sql(f"SELECT {names} FROM '{file}'").fetchall()
        written = rows_of(exporter.folder / f"{name}.csv")
        assert len(read_back) == len(written)
        for row, values in zip(written, read_back, strict=True):
            assert [unguarded(cell) or None for cell in row.values()] == list(values)
    query = (
        f"SELECT patient_id, accession_number, typeof(logit) FROM '{exporter.folder}/out.parquet'"
    )
    assert set(duckdb.sql(query).fetchall()) == {(PATIENT, ACCESSION, "DOUBLE")}


def test_a_file_that_is_there_stays_unless_it_is_to_be_replaced(
    studies: ReadStudies, exporter: Exporter
) -> None:
    studies.walk("1.2.10", 1)
    for taken in ("out.csv", "out.not_read.csv"):
        file = exporter.folder / taken
        file.write_text("mine")
        with pytest.raises(ConfigurationError, match=f"{taken}.*--force"):
            exporter.run()
        assert [(each.name, each.read_text()) for each in exporter.folder.iterdir()] == [
            (taken, "mine")
        ]
        file.unlink()
    (exporter.folder / "out.csv").write_text("mine")
    exporter.run(replaces=True)
    assert len(rows_of(exporter.folder / "out.csv")) == len(FINDINGS)


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_an_export_that_fails_leaves_no_file(
    studies: ReadStudies, exporter: Exporter, ledger: Ledger, name: str
) -> None:
    studies.walk("1.2.10", 1)
    studies.walk("1.2.11", 1)
    change(ledger, "UPDATE result SET content = '{}' WHERE study_instance_uid = '1.2.11'")
    with pytest.raises(KeyError):
        exporter.run(name=name)
    assert list(exporter.folder.iterdir()) == []


def test_ten_thousand_images_are_exported_page_by_page_in_bounded_memory(
    ledger: Ledger, clock: Clock, exporter: Exporter
) -> None:
    studies = ReadStudies(ledger, clock, CHEST)
    for number in range(40):
        studies.receive(f"1.2.{number}", *range(1, 6))
    studies.read()
    studies.assemble()
    multiply(ledger, 50)

    exporter.run(name="warm.csv")
    tracemalloc.start()
    counts = exporter.run()
    _, few = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert (counts.studies, counts.rows) == (2000, 10_000 * len(FINDINGS))
    seen = [row["sop_instance_uid"] for row in rows_of(exporter.folder / "out.csv")]
    assert len(set(seen)) == 10_000
    assert few < 24 << 20, "a page of studies, not the whole"


def multiply(ledger: Ledger, times: int) -> None:
    """Copy each study so often, under other UIDs."""
    for table in (study_table, instance, result):
        known = [row._asdict() for row in rows(ledger, table)]
        copies = [renamed(row, f".{number}") for number in range(1, times) for row in known]
        with transaction(ledger) as connection:
            connection.execute(insert(table), copies)


def renamed(row: dict[str, Any], end: str) -> dict[str, Any]:
    """The row without its id, every UID with another end."""
    text = json.dumps({key: value for key, value in row.items() if key not in ("id", "header")})
    other = re.sub(r'"(1\.2\.[0-9]+(?:\.[0-9]+)?)"', rf'"\1{end}"', text)
    return {**json.loads(other), **({"header": row["header"]} if "header" in row else {})}


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_a_full_disk_is_an_error_that_names_the_file(
    ledger: Ledger, clock: Clock, exporter: Exporter, tmp_path: Path, name: str
) -> None:
    studies = ReadStudies(ledger, clock, CHEST)
    for number in range(40):
        studies.receive(f"1.2.{number}", *range(1, 21))
    studies.read()
    studies.assemble()
    with small_disk(tmp_path / "full", 1) as folder:
        (folder / "fill").write_bytes(b"x" * ((1 << 20) - 8192))
        with pytest.raises(OSError, match="No space left") as raised:
            export(exporter.settings, ALL, ExportTarget(folder / name))
        assert raised.value.filename in {
            str(folder / name),
            str(exporting.not_read_path(folder / name)),
        }
        assert [each.name for each in folder.iterdir()] == ["fill"]

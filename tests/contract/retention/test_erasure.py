"""Erasure of patients and studies, on SQLite and on a real PostgreSQL.

No byte stays, others stay as they are, a crash is finished.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pydicom import Dataset
from pydicom.filebase import DicomBytesIO
from pydicom.filewriter import write_dataset
from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian
from sqlalchemy import delete, insert, select, update

from hilum.domain import (
    Advance,
    CommitmentRequest,
    CommitmentState,
    CommitmentVerdict,
    ConflictState,
    DeliveryState,
    Priority,
    ReadingState,
    Rejection,
    RemovalReason,
    SopReference,
)
from hilum.errors import ConfigurationError
from hilum.receive.headers import file_meta
from hilum.receive.headers.file_meta import FileMeta
from hilum.receive.headers.patient import OneStudy, Patient, read_patient
from hilum.services.erase import _erase, erase
from hilum.settings import LedgerSection as LedgerSettings
from hilum.settings import Settings, Site
from hilum.store.admin.conflicts import FileInQuarantine, resolve
from hilum.store.admin.erase import Erasure
from hilum.store.archive.archive import Archive, place_of
from hilum.store.queries.views import LedgerViews, StudyFilter
from hilum.store.queue import asked_commitments
from hilum.store.queue.asked_commitments import AskedScp
from hilum.store.queue.commitments import LeaseOwner, reported
from hilum.store.retention.policy import RetentionPolicy, Rule
from hilum.store.schema import tables
from tests.support.ledger.database import change, rows, transaction
from tests.support.ledger.storing import element
from tests.support.ledger.street import RELEASE, Street

NAME, PATIENT, OTHER = "Zwingli^Ottilie", "PID-4711-OZ", "PID-9"
MARKS = [NAME.encode(), PATIENT.encode(), b"1.2.3.1", b"Zwingli"]


@pytest.fixture
def settings(ledger_url: str, tmp_path: Path) -> Settings:
    (tmp_path / "archive" / "locks").mkdir(parents=True)
    defaults = {name: field.get_default() for name, field in Settings.model_fields.items()}
    return Settings.model_construct(
        **{**defaults, "site": Site(state_dir=tmp_path), "ledger": LedgerSettings(url=ledger_url)}
    )


def header_of(
    patient_id: str,
    syntax: str = ExplicitVRLittleEndian,
    charset: str = "ISO_IR 100",
    issuer: str = "",
) -> bytes:
    found = Dataset()
    found.SpecificCharacterSet = charset
    found.PatientName, found.PatientID, found.PatientBirthDate = (
        NAME if patient_id == PATIENT else "Roe^Jan",
        patient_id,
        "19500101",
    )
    if issuer:
        found.IssuerOfPatientID = issuer
    found.ImageComments = "x" * 5000
    stream = DicomBytesIO()
    stream.is_implicit_VR, stream.is_little_endian = syntax == ImplicitVRLittleEndian, True
    write_dataset(stream, found)
    return bytes(stream.getvalue())


def receive(
    street: Street,
    archive: Archive,
    study: str,
    number: int,
    patient_id: str = PATIENT,
    **changes: object,
) -> None:
    arrival = street._arrival(study, number, Priority.LIVE, "CR1", RELEASE)
    fields = {"header": header_of(patient_id), "path": f"st/ud/{study}.{number}.dcm", **changes}
    file = archive.root / str(fields["path"])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(stored(fields["header"]))
    street.ledger.record(
        [dataclasses.replace(arrival, instance=dataclasses.replace(arrival.instance, **fields))]
    )


def stored(header: bytes) -> bytes:
    return (
        file_meta.encode(
            FileMeta("1.2.840.10008.5.1.4.1.1.1", "1.5.1", ExplicitVRLittleEndian, "CR1", "HILUM")
        )
        + header
    )


def walk_on(street: Street) -> None:
    street.read()
    street.assemble()
    street.report()
    street.deliver()


def found_in(folder: Path, marks: list[bytes] = MARKS) -> list[str]:
    return [
        f"{file.name}: {mark!r}"
        for file in folder.rglob("*")
        if file.is_file()
        for mark in marks
        if mark in file.read_bytes()
    ]


def former_headers(street: Street) -> list[object]:
    return rows(street.ledger, select(tables.former_header))


def test_no_byte_of_the_patient_stays_and_others_are_left_alone(
    settings: Settings, street: Street, ledger_url: str, tmp_path: Path
) -> None:
    archive = Archive(settings.archive_dir)
    for number in range(30):  # neighbours: pages are shared, split and merged
        receive(street, archive, f"1.9.{number}", 1, OTHER)
    receive(street, archive, "1.2.3", 1)
    receive(street, archive, "1.2.3", 2)
    receive(street, archive, "1.2.4", 1)
    walk_on(street)
    receive(street, archive, "1.2.3", 1, digest="new", path="st/ud/merged.dcm")  # a header revision
    rejected = Rejection("1.2.3.1.9", "1.2.3", RemovalReason.QUALITY, "1.2.3.1.8", "CR1")
    street.ledger.reject([rejected])
    assert found_in(tmp_path)
    assert len(former_headers(street)) == 1
    report = erase(settings, Patient(PATIENT))
    assert (report.studies, report.images, report.documents, dict(report.delivered)) == (
        2,
        3,
        4,
        {"pacs": 2},
    )
    assert (report.files_left, report.arriving, report.is_rewritten, report.is_complete) == (
        0,
        0,
        True,
        True,
    )
    assert found_in(tmp_path) == []
    assert former_headers(street) == []
    assert [
        file.name for file in archive.root.rglob("*.dcm") if not file.name.startswith("1.9.")
    ] == []
    views = LedgerViews(ledger_url)
    studies, _ = views.list_studies(StudyFilter(), limit=100)
    erased = [item for item in studies if item["state"] == "erased"]
    assert (len(studies), len(erased)) == (32, 2)
    assert all(
        item["study_instance_uid"].startswith("2.25.") and len(item["study_instance_uid"]) <= 64
        for item in erased
    )
    kept = views.study("1.9.0")
    assert kept is not None
    assert kept["results"][0]["findings"]
    assert len(street.rows(tables.instance)) == 33
    assert erase(settings, Patient(OTHER), is_dry_run=True).studies == 30
    views.close()


def test_a_patient_is_found_when_the_pixels_have_left_and_most_of_the_header_with_them(
    settings: Settings, street: Street, ledger_url: str
) -> None:
    archive = Archive(settings.archive_dir)
    receive(street, archive, "1.2.3", 1, header=header_of(PATIENT, issuer="CITY"))
    receive(street, archive, "1.2.4", 1, OTHER)
    walk_on(street)
    with closing(RetentionPolicy(ledger_url, archive, street.clock)) as retention:
        street.clock.now += 10
        assert retention.release(Rule(frozenset(Priority), street.clock.now, "age"))
        retention.remove_files()
    headers = [row.header for row in street.rows(tables.instance)]
    assert [read_patient(header, ExplicitVRLittleEndian) for header in headers] == [
        Patient(PATIENT, "CITY"),
        Patient(OTHER, ""),
    ]
    assert all(NAME.encode() in header or b"Roe^Jan" in header for header in headers)
    assert not any(b"xxx" in header for header in headers), "Image Comments are in nobody's name"
    receive(street, archive, "1.2.4", 1, OTHER, path="st/ud/again.dcm")
    assert [b"xxx" in row.header for row in street.rows(tables.instance)] == [False, True], (
        "what comes again is whole again"
    )
    report = erase(settings, Patient(PATIENT, "CITY"))
    assert (report.studies, report.images, report.is_complete) == (1, 1, True)


def test_a_destination_is_not_asked_to_keep_what_was_erased_here(
    settings: Settings, street: Street
) -> None:
    receive(street, Archive(settings.archive_dir), "1.2.3", 1)
    walk_on(street)
    asked = asked_commitments.due(street.clock.now)
    with transaction(street.ledger) as connection:
        connection.execute(update(tables.delivery).values(asked))
    request = street.ledger.begin_commitment(AskedScp("pacs", "PACS", 3), 10.0)
    assert request is not None
    assert erase(settings, Patient(PATIENT)).studies == 1
    (row,) = street.rows(tables.delivery)
    assert (row.state, row.commitment) == ("delivered", None)
    verdict = CommitmentVerdict(request.references, ())
    done = street.ledger.record_commitment_report(
        request.transaction_uid, "PACS", verdict, {"pacs": 3}
    )
    assert done is not None
    assert (done.committed, done.unasked) == (0, 1), "its UID is gone"


def test_headers_that_an_earlier_version_has_written_are_shortened_once(
    settings: Settings, street: Street, ledger_url: str
) -> None:
    archive = Archive(settings.archive_dir)
    overlay = element(0x60003000, b"OW", bytes(1 << 20))
    for number in range(3):
        receive(street, archive, "1.2.3", number, header=header_of(PATIENT) + overlay)
    walk_on(street)
    with closing(RetentionPolicy(ledger_url, archive, street.clock)) as retention:
        with transaction(
            street.ledger
        ) as connection:  # an image of which that version had removed the pixels
            connection.execute(
                update(tables.instance)
                .where(tables.instance.c.id == 1)
                .values(pixels_removed_at=1.0)
            )
        assert (retention.shorten_headers(), retention.shorten_headers()) == (3, 0)
        first, *others = [row.header for row in street.rows(tables.instance)]
        assert others == [header_of(PATIENT)] * 2
        assert read_patient(first, ExplicitVRLittleEndian) == Patient(PATIENT, "")
        assert b"xxx" not in first
        receive(street, archive, "1.2.3", 9, header=header_of(PATIENT) + overlay)
        assert (retention.shorten_headers(), retention.shorten_headers()) == (1, 0), (
            "what came since is looked at, once"
        )


def test_rows_become_tombstones(settings: Settings, street: Street, ledger_url: str) -> None:
    archive = Archive(settings.archive_dir)
    receive(street, archive, "1.2.3", 1)
    walk_on(street)
    erase(settings, Patient(PATIENT), has_to_rewrite=False)
    (image,), (reading,), (result,), (study,) = (
        street.rows(table)
        for table in (tables.instance, tables.reading, tables.result, tables.study)
    )
    assert (image.header, image.digest, image.pixel_digest, image.is_removed) == (b"", "", "", True)
    assert image.pixels_removed_at is not None
    assert (reading.state, reading.logits, reading.view) == ("erased", None, None)
    assert (
        result.state,
        result.content["findings"],
        result.content["source_images"],
        result.identifiers,
    ) == ("erased", [], [], {})
    assert (study.state, study.reason, study.open_readings) == ("erased", "erased", 0)
    assert {image.study_instance_uid, reading.study_instance_uid, result.study_instance_uid} == {
        study.study_instance_uid
    }
    assert [(row.content, row.sop_instance_uid) for row in street.rows(tables.document)] == [
        (b"", None)
    ] * 2
    assert [row.state for row in street.rows(tables.delivery)] == ["delivered"]
    views = LedgerViews(ledger_url)
    assert views.document(1) is None
    assert views.study(study.study_instance_uid)["results"][0]["outcome"] == "analysed"  # type: ignore[index]
    views.close()


@pytest.mark.parametrize("stage", ["analyse", "assemble", "report", "deliver"])
def test_work_in_progress_is_thrown_away_and_nothing_can_be_done_again(
    stage: str, settings: Settings, street: Street
) -> None:
    receive(street, Archive(settings.archive_dir), "1.2.3", 1)
    steps = {"analyse": [], "assemble": [street.read], "report": [street.read, street.assemble]}
    for step in steps.get(stage, [street.read, street.assemble, street.report]):
        step()
    street.clock.now += 20
    (job,) = street.claim(stage)
    erase(settings, Patient(PATIENT), has_to_rewrite=False)
    state = {"analyse": ReadingState.ANALYSED, "deliver": DeliveryState.DELIVERED}.get(
        stage, "closed"
    )
    assert street.ledger.advance(stage, [(job.lease, Advance(state, {}))]) == [False]
    assert street.ledger.end_leases("worker-1", is_clean=False) == 0
    street.clock.now += 1000
    for name in ("analyse", "assemble", "report", "deliver"):
        street.ledger.requeue(name)
        assert street.claim(name) == []
    assert [row.state for row in street.rows(tables.delivery)] in ([], ["cancelled"])


def test_a_study_that_is_sent_again_is_new_and_can_be_erased_again(
    settings: Settings, street: Street
) -> None:
    archive = Archive(settings.archive_dir)
    for _ in range(2):
        receive(street, archive, "1.2.3", 1)
        walk_on(street)
        assert erase(settings, Patient(PATIENT), has_to_rewrite=False).studies == 1
    tombstones = [row.study_instance_uid for row in street.rows(tables.study)]
    assert len(set(tombstones)) == 2


def header_in(study: str, patient_id: str = PATIENT, syntax: str = ExplicitVRLittleEndian) -> bytes:
    """As `header_of`, with a Study Instance UID."""
    found = Dataset()
    found.PatientID, found.StudyInstanceUID, found.StudyID = patient_id, study, "7"
    stream = DicomBytesIO()
    stream.is_implicit_VR, stream.is_little_endian = syntax == ImplicitVRLittleEndian, True
    write_dataset(stream, found)
    return bytes(stream.getvalue())


def test_one_study_is_erased_and_the_patients_others_stay(
    settings: Settings, street: Street, tmp_path: Path
) -> None:
    archive = Archive(settings.archive_dir)
    for study, number in (("1.2.3", 1), ("1.2.3", 2), ("1.9.4", 1)):
        receive(
            street,
            archive,
            study,
            number,
            header=header_in(study),
            path=f"st/ud/{study}.{number}.dcm",
        )
    walk_on(street)
    receive(
        street,
        archive,
        "1.2.3",
        1,
        header=header_in("1.2.3"),
        digest="new",
        path="st/ud/merged.dcm",
    )  # the earlier file waits an hour
    street.ledger.reject([Rejection("1.2.3.9", "1.2.3", RemovalReason.QUALITY, "1.2.3.8", "CR1")])
    kept = (archive.root / "st/ud/1.9.4.1.dcm").read_bytes()
    counted = erase(settings, OneStudy("1.2.3"), is_dry_run=True)
    assert (counted.studies, counted.images, counted.documents, dict(counted.delivered)) == (
        1,
        2,
        2,
        {"pacs": 1},
    )
    assert found_in(tmp_path, [b"1.2.3"]), "a dry run changes nothing"
    report = erase(settings, OneStudy("1.2.3"))
    assert (report.studies, report.images, report.documents, dict(report.delivered)) == (
        1,
        2,
        2,
        {"pacs": 1},
    )
    assert (report.files_left, report.is_rewritten, report.is_complete) == (0, True, True)
    assert found_in(tmp_path, [b"1.2.3"]) == []
    assert (archive.root / "st/ud/1.9.4.1.dcm").read_bytes() == kept
    assert sorted(row.state for row in street.rows(tables.study)) == ["closed", "erased"]
    assert erase(settings, OneStudy("1.2.3")).studies == 0
    assert erase(settings, Patient(PATIENT), is_dry_run=True).studies == 1


def test_a_study_that_lost_its_only_image_before_any_report_is_found_by_its_uid(
    settings: Settings, street: Street, tmp_path: Path
) -> None:
    archive = Archive(settings.archive_dir)
    receive(street, archive, "1.2.3", 1, header=header_in("1.2.3"), path="st/ud/first.dcm")
    theirs = {
        "header": header_in("1.9.9", OTHER),
        "pixel_digest": "other",
        "digest": "other",
        "path": "st/ud/other.dcm",
    }
    receive(street, archive, "1.2.3", 1, **theirs, study_instance_uid="1.9.9")
    (held,) = street.rows(tables.conflict)
    moved = dataclasses.replace(
        street._arrival("1.9.9", 1, Priority.LIVE, "CR1", RELEASE).instance,
        **{**theirs, "sop_instance_uid": "1.2.3.1"},
    )
    with transaction(street.ledger) as connection:
        resolve(connection, held, ConflictState.REPLACED, FileInQuarantine(moved), street.clock.now)
    archive.bring("quarantine/st/ud/first.dcm")
    assert [row.study_instance_uid for row in street.rows(tables.instance)] == ["1.9.9"]
    assert erase(settings, Patient("nobody"), is_dry_run=True).studies == 0
    report = erase(settings, OneStudy("1.2.3"))
    assert (
        report.studies,
        report.images,
        report.documents,
        report.quarantined,
        report.is_complete,
    ) == (1, 0, 0, 1, True)
    assert [file.name for file in archive.root.rglob("*.dcm")] == ["other.dcm"], (
        "it is another study's"
    )
    assert sorted(row.state for row in street.rows(tables.study)) == ["due", "erased"]
    assert "1.2.3" not in [row.study_instance_uid for row in street.rows(tables.study)]


def test_a_crash_in_the_middle_of_one_study_is_finished_by_the_next(
    settings: Settings, street: Street, tmp_path: Path
) -> None:
    archive = Archive(settings.archive_dir)
    receive(street, archive, "1.2.3", 1, header=header_in("1.2.3"), path="st/ud/1.dcm")
    with closing(Erasure(settings.ledger_url, archive)) as crashed:
        crashed.erase_study("1.2.3")
    assert [file.name for file in archive.root.rglob("*.dcm")] == ["1.dcm"]
    again = erase(settings, OneStudy("1.2.3"))
    assert (again.studies, again.is_complete) == (0, True)
    assert list(archive.root.rglob("*.dcm")) == []
    assert found_in(tmp_path, [b"1.2.3"]) == []


def test_a_study_of_which_only_a_rejection_came_is_forgotten_and_a_tombstone_is_none(
    settings: Settings, street: Street
) -> None:
    street.ledger.reject([Rejection("1.2.3.9", "1.2.3", RemovalReason.QUALITY, "1.2.3.8", "CR1")])
    assert erase(settings, OneStudy("1.2.3"), has_to_rewrite=False).studies == 0
    assert street.rows(tables.rejection) == []
    receive(street, Archive(settings.archive_dir), "1.2.4", 1)
    walk_on(street)
    erase(settings, OneStudy("1.2.4"), has_to_rewrite=False)
    (before,) = street.rows(tables.study)
    assert erase(settings, OneStudy(before.study_instance_uid), has_to_rewrite=False).studies == 0
    assert street.rows(tables.study) == [before]


def test_a_file_of_the_study_that_arrives_just_now_is_said(
    settings: Settings, street: Street
) -> None:
    archive = Archive(settings.archive_dir, "listener")
    with archive.begin() as incoming:
        incoming.write(stored(header_in("1.2.3")))
        incoming.commit()
    report = erase(settings, OneStudy("1.2.3"))
    assert (report.arriving, report.is_complete) == (1, False)
    assert "1 files of this study have just arrived" in report.said(is_dry_run=False, whose="study")
    assert erase(settings, OneStudy("1.2"), is_dry_run=True).arriving == 0


def test_a_crash_in_the_middle_is_finished_by_the_next(
    settings: Settings, street: Street, tmp_path: Path
) -> None:
    archive = Archive(settings.archive_dir)
    for study in ("1.2.3", "1.2.4"):
        receive(street, archive, study, 1)
    crashed = Erasure(settings.ledger_url, archive)
    crashed.erase_study("1.2.3")
    crashed.close()
    assert len(list(archive.root.rglob("*.dcm"))) == 2
    assert erase(settings, Patient(PATIENT)).studies == 1
    assert list(archive.root.rglob("*.dcm")) == []
    assert found_in(tmp_path) == []
    again = erase(settings, Patient(PATIENT))
    assert (again.studies, again.is_complete) == (0, True)


def test_who_may_have_a_document_is_named(settings: Settings, street: Street) -> None:
    street.destinations = (
        "delivered",
        "on_the_wire",
        "unanswered",
        "dead",
        "refused_class",
        "not_yet",
    )
    receive(street, Archive(settings.archive_dir), "1.2.3", 1)
    street.read()
    street.assemble()
    street.report()
    ends = {
        "delivered": Advance(DeliveryState.DELIVERED),
        "dead": Advance(DeliveryState.DEAD, {"reason": "refused_0110"}),
        "refused_class": Advance(DeliveryState.DEAD, {"reason": "sop_class_refused"}),
    }
    for name in ("delivered", "on_the_wire", "unanswered", "dead", "refused_class"):
        (job,) = street.ledger.claim("deliver", 1, "worker-1", 60.0, destination_name=name)
        if name in ends:
            street.ledger.advance("deliver", [(job.lease, ends[name])])
        if name == "unanswered":
            street.ledger.retry("deliver", job.lease, "no answer", 60.0)
    for is_dry_run in (True, False):
        report = erase(settings, Patient(PATIENT), is_dry_run=is_dry_run)
        assert (report.delivered, report.tried) == (
            {"delivered": 1},
            {"on_the_wire": 1, "unanswered": 1, "dead": 1},
        )
        assert "1 documents may have reached on_the_wire: look for them there" in report.said(
            is_dry_run=is_dry_run
        )


def test_nobody_is_named_by_a_request_for_storage_commitment_that_was_open(
    settings: Settings, street: Street
) -> None:
    receive(street, Archive(settings.archive_dir), "1.2.3", 1)
    walk_on(street)
    (own,) = (row.sop_instance_uid for row in street.rows(tables.document) if row.kind == "sr")
    asked = tuple(
        SopReference("1.2.840.10008.5.1.4.1.1.1.1", uid) for uid in ("1.2.3.1", own, "1.7.7.7")
    )
    job = street.ledger.request_commitment(
        CommitmentRequest("1.9", asked, "CR1", "HILUM"), LeaseOwner("listener-1", 60.0)
    )
    assert job is not None
    erase(settings, Patient(PATIENT), has_to_rewrite=False)
    verdict = CommitmentVerdict((), tuple((item, 0x0112) for item in asked))
    street.ledger.advance(
        "commit", [(job.lease, Advance(CommitmentState.REPORTED, reported(verdict)))]
    )
    (row,) = street.rows(tables.commitment)
    (image,) = street.rows(tables.instance)
    assert row.failures[0] == [image.sop_instance_uid, 0x0112]
    assert row.failures[1][0] != own
    assert row.failures[2] == ["1.7.7.7", 0x0112]


def report_of(patient_id: str) -> bytes:
    return stored(header_of(patient_id))


def name_in_reports(street: Street, study: str, patient_id: str, issuer: str = "") -> None:
    """The reports of a study name this patient, as those do that are built from a header of his."""
    of_study = (
        select(tables.document.c.id)
        .join(tables.result)
        .where(tables.result.c.study_instance_uid == study)
    )
    named = {"study": {"patient_id": patient_id, "issuer_of_patient_id": issuer or None}}
    contents = {"sr": report_of(patient_id), "json": json.dumps(named, ensure_ascii=False).encode()}
    with transaction(street.ledger) as connection:
        for kind, content in contents.items():
            of_kind = tables.document.c.id.in_(of_study), tables.document.c.kind == kind
            connection.execute(update(tables.document).where(*of_kind).values(content=content))


def test_a_study_that_has_lost_its_only_image_to_another_one_is_found_by_its_reports(
    settings: Settings, street: Street, tmp_path: Path
) -> None:
    archive = Archive(settings.archive_dir)
    receive(street, archive, "1.2.3", 1)
    walk_on(street)
    name_in_reports(street, "1.2.3", PATIENT)
    other = {
        "header": header_of(OTHER),
        "pixel_digest": "other",
        "digest": "other",
        "path": "st/ud/other.dcm",
    }
    receive(street, archive, "1.2.3", 1, **other, study_instance_uid="1.9.9")
    (held,) = street.rows(tables.conflict)
    moved = dataclasses.replace(
        street._arrival("1.9.9", 1, Priority.LIVE, "CR1", RELEASE).instance,
        **{**other, "sop_instance_uid": "1.2.3.1"},
    )
    with transaction(street.ledger) as connection:
        resolve(connection, held, ConflictState.REPLACED, FileInQuarantine(moved), street.clock.now)
    former, replaced = "st/ud/1.2.3.1.dcm", "st/ud/other.dcm"
    archive.bring(f"quarantine/{former}")
    assert [row.study_instance_uid for row in street.rows(tables.instance)] == ["1.9.9"]
    counted = erase(settings, Patient(PATIENT), is_dry_run=True)
    assert (counted.studies, counted.images, counted.documents) == (1, 0, 2)
    report = erase(settings, Patient(PATIENT))
    assert (report.studies, report.images, report.documents, dict(report.delivered)) == (
        1,
        0,
        2,
        {"pacs": 1},
    )
    assert (report.quarantined, report.is_complete) == (1, True)
    assert found_in(tmp_path, [NAME.encode(), PATIENT.encode()]) == []
    assert (archive.root / replaced).exists(), "it is another patient's"
    assert sorted(row.state for row in street.rows(tables.study)) == ["due", "erased"]
    assert erase(settings, Patient(PATIENT)).studies == 0


@pytest.mark.parametrize("is_read_again", [False, True])
def test_reports_by_an_earlier_header_go_and_the_images_stay_whose_they_are(
    settings: Settings, street: Street, tmp_path: Path, *, is_read_again: bool
) -> None:
    archive = Archive(settings.archive_dir)
    receive(street, archive, "1.2.3", 1)
    street.read()
    street.assemble()
    street.report()
    name_in_reports(street, "1.2.3", PATIENT)
    if is_read_again:
        street.deliver()
    receive(street, archive, "1.2.3", 1, OTHER, digest="new", path="st/ud/corrected.dcm")
    if is_read_again:
        receive(street, archive, "1.2.3", 2, OTHER)
        walk_on(street)
    counted = erase(settings, Patient(PATIENT), is_dry_run=True)
    assert (counted.studies, counted.images, counted.documents) == (0, 0, 2)
    assert (archive.root / "st/ud/1.2.3.1.dcm").exists(), "the earlier header, for an hour"
    report = erase(settings, Patient(PATIENT))
    assert (report.studies, report.documents, dict(report.delivered)) == (
        0,
        2,
        {"pacs": 1} if is_read_again else {},
    )
    assert report.is_complete
    assert found_in(tmp_path, [NAME.encode(), PATIENT.encode()]) == []
    assert {row.header for row in street.rows(tables.instance)} == {header_of(OTHER)}
    assert (archive.root / "st/ud/corrected.dcm").exists()
    assert street.rows(tables.delivery)[0].state == ("delivered" if is_read_again else "cancelled")
    again = erase(settings, Patient(PATIENT))
    assert (again.documents, again.is_complete) == (0, True)
    assert erase(settings, Patient(OTHER), is_dry_run=True).studies == 1


def test_reports_of_an_equal_id_of_another_issuer_stay(settings: Settings, street: Street) -> None:
    receive(street, Archive(settings.archive_dir), "1.2.3", 1, OTHER)
    walk_on(street)
    name_in_reports(street, "1.2.3", PATIENT, "SOUTH")
    street_documents = street.rows(tables.document)
    change(
        street.ledger,
        delete(tables.delivery),
        delete(tables.document).where(tables.document.c.kind == "sr"),
    )
    assert len(street_documents) == 2
    assert erase(settings, Patient(PATIENT, "NORTH"), is_dry_run=True).documents == 0
    assert erase(settings, Patient(PATIENT, "SOUTH"), is_dry_run=True).documents == 1


class BusyArchive(Archive):
    """A file of the patient has arrived, and gets its row while somebody looks elsewhere.

    In quarantine, or at the headers.
    """

    def __init__(self, root: Path, street: Street, *, is_late: bool) -> None:
        super().__init__(root, "listener")
        self._street, self._is_late = street, is_late
        with self.begin() as incoming:
            incoming.write(report_of(PATIENT))
            self._arriving = incoming.commit()

    def unindexed(self, process: str | None = None) -> Iterator[Path]:
        yield from list(super().unindexed(process))
        if not self._is_late:
            self._index()

    def quarantined(self) -> Iterator[Path]:
        self._index()
        return super().quarantined()

    def _index(self) -> None:
        if self._arriving.exists():
            receive(self._street, self, "1.2.4", 1, path=place_of(self._arriving))
            self.settle(self._arriving)


@pytest.mark.parametrize("is_late", [True, False])
def test_a_file_that_gets_its_row_meanwhile_is_erased_or_said(
    settings: Settings, street: Street, *, is_late: bool
) -> None:
    archive = BusyArchive(settings.archive_dir, street, is_late=is_late)
    with closing(Erasure(settings.ledger_url, archive)) as erasure:
        report = _erase(erasure, archive, Patient(PATIENT), is_dry_run=False)
    assert (report.studies, report.arriving) == ((0, 1) if is_late else (1, 0))
    assert erase(settings, Patient(PATIENT)).is_complete
    assert [row.header for row in street.rows(tables.instance)] == [b""]


def test_quarantine_is_judged_by_each_file_itself(
    settings: Settings, street: Street, tmp_path: Path
) -> None:
    archive = Archive(settings.archive_dir)
    receive(street, archive, "1.7.7", 1, OTHER)
    folder = archive.root / "quarantine" / "ab" / "cd"
    folder.mkdir(parents=True)
    theirs, others, nobodys = (folder / f"{name}.dcm" for name in ("theirs", "others", "nobodys"))
    theirs.write_bytes(stored(header_of(PATIENT)))
    others.write_bytes(stored(header_of(OTHER)))
    nobodys.write_bytes(b"no DICOM")
    row = {
        "sop_instance_uid": "1.7.7.1",
        "size_bytes": 5,
        "received_at": 1.0,
        "calling_ae_title": "CR1",
        "state": "held",
    }
    with transaction(street.ledger) as connection:
        for name in ("theirs", "others"):
            connection.execute(
                insert(tables.conflict).values(
                    **row, path=f"quarantine/ab/cd/{name}.dcm", digest=name
                )
            )
    report = erase(settings, Patient(PATIENT))
    assert (report.studies, report.quarantined, report.unreadable) == (0, 1, 1)
    assert [theirs.exists(), others.exists(), nobodys.exists()] == [False, True, True]
    assert [
        (item.state, item.digest == item.path[17:-4]) for item in street.rows(tables.conflict)
    ] == [
        ("discarded", False),
        ("held", True),
    ]


def test_a_file_that_arrives_just_now_is_said(settings: Settings, street: Street) -> None:
    archive = Archive(settings.archive_dir, "listener")
    with archive.begin() as incoming:
        incoming.write(stored(header_of(PATIENT)))
        incoming.commit()
    report = erase(settings, Patient(PATIENT))
    assert (report.arriving, report.is_complete) == (1, False)


def test_the_issuer_tells_equal_ids_apart(settings: Settings, street: Street) -> None:
    archive = Archive(settings.archive_dir)
    for number, issuer in enumerate(("", "NORTH", "SOUTH")):
        receive(street, archive, f"1.2.{number}", 1, header=header_of(PATIENT, issuer=issuer))
    assert erase(settings, Patient(PATIENT, "NORTH"), is_dry_run=True).studies == 1
    assert erase(settings, Patient(PATIENT, ""), is_dry_run=True).studies == 1
    assert erase(settings, Patient(PATIENT), is_dry_run=True).studies == 3
    assert not any(row.header == b"" for row in street.rows(tables.instance)), (
        "a dry run changes nothing"
    )


def test_without_an_archive_nothing_is_promised(settings: Settings, street: Street) -> None:
    (settings.archive_dir / "locks").rmdir()
    with pytest.raises(ConfigurationError, match="where the archive is mounted"):
        erase(settings, Patient(PATIENT))


@pytest.mark.parametrize("syntax", [ExplicitVRLittleEndian, ImplicitVRLittleEndian])
@pytest.mark.parametrize(
    ("charset", "patient_id"),
    [("ISO_IR 100", "Ä-17"), ("ISO_IR 192", "患者-1"), ("ISO_IR 144", "Ж7"), ("", "A B ")],
)
def test_the_id_is_read_in_its_character_set(syntax: str, charset: str, patient_id: str) -> None:
    header = header_of(patient_id, syntax, charset or "ISO_IR 6")
    assert read_patient(header, syntax).patient_id == patient_id.strip()
    assert Patient(patient_id.strip()).is_of(header, syntax)
    assert not Patient("A").is_of(header, syntax), "a part of an ID is another ID"


@pytest.mark.parametrize("syntax", [ExplicitVRLittleEndian, ImplicitVRLittleEndian])
def test_a_study_is_told_by_the_whole_of_its_uid(syntax: str) -> None:
    header = header_in("1.2.34", syntax=syntax)  # padded to an even length
    assert OneStudy("1.2.34").is_of(header, syntax)
    assert not OneStudy("1.2.3").is_of(header, syntax)
    assert not OneStudy("1.2.34").is_of(header_of("1.2.34", syntax), syntax), "it is the Patient ID"

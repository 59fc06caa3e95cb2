"""From an Accession Number or a Patient ID to the study, on SQLite and on a real PostgreSQL.

Nothing of it is kept.
"""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Sequence
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest
from pydicom import Dataset, config
from pydicom.filebase import DicomBytesIO
from pydicom.filewriter import write_dataset
from pydicom.uid import ExplicitVRLittleEndian, ImplicitVRLittleEndian

from hilum.api.identifiers import StudyQuery
from hilum.domain import Priority
from hilum.errors import Retry
from hilum.receive.headers.accession import Accession
from hilum.receive.headers.patient import Patient
from hilum.services.find import SearchedOwner, find
from hilum.services.identifiers import LedgerIdentifiers
from hilum.store.ledger import Ledger
from hilum.store.queries.views import LedgerViews
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.street import RELEASE, Clock, Street
from tests.support.server import commands


def header_of(
    accession: str,
    patient_id: str = "PID-1",
    *,
    syntax: str = ExplicitVRLittleEndian,
    private_bytes: int = 0,
    issuers: Sequence[str] = (),
    study_date: str = "",
) -> bytes:
    """`issuers`: of the Patient ID, and the local and universal one of the Accession Number."""
    header = Dataset()
    if issuers:
        item = Dataset()
        header.IssuerOfPatientID, item.LocalNamespaceEntityID, item.UniversalEntityID = issuers
        header.IssuerOfAccessionNumberSequence = [item]
        header["IssuerOfAccessionNumberSequence"].is_undefined_length = (
            syntax == ExplicitVRLittleEndian
        )
        item.is_undefined_length_sequence_item = syntax == ExplicitVRLittleEndian
    header.SpecificCharacterSet = "ISO_IR 192"
    if study_date:
        with config.disable_value_validation():
            header.StudyDate = study_date
    header.AccessionNumber, header.PatientID = accession, patient_id
    header.private_block(0x0009, "VENDOR", create=True).add_new(0x01, "OB", bytes(private_bytes))
    stream = DicomBytesIO()
    stream.is_implicit_VR, stream.is_little_endian = syntax == ImplicitVRLittleEndian, True
    write_dataset(stream, header)
    return bytes(stream.getvalue())


def receive(
    street: Street, study: str, number: int, header: bytes, syntax: str = ExplicitVRLittleEndian
) -> None:
    arrival = street._arrival(study, number, Priority.LIVE, "CR1", RELEASE)
    image = dataclasses.replace(arrival.instance, header=header, transfer_syntax_uid=syntax)
    street.ledger.record([dataclasses.replace(arrival, instance=image)])


def studies(views: LedgerViews, sought: SearchedOwner, since: float | None = None) -> list[str]:
    return [study["study_instance_uid"] for study in find(views, sought, since)]


def test_studies_are_found_by_what_stands_in_their_headers_alone(
    street: Street, views: LedgerViews
) -> None:
    receive(street, "1.2.1", 1, header_of(" 4711 ", "Ä-1"))
    receive(street, "1.2.1", 2, header_of("4711", "Ä-1"))
    receive(street, "1.2.2", 1, header_of("47110", "4711"))
    street.clock.now += 3600
    receive(
        street, "1.2.3", 1, header_of("4711", syntax=ImplicitVRLittleEndian), ImplicitVRLittleEndian
    )
    receive(street, "1.2.4", 1, header_of("", "PID-4", private_bytes=100_000))
    receive(street, "1.2.5", 1, b"no header")
    receive(street, "1.2.6", 1, header_of("4711").replace(b"ISO_IR 192", b"ISO_IR\x00192"))
    assert studies(views, Accession("4711")) == [
        "1.2.6",
        "1.2.3",
        "1.2.1",
    ], "once each, the newest first"
    assert studies(views, Accession("4711"), since=street.clock.now) == ["1.2.6", "1.2.3"]
    assert studies(views, Patient("Ä-1")) == ["1.2.1"]
    assert studies(views, Patient("PID-4")) == ["1.2.4"], (
        "it stands behind what is read of most headers"
    )
    assert studies(views, Accession("9")) == []


def test_one_number_of_two_hospitals_is_told_apart_by_its_issuer(
    street: Street, views: LedgerViews
) -> None:
    receive(street, "1.2.1", 1, header_of("4711", "P", issuers=("MARY", "Märy", "1.2.3")))
    receive(
        street,
        "1.2.2",
        1,
        header_of("4711", "P", issuers=("ANNE", "ANNE", ""), syntax=ImplicitVRLittleEndian),
        ImplicitVRLittleEndian,
    )
    receive(street, "1.2.3", 1, header_of("4711", "P"))
    for sought, issuers in (
        (Accession("4711"), ["", "ANNE", "Märy"]),
        (Patient("P"), ["", "ANNE", "MARY"]),
    ):
        assert [study["issuer"] for study in find(views, sought)] == issuers
    for issuer, study in (("Märy", "1.2.1"), ("1.2.3", "1.2.1"), ("ANNE", "1.2.2"), ("", "1.2.3")):
        assert studies(views, Accession("4711", issuer)) == [study]
    for issuer, study in (("MARY", "1.2.1"), ("ANNE", "1.2.2"), ("", "1.2.3")):
        assert studies(views, Patient("P", issuer)) == [study]
    assert studies(views, Accession("4711", "MARY")) == []


def test_several_things_that_are_asked_for_all_hold(street: Street, views: LedgerViews) -> None:
    receive(street, "1.2.1", 1, header_of("4711", "P", study_date="20261120"))
    receive(street, "1.2.2", 1, header_of("4712", "P", study_date="2026.11.21"))
    receive(street, "1.2.3", 1, header_of("4713", "P", study_date="unknown"))
    identifiers = LedgerIdentifiers(views)
    for query, expected in (
        (StudyQuery(patient_id="P", accession_number="4711"), ["1.2.1"]),
        (StudyQuery(patient_id="P", study_date_from=date(2026, 11, 20)), ["1.2.2", "1.2.1"]),
        (StudyQuery(study_date_to=date(2026, 11, 20)), ["1.2.1"]),
        (StudyQuery(patient_id="Q", accession_number="4711"), []),
    ):
        found = identifiers.find(query, before=None, limit=50)
        assert (list(found.identifiers), found.next_cursor) == (expected, None)
    dates = {
        uid: said.study_date
        for uid, said in identifiers.of(["1.2.1", "1.2.2", "1.2.3", "1.2.4"]).items()
    }
    assert dates == {"1.2.1": "2026-11-20", "1.2.2": "2026-11-21", "1.2.3": "unknown"}


def test_a_search_that_goes_on_names_no_study_of_before(street: Street, views: LedgerViews) -> None:
    for number in (1, 2):
        for study in ("1.2.1", "1.2.2", "1.2.3"):
            receive(
                street,
                study,
                number,
                header_of("4711" if study != "1.2.3" or number == 1 else "4712"),
            )
    identifiers, query = LedgerIdentifiers(views), StudyQuery(accession_number="4711")
    first = identifiers.find(query, before=None, limit=1)
    rest = identifiers.find(query, before=first.last_row, limit=50)
    assert [list(page.identifiers) for page in (first, rest)] == [["1.2.2"], ["1.2.1", "1.2.3"]]


def test_one_search_runs_at_a_time(street: Street, views: LedgerViews) -> None:
    identifiers = LedgerIdentifiers(views, wait_seconds=0.01)
    with identifiers.lock, pytest.raises(Retry, match="another search"):
        identifiers.find(StudyQuery(patient_id="P"), before=None, limit=50)
    assert identifiers.find(StudyQuery(patient_id="P"), before=None, limit=50).identifiers == {}


def test_headers_come_in_batches(street: Street, views: LedgerViews) -> None:
    for number in range(5):
        receive(street, f"1.2.{number}", 1, header_of("1"))
    last, seen = None, []
    while headers := views.headers_before(last, limit=2):
        assert len(headers) <= 2
        seen += [header.study_instance_uid for header in headers]
        last = headers[-1].row_id
    assert seen == [f"1.2.{number}" for number in reversed(range(5))]


def test_the_command_says_where_the_report_is_and_keeps_the_number_to_itself(
    tmp_path: Path,
) -> None:
    (tmp_path / "hilum.toml").write_text(f'[site]\nstate_dir = "{tmp_path}"\n')
    clock = Clock()
    with closing(Ledger(migrated_sqlite(tmp_path), clock)) as ledger:
        street = Street(ledger, clock)
        receive(
            street,
            "1.2.1",
            1,
            header_of("ACC-4711", issuers=("MARY", "ORDERS", ""), study_date="20261120"),
        )
        street.read()
        street.assemble()
        street.report()
        street.deliver()

    def asked(*words: str, typed: str) -> subprocess.CompletedProcess[str]:
        return commands.hilum("find", *words, "--config", tmp_path / "hilum.toml", typed=typed)

    found = asked("--accession", "-", "--study-date-to", "2026-11-20", typed="ACC-4711\n")
    assert (found.returncode, found.stderr) == (0, "")
    assert (
        found.stdout
        == f"1.2.1  closed  2026-11-20T08:30:00.000Z  {RELEASE}: analysed, 1 delivered  issued by"
        " ORDERS\n"
    )
    dated = asked("--accession", "-", "--study-date-from", "2026-11-21", typed="ACC-4711\n")
    assert (dated.returncode, dated.stdout) == (1, "")
    unknown = asked("--patient", "-", "--since", "2026-11-20", "--issuer", "MARY", typed="PID-9\n")
    assert (unknown.returncode, unknown.stdout, "PID-9" in unknown.stderr) == (1, "", False)
    assert asked("--accession", "-", typed="\n").returncode == 2

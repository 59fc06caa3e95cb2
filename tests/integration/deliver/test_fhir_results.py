"""Results from the ledger to a FHIR server of ours, by the dispatcher."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hilum.domain import DeliveryState
from hilum.settings import FhirDestination, Settings
from testing.fhir_server import FhirServer
from testing.phantoms.phantom import make_study
from tests.support.ledger.dispatching import Dispatcher
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.reports.results import make_release

RELEASE = make_release()


def study_of_the_hospital(uid: str) -> dict[str, object]:
    identifier = {"system": "urn:dicom:uid", "value": f"urn:oid:{uid}"}
    return {"resourceType": "ImagingStudy", "identifier": [identifier]}


@pytest.fixture
def server() -> Iterator[FhirServer]:
    with FhirServer() as opened:
        yield opened


@pytest.fixture
def dispatcher(tmp_path: Path, server: FhirServer) -> Iterator[Dispatcher]:
    (tmp_path / "archive" / "locks").mkdir(parents=True)
    settings = Settings(
        site={"state_dir": tmp_path},  # type: ignore[arg-type]
        ledger={"url": migrated_sqlite(tmp_path)},  # type: ignore[arg-type]
        report={"patient_id_system": "urn:oid:2.999.1"},  # type: ignore[arg-type]
        destinations={"ris": FhirDestination(url=server.url)},
    )
    with closing(Dispatcher(settings, RELEASE)) as opened:
        yield opened


def sent(dispatcher: Dispatcher) -> list[object]:
    """Report the results that are due, and deliver their documents."""
    dispatcher.assemble()
    dispatcher.report()
    return [advance.state for advance in dispatcher.deliver("ris")]


def test_a_late_image_becomes_a_report_that_replaces_the_first(
    dispatcher: Dispatcher, server: FhirServer
) -> None:
    first, late = make_study(7, views=("PA", "AP"), rows=32, columns=32)

    dispatcher.read(first)
    states = sent(dispatcher)
    dispatcher.read(late)
    states += sent(dispatcher)

    earlier, newer = server.store.of("DiagnosticReport")
    (extension,) = newer["extension"]
    assert states == [DeliveryState.DELIVERED] * 2
    assert extension["valueReference"]["identifier"] == earlier["identifier"][0]
    assert newer["subject"]["identifier"]["system"] == "urn:oid:2.999.1"
    assert len(server.store.of("ImagingStudy")) == len(server.store.of("Device")) == 1
    assert newer["imagingStudy"] == earlier["imagingStudy"]


def test_a_study_that_the_server_has_twice_is_refused_until_a_person_has_cleared_it(
    dispatcher: Dispatcher, server: FhirServer
) -> None:
    (image,) = make_study(7, views=("PA",), rows=32, columns=32)
    double = study_of_the_hospital(image.StudyInstanceUID)
    server.store.put("ImagingStudy/a", double)
    server.store.put("ImagingStudy/b", double)
    dispatcher.read(image)
    dispatcher.assemble()
    dispatcher.report()

    (advance,) = dispatcher.deliver("ris")

    assert advance.state is DeliveryState.DEAD
    assert advance.values["reason"] == "document_refused"
    assert "multiple-matches" in advance.values["detail"]
    assert server.store.of("DiagnosticReport") == []


def test_a_study_that_the_hospital_has_brought_itself_is_not_created_again(
    dispatcher: Dispatcher, server: FhirServer
) -> None:
    (image,) = make_study(7, views=("PA",), rows=32, columns=32)
    theirs = study_of_the_hospital(image.StudyInstanceUID)
    server.store.put("ImagingStudy/theirs", theirs)

    dispatcher.read(image)
    states = sent(dispatcher)

    (report,) = server.store.of("DiagnosticReport")
    assert states == [DeliveryState.DELIVERED]
    assert report["imagingStudy"] == [{"reference": "ImagingStudy/theirs"}]
    assert server.store.of("ImagingStudy") == [theirs]

"""Plans of a real Orthanc that stops at five answers, by QIDO-RS."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest

from hilum.retrieve.dicomweb.client import DicomwebClient
from hilum.retrieve.query.dates import DateRange, plan_dates
from hilum.retrieve.query.plan_step import PlanStep
from hilum.retrieve.query.rows import plan_rows
from hilum.retrieve.source import ListedStudy
from hilum.settings import DicomwebSource
from tests.support.peers.archives import archived_image, orthanc_archive
from tests.support.peers.peers import Orthanc, missing
from tests.support.retrieve.sources import web_client

LIMIT = 5
STUDIES = 21
ROOT = "1.2.826.0.1.7"
DAY = DateRange(date(2019, 1, 2), date(2019, 1, 2))
WANTED = ("CR", "DX")
SETTINGS = DicomwebSource.model_validate(
    {"kind": "dicomweb", "url": "http://127.0.0.1/", "maximum_results": LIMIT}
)


def fill(orthanc: Orthanc) -> None:
    """21 studies of one day, an hour apart; the last is in its last second."""
    for number in range(1, STUDIES + 1):
        study = f"{ROOT}.{number}"
        time = "235959.999" if number == STUDIES else f"{number:02}1500"
        accession = {1: "123", 2: "0000123", 3: "DUP1", 4: "DUP1"}.get(number, "")
        orthanc.store(
            archived_image(study, f"{study}.1", f"{study}.1.1", time=time, accession=accession)
        )


@pytest.fixture(scope="module")
def client() -> Iterator[DicomwebClient]:
    if not Path("/usr/share/orthanc/plugins/libOrthancDicomWeb.so").exists():
        missing("libOrthancDicomWeb.so is not installed (Debian package orthanc-dicomweb)")
    with orthanc_archive(limit=LIMIT, dicomweb=True) as orthanc:
        fill(orthanc)
        with web_client(f"http://127.0.0.1:{orthanc.http_port}/dicom-web/") as client:
            yield client


def doubted_days(step: PlanStep) -> list[str]:
    return [doubt.day for doubt in step.doubts]


def test_a_day_over_the_limit_of_orthanc_is_found_whole_and_named(client: DicomwebClient) -> None:
    (step,) = plan_dates(client, SETTINGS, DAY, WANTED)
    planned = {item.study_instance_uid for item in step.series}
    assert planned == {f"{ROOT}.{number}" for number in range(1, STUDIES + 1)}
    assert "20190102" in doubted_days(step)


@pytest.mark.parametrize(
    ("value", "outcome", "studies"),
    [
        ("123", "found", [f"{ROOT}.1"]),
        ("0000123", "found", [f"{ROOT}.2"]),
        ("DUP1", "ambiguous", [f"{ROOT}.3", f"{ROOT}.4"]),
        ("dup1", "none", []),
        ("*", "refused", []),
    ],
)
def test_a_row_matches_its_own_accession_number_alone(
    client: DicomwebClient, value: str, outcome: str, studies: list[str]
) -> None:
    (step,) = plan_rows(client, SETTINGS, [ListedStudy(2, "accession", value)], WANTED)
    (row,) = step.rows
    assert (row.outcome, sorted(row.study_instance_uids)) == (outcome, studies)

"""Plans of a real Orthanc that stops at five answers, and of dcmqrscp, which ignores keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest

from hilum.retrieve.dimse.source import CGetImageSource
from hilum.retrieve.query.dates import DateRange, plan_dates
from hilum.retrieve.query.rows import plan_rows
from hilum.retrieve.source import ImageSource, ListedStudy
from hilum.settings import CGetSource, DicomwebSource
from tests.support.peers.archives import (
    ARCHIVE_TITLE,
    DcmQrScp,
    archived_image,
    orthanc_archive,
)
from tests.support.peers.peers import Orthanc, missing
from tests.support.retrieve.sources import web_client

LIMIT = 5
STUDIES = 21
ROOT = "1.2.826.0.1.7"
CT_STUDY = f"{ROOT}.99"
ALL = {f"{ROOT}.{number}" for number in range(1, STUDIES + 1)}
DAY = DateRange(date(2019, 1, 2), date(2019, 1, 2))
WANTED = ("CR", "DX")
SETTINGS = DicomwebSource.model_validate(
    {"kind": "dicomweb", "url": "http://127.0.0.1/", "maximum_results": LIMIT}
)
ROWS = [
    ("123", "found", [f"{ROOT}.1"]),
    ("0000123", "found", [f"{ROOT}.2"]),
    ("DUP1", "ambiguous", [f"{ROOT}.3", f"{ROOT}.4"]),
    ("dup1", "none", []),
    ("*", "refused", []),
]


def contents() -> Sequence[bytes]:
    """21 DX studies of one day, an hour apart, the last in its last second; and one CT study."""
    images = []
    for number in range(1, STUDIES + 1):
        study = f"{ROOT}.{number}"
        time = "235959.999" if number == STUDIES else f"{number:02}1500"
        accession = {1: "123", 2: "0000123", 3: "DUP1", 4: "DUP1"}.get(number, "")
        images.append(
            archived_image(study, f"{study}.1", f"{study}.1.1", time=time, accession=accession)
        )
    ct = archived_image(CT_STUDY, f"{CT_STUDY}.1", f"{CT_STUDY}.1.1", modality="CT")
    return [*images, ct]


@pytest.fixture(scope="module")
def orthanc() -> Iterator[Orthanc]:
    if not Path("/usr/share/orthanc/plugins/libOrthancDicomWeb.so").exists():
        missing("libOrthancDicomWeb.so is not installed (Debian package orthanc-dicomweb)")
    with orthanc_archive(limit=LIMIT, dicomweb=True) as peer:
        for content in contents():
            peer.store(content)
        yield peer


def c_find(port: int) -> CGetImageSource:
    values = {"host": "127.0.0.1", "port": port, "ae_title": ARCHIVE_TITLE}
    return CGetImageSource(CGetSource.model_validate(values))


@pytest.fixture(params=["qido", "c-find"])
def limited(request: pytest.FixtureRequest, orthanc: Orthanc) -> Iterator[ImageSource]:
    """Orthanc by each protocol."""
    if request.param == "qido":
        with web_client(f"http://127.0.0.1:{orthanc.http_port}/dicom-web/") as client:
            yield client
    else:
        with closing(c_find(orthanc.dicom_port)) as source:
            yield source


@pytest.fixture(scope="module")
def dcmtk() -> Iterator[ImageSource]:
    with DcmQrScp() as peer:
        peer.store(*contents())
        with closing(c_find(peer.dicom_port)) as source:
            yield source


def test_a_day_over_the_limit_of_orthanc_is_found_whole_and_named(limited: ImageSource) -> None:
    (step,) = plan_dates(limited, SETTINGS, DAY, WANTED)
    assert {item.study_instance_uid for item in step.series} == ALL
    assert "20190102" in [doubt.day for doubt in step.doubts]


@pytest.mark.parametrize(("value", "outcome", "studies"), ROWS)
def test_a_row_of_orthanc_matches_its_own_accession_number_alone(
    limited: ImageSource, value: str, outcome: str, studies: list[str]
) -> None:
    (step,) = plan_rows(limited, SETTINGS, [ListedStudy(2, "accession", value)], WANTED)
    (row,) = step.rows
    assert (row.outcome, sorted(row.study_instance_uids)) == (outcome, studies)


@pytest.mark.parametrize("maximum", [500, LIMIT])
def test_dcmqrscp_which_ignores_modalities_in_study_is_filtered(
    dcmtk: ImageSource, maximum: int
) -> None:
    settings = SETTINGS.model_copy(update={"maximum_results": maximum})
    (step,) = plan_dates(dcmtk, settings, DAY, WANTED)
    assert {item.study_instance_uid for item in step.series} == ALL
    assert {item.modality for item in step.series} == {"DX"}


@pytest.mark.parametrize(("value", "outcome", "studies"), ROWS)
def test_a_row_of_dcmqrscp_matches_its_own_accession_number_alone(
    dcmtk: ImageSource, value: str, outcome: str, studies: list[str]
) -> None:
    (step,) = plan_rows(dcmtk, SETTINGS, [ListedStudy(2, "accession", value)], WANTED)
    (row,) = step.rows
    assert (row.outcome, sorted(row.study_instance_uids)) == (outcome, studies)

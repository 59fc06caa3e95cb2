"""A campaign over the archive on a whole server: a release that no setting names reads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydicom import Dataset, dcmread

from hilum.domain import ResultState
from testing.serving import Hilum
from tests.support.machine.waiting import wait_for
from tests.support.models.releases import Tiny, make_tiny
from tests.support.models.versions import add_version
from tests.support.server.campaigns import await_end, hilum, releases_of, rows
from tests.support.server.installation import (
    START_SECONDS,
    detail,
    hilum_with,
    save_all,
    send_to,
    small_study,
)

pytestmark = pytest.mark.slow
STUDIES = 3
ON_THEIR_WAY = "SELECT id FROM delivery WHERE state IN ('due', 'leased')"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    made = make_tiny(tmp_path_factory.mktemp("tiny"))
    add_version(made, "5")
    add_version(made, "6")
    return made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny) -> Iterator[Hilum]:
    folder = tmp_path_factory.mktemp("campaign")
    destinations = {
        "out": {
            "kind": "folder",
            "path": str(folder / "out"),
            "documents": ["sr"],
            "accept_untrained": True,
        }
    }
    with hilum_with(folder, tiny, destinations, quiet_seconds=0.5) as running:
        running.wait_until_ready(START_SECONDS)
        yield running


@pytest.fixture(scope="module")
def studies(server: Hilum, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Studies that were reported live."""
    found = []
    for number in range(STUDIES):
        images = small_study(seed=100 + number)
        found.append(str(images[0].StudyInstanceUID))
        assert send_to(server, save_all(tmp_path_factory.mktemp("sent"), images)).is_ok
    wait_for(lambda: all(is_settled(server, uid) for uid in found), what="live results")
    # A report is made before it is delivered, and the folder is compared with itself later.
    wait_for(lambda: not rows(server, ON_THEIR_WAY), what="live reports in the folder")
    return found


def is_settled(server: Hilum, uid: str) -> bool:
    """Both images are read and reported."""
    study = detail(server, uid)
    is_whole = len(study.get("images", [])) == 2 and study["state"] == "closed"
    return is_whole and releases_of(server, uid) == ["tiny@1"]


def test_a_release_of_no_setting_reads_the_archive_and_delivers_nothing(
    server: Hilum, studies: list[str]
) -> None:
    hilum(server, "campaign", "plan", "again", "--archive")
    delivered = sorted(path.name for path in Path(server.folder / "out").rglob("*.dcm"))

    hilum(server, "campaign", "run", "again", "--release", "tiny@5")
    await_end(server, "again", 120)

    both = [["tiny@1", "tiny@5"]] * STUDIES
    # The results are there at the end; their documents are made in their own time.
    assert [releases_of(server, uid, tuple(ResultState)) for uid in studies] == both
    wait_for(lambda: [releases_of(server, uid) for uid in studies] == both, what="reports")
    assert sorted(path.name for path in Path(server.folder / "out").rglob("*.dcm")) == delivered


def test_a_campaign_that_delivers_makes_a_series_of_its_own(
    server: Hilum, studies: list[str]
) -> None:
    hilum(server, "campaign", "plan", "delivered", "--archive")
    hilum(server, "campaign", "run", "delivered", "--release", "tiny@6", "--deliver")
    wait_for(lambda: len(reports(server, "tiny@6")) == STUDIES, 120, what="reports in the folder")

    for report in reports(server, "tiny@6"):
        assert report.SeriesNumber == 9003
        assert report.SeriesDescription.startswith("AI re-read ")
    assert {report.StudyInstanceUID for report in reports(server, "tiny@6")} == set(studies)


def reports(server: Hilum, release: str) -> list[Dataset]:
    """The reports by a release in the destination's folder."""
    files = Path(server.folder / "out").rglob("*.dcm")
    found = [dcmread(path) for path in files]
    return [report for report in found if release in report.SeriesDescription]

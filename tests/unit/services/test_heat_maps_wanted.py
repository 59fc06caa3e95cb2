"""When a heat map is made: somebody who gets the result asks for it, the profile allows it, and there are maps."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hilum.domain import Advance, Document, Outcome, ReadingJob, ReadingState
from hilum.processes.heat_maps import HeatMaps
from hilum.settings import DicomDestination, Report, Settings, Site
from hilum.store.ledger import Ledger
from hilum.store.migrations.migrate import migrate
from testing.phantoms.phantom import make_study
from tests.support.ledger.street import Clock, Street
from tests.support.reports.results import LEASE, make_release, report_of


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    migrate(url)
    opened = Ledger(url, Clock())
    yield opened
    opened.close()


def settings(
    tmp_path: Path, *documents: str, intended_use: str = "research", accept_untrained: bool = False
) -> Settings:
    destination = DicomDestination(documents=documents, accept_untrained=accept_untrained)
    return Settings(
        site=Site(state_dir=tmp_path),
        report=Report(intended_use=intended_use),
        destinations={"pacs": destination},
    )


def job_of(release, **changes):
    job = report_of(make_study(1, "CR", ("PA",), rows=32, columns=32), release)
    return dataclasses.replace(job, result=dataclasses.replace(job.result, **changes))


def is_wanted(chosen: Settings, ledger: Ledger, job, release) -> bool:
    takers = [item for item in chosen.destinations.values() if "heatmap" in item.documents]
    return HeatMaps(chosen, ledger).is_wanted(job, release, takers)


WITH_MAPS = make_release(has_cam=True)
UNTRAINED = make_release(has_cam=True, is_trained=False)
EARLIER = Document(
    "heatmap", "application/dicom", b"", "1.2.840.10008.5.1.4.1.1.7", "2.25.1", "2.25.2"
)


def test_a_destination_that_asks_gets_one(tmp_path, ledger):
    assert is_wanted(settings(tmp_path, "sr", "heatmap"), ledger, job_of(WITH_MAPS), WITH_MAPS)


def test_by_default_nobody_asks(tmp_path, ledger):
    assert "heatmap" not in DicomDestination().documents
    assert not is_wanted(settings(tmp_path, "sr"), ledger, job_of(WITH_MAPS), WITH_MAPS)


def test_never_under_the_triage_profile(tmp_path, ledger, capsys):
    chosen = settings(tmp_path, "sr", "heatmap", intended_use="triage", accept_untrained=True)
    assert not is_wanted(chosen, ledger, job_of(WITH_MAPS), WITH_MAPS)
    assert not is_wanted(chosen, ledger, job_of(UNTRAINED), UNTRAINED)
    captured = capsys.readouterr()
    assert "heat_maps_suppressed" in captured.out + captured.err


def test_untrained_weights_only_for_who_takes_them(tmp_path, ledger):
    job = job_of(UNTRAINED)
    assert not is_wanted(settings(tmp_path, "heatmap"), ledger, job, UNTRAINED)
    assert is_wanted(settings(tmp_path, "heatmap", accept_untrained=True), ledger, job, UNTRAINED)


def test_not_without_maps_and_not_without_an_analysed_image(tmp_path, ledger):
    chosen = settings(tmp_path, "heatmap")
    assert not is_wanted(chosen, ledger, job_of(make_release()), make_release())
    assert not is_wanted(chosen, ledger, job_of(WITH_MAPS, outcome=Outcome.NOT_ANALYSED), WITH_MAPS)


@pytest.mark.parametrize("outcome", [Outcome.ANALYSED, Outcome.NOT_ANALYSED])
@pytest.mark.parametrize("release", [WITH_MAPS, make_release()])
def test_one_that_may_lie_somewhere_is_not_left_there(tmp_path, ledger, outcome, release):
    job = dataclasses.replace(job_of(release, outcome=outcome), predecessors={"heatmap": EARLIER})
    assert is_wanted(settings(tmp_path, "heatmap"), ledger, job, release)
    assert not is_wanted(settings(tmp_path, "sr"), ledger, job, release)
    assert not is_wanted(settings(tmp_path, "heatmap", intended_use="triage"), ledger, job, release)


def test_maps_come_from_the_ledger_and_files_from_the_archive(tmp_path, ledger):
    street = Street(ledger, Clock())
    street.receive("1.2.3", 1, 2)
    cam = np.arange(14 * 49, dtype=np.float16).tobytes()
    jobs = [job for job in street.claim("analyse") if isinstance(job, ReadingJob)]
    first, second = (
        Advance(ReadingState.ANALYSED, {"logits": [0.5, 1.5], "cam": content})
        for content in (cam, None)
    )
    ledger.advance("analyse", [(jobs[0].lease, first), (jobs[1].lease, second)])
    found = ledger.activation_maps("1.2.3", jobs[0].release)
    assert list(found) == [jobs[0].instance.sop_instance_uid]
    assert (found["1.2.3.1"].logits, found["1.2.3.1"].cam) == ((0.5, 1.5), cam)
    assert ledger.activation_maps("1.2.3", "other@1") == {}


def test_an_image_without_a_file_has_no_path(tmp_path, ledger):
    maps = HeatMaps(settings(tmp_path, "heatmap"), ledger)
    job = job_of(WITH_MAPS)
    place = tmp_path / "archive" / "1.dcm"
    assert [item.path for item in asyncio.run(maps.sources(job)).pictures.values()] == [None]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"pixels")
    assert [item.path for item in asyncio.run(maps.sources(job)).pictures.values()] == [place]


def test_after_a_process_died_it_is_not_tried_again(tmp_path, ledger):
    maps = HeatMaps(settings(tmp_path, "heatmap"), ledger)
    job = dataclasses.replace(job_of(WITH_MAPS), lease=dataclasses.replace(LEASE, lapses=1))
    assert asyncio.run(maps.sources(job)).obstacle

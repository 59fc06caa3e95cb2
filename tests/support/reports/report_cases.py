"""Studies with their structured reports, one of each kind, for the validators."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from pydicom import dcmread, dcmwrite
from pydicom.dataset import Dataset

from hilum.domain import Document
from hilum.report import build_documents
from testing.phantoms.phantom import make_study, save
from tests.support.reports.results import (
    CONTEXT,
    instance_of,
    make_release,
    reading_of,
    report_job,
    report_of,
    results_of,
    study_job,
)

TEMPERATURE = {"method": "temperature", "temperature": 1.3}


def written(folder: Path, datasets: list[Dataset], document: Document) -> tuple[Path, list[Path]]:
    """The report and its sources as files."""
    sources = [
        save(dataset, folder / f"source{number}.dcm") for number, dataset in enumerate(datasets)
    ]
    report = folder / "report.dcm"
    report.write_bytes(document.content)
    return report, sources


def built(datasets: list[Dataset], release, used=None) -> Document:
    return build_documents(report_of(datasets, release, used), release, CONTEXT, ("sr",))[0]


def superseding(datasets: list[Dataset], release) -> Document:
    """The second revision, after the last image came late."""
    early, late = datasets[:1], datasets
    first = report_of(early, release)
    before = build_documents(first, release, CONTEXT, ("sr",))[0]
    instances = [instance_of(dataset, number) for number, dataset in enumerate(late, 1)]
    job = study_job(
        instances,
        [reading_of(item, release) for item in instances],
        [dataclasses.replace(first.result, id=1)],
    )
    (result,) = results_of(job, release)
    return build_documents(
        report_job(instances, result, {"sr": before}), release, CONTEXT, ("sr",)
    )[0]


CASES: dict[str, Callable[[], tuple[list[Dataset], Document]]] = {}


def case(name: str, modality: str, views: tuple[str, ...], release, used=None, **overrides) -> None:
    def make() -> tuple[list[Dataset], Document]:
        datasets = make_study(11, modality, views, rows=32, columns=32, overrides=overrides)
        return datasets, built(datasets, release, used)

    CASES[name] = make


TWO = ("PA", "LATERAL")
case("dx_untrained_with_unused_lateral", "DX", TWO, make_release(is_trained=False), [True, False])
case("cr_two_images", "CR", TWO, make_release())
case("sc_calibrated", "SC", ("PA",), make_release(calibration=TEMPERATURE))
case(
    "dx_calibrated_two_images_mean",
    "DX",
    TWO,
    make_release(calibration=TEMPERATURE, aggregation="mean"),
)
case("cr_first_frontal", "CR", TWO, make_release(aggregation="first_frontal"))
case("sc_untrained", "SC", TWO, make_release(is_trained=False))
case(
    "cr_without_orientation_and_spacing",
    "CR",
    ("PA",),
    make_release(),
    PatientOrientation=None,
    ImagerPixelSpacing=None,
)
case("dx_for_another_time_zone", "DX", ("PA",), make_release(), TimezoneOffsetFromUTC="-0330")


def _superseding() -> tuple[list[Dataset], Document]:
    datasets = make_study(12, "CR", TWO, rows=32, columns=32)
    return datasets, superseding(datasets, make_release(calibration=TEMPERATURE))


CASES["cr_superseding"] = _superseding


def rewritten(report: Path, damage: Callable[[Dataset], object]) -> None:
    document = dcmread(report)
    damage(document)
    dcmwrite(report, document)

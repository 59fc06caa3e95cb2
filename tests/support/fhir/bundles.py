"""Bundles of results, one of each kind."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydicom.dataset import Dataset

from hilum.domain import Document, ReadingState, Release, ReportJob
from hilum.report import ReportContext, build_documents
from testing.fhir_server import resources_of
from testing.phantoms.phantom import make_study
from tests.support.reports.report_cases import TEMPERATURE
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

Bundle = dict[str, Any]
HOSTILE: Final = 'Mül"ler\\^<script>\u2028&|${a}'


def bundle_of(document: Document) -> Bundle:
    """The content of a document."""
    found: Bundle = json.loads(document.content)
    return found


def of_kind(bundle: Bundle, kind: str) -> list[Any]:
    """The resources of a type."""
    return [item for item in resources_of(bundle) if item["resourceType"] == kind]


def one(bundle: Bundle, kind: str) -> Any:
    """The only resource of a type."""
    (found,) = of_kind(bundle, kind)
    return found


def images(views: tuple[str, ...] = ("PA",), **changes: object) -> list[Dataset]:
    """The images of a study, with these values in their headers."""
    made = make_study(7, views=views, rows=32, columns=32)
    for image in made:
        for keyword, value in changes.items():
            setattr(image, keyword, value)
    return made


def built(
    job: ReportJob, release: Release | None = None, context: ReportContext = CONTEXT
) -> Document:
    """The Bundle of a result."""
    (document,) = build_documents(job, release or make_release(), context, ("fhir",))
    return document


def analysed(**changes: object) -> Bundle:
    """Of a study with these values in its headers."""
    return bundle_of(built(report_of(images(**changes), make_release())))


def calibrated() -> Bundle:
    """Of a release whose numbers are probabilities."""
    release = make_release(calibration=TEMPERATURE)
    return bundle_of(built(report_of(images(), release), release))


def not_analysed() -> Bundle:
    """Of a study whose only image could not be read."""
    release = make_release()
    instance = instance_of(images()[0])
    reading = reading_of(
        instance,
        release,
        state=ReadingState.NOT_ANALYSED,
        logits=None,
        reason="unsupported_transfer_syntax",
    )
    (result,) = results_of(study_job([instance], [reading]), release)
    return bundle_of(built(report_job([instance], result), release))


def revised() -> tuple[Bundle, Bundle]:
    """Of a study before its last image, and after it."""
    release = make_release()
    both = images(("PA", "AP"))
    first = report_of(both[:1], release)
    before = built(first, release)
    instances = [instance_of(dataset, number) for number, dataset in enumerate(both, 1)]
    readings = [reading_of(item, release) for item in instances]
    job = study_job(instances, readings, [dataclasses.replace(first.result, id=1)])
    (result,) = results_of(job, release)
    after = built(report_job(instances, result, {"fhir": before}), release)
    return bundle_of(before), bundle_of(after)


CASES: Final[Mapping[str, Callable[[], Bundle]]] = {
    "analysed": analysed,
    "calibrated": calibrated,
    "not analysed": not_analysed,
    "revised": lambda: revised()[1],
    "no patient, order or date": lambda: analysed(
        PatientID="", AccessionNumber="", StudyDate="", StudyTime=""
    ),
    "issuer, zone and a hostile number": lambda: analysed(
        PatientID=HOSTILE,
        AccessionNumber="A|B&c=1",
        IssuerOfPatientID="Clinic & Sons",
        TimezoneOffsetFromUTC="+0530",
        StudyTime="093005.123",
        SpecificCharacterSet="ISO_IR 192",
    ),
    "untrained": lambda: bundle_of(
        built(report_of(images(), make_release(is_trained=False)), make_release(is_trained=False))
    ),
}

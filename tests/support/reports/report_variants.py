"""Every variant of a report: modality, number of images, what their headers hold, what was found, what it replaces."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydicom.dataset import Dataset

from hilum.domain import Document, ImageReason, Reading, ReadingState, Release, ReportJob
from testing.phantoms.phantom import make_instance
from tests.support.reports.reporting import sent
from tests.support.reports.results import (
    LOGITS,
    instance_of,
    lateral_of,
    make_release,
    reading_of,
    report_job,
    results_of,
    study_job,
)

TEMPERATURE = {"method": "temperature", "temperature": 1.3}
NEGATIVE = tuple(-abs(value) - 1 for value in LOGITS)
OPTIONAL = (
    "PatientOrientation",
    "ImagerPixelSpacing",
    "PatientAge",
    "StudyDescription",
    "Manufacturer",
    "InstitutionName",
)
READING = Callable[[Any, Release], Reading]


@dataclass(frozen=True)
class Variant:
    """What goes into one report.

    `without`: keywords that the images lack. `readings`: what became of the images, the last
    repeated.
    """

    modality: str
    images: int = 1
    readings: tuple[READING, ...] = (reading_of,)
    without: tuple[str, ...] = ()
    release: Release = dataclasses.field(default_factory=make_release)
    is_second: bool = False


@dataclass(frozen=True)
class Built:
    """A report with what it was made from."""

    images: list[Dataset]
    job: ReportJob
    sr: Document
    content: dict[str, Any]


def negative(instance: Any, release: Release) -> Reading:
    return reading_of(instance, release, logits=NEGATIVE)


def constant(instance: Any, release: Release) -> Reading:
    return reading_of(
        instance,
        release,
        state=ReadingState.NOT_ANALYSED,
        logits=None,
        reason=ImageReason.CONSTANT_IMAGE.value,
    )


def doubted(instance: Any, release: Release) -> Reading:
    return reading_of(instance, release, detail="lossy_compressed, few_levels")


def refused(instance: Any, release: Release) -> Reading:
    reason = ImageReason.IMPLAUSIBLE_PIXELS.value
    return reading_of(
        instance,
        release,
        state=ReadingState.NOT_ANALYSED,
        logits=None,
        reason=reason,
        detail="few_levels, saturated",
    )


UNTRAINED, CALIBRATED = (
    make_release(is_trained=False),
    make_release(calibration=TEMPERATURE, aggregation="mean"),
)
FIRST = make_release(aggregation="first_frontal")
VARIANTS = {
    f"{modality}_{images}_{'without' if without else 'with'}_optional": Variant(
        modality, images, without=without
    )
    for modality in ("CR", "DX", "SC")
    for images in (1, 2, 3, 4)
    for without in ((), OPTIONAL)
}
for _modality in ("CR", "DX", "SC"):
    VARIANTS |= {
        f"{_modality}_all_negative": Variant(_modality, 2, (negative,)),
        f"{_modality}_mixed": Variant(_modality, 3, (reading_of, lateral_of, constant)),
        f"{_modality}_doubted": Variant(_modality, 3, (reading_of, doubted, refused)),
        f"{_modality}_untrained": Variant(_modality, 1, release=UNTRAINED),
        f"{_modality}_calibrated": Variant(_modality, 2, release=CALIBRATED),
        f"{_modality}_first_frontal": Variant(_modality, 3, release=FIRST),
        f"{_modality}_not_analysed": Variant(_modality, 2, (lateral_of, constant)),
        f"{_modality}_superseding": Variant(_modality, 2, is_second=True),
        f"{_modality}_superseded_by_not_analysed": Variant(
            _modality, 2, (constant,), is_second=True, without=OPTIONAL
        ),
    }
GOLDEN = ("CR_mixed", "DX_not_analysed", "SC_doubted")


def make(variant: Variant) -> Built:
    views = ("PA", "LATERAL", "PA", "AP")
    overrides = dict.fromkeys(variant.without)
    images = [
        make_instance(
            21,
            views[number],
            modality=variant.modality,
            rows=24,
            columns=24,
            overrides=overrides,
            number=number + 1,
        )  # type: ignore[arg-type]
        for number in range(variant.images)
    ]
    for number, image in enumerate(images):  # the generator derives UIDs from the view
        image.SeriesInstanceUID = f"{image.SeriesInstanceUID[:50]}.{number}"
        image.SOPInstanceUID = image.file_meta.MediaStorageSOPInstanceUID = (
            f"{image.SOPInstanceUID[:50]}.{number}"
        )
    instances = [instance_of(image, number) for number, image in enumerate(images, 1)]
    readings = [
        (*variant.readings, *[variant.readings[-1]] * 4)[number] for number in range(len(images))
    ]
    ended = [
        reading(instance, variant.release)
        for reading, instance in zip(readings, instances, strict=True)
    ]
    before = first_report(instances[:1], variant.release) if variant.is_second else None
    current = [dataclasses.replace(before[0].result, id=1)] if before else []
    (result,) = results_of(study_job(instances, ended, current), variant.release)
    job = report_job(instances, result, {"sr": before[1]} if before else {})
    sr, plain = sent(job, variant.release)
    return Built(images, job, sr, json.loads(plain.content))


def first_report(instances: Sequence[Any], release: Release) -> tuple[ReportJob, Document]:
    (result,) = results_of(
        study_job(instances, [reading_of(item, release) for item in instances]), release
    )
    job = report_job(instances, result)
    return job, sent(job, release, ("sr",))[0]

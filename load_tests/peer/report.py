"""The peer's report: a Comprehensive 3D SR (TID 1500) with a measurement group for each label, built by highdicom for each study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import highdicom as hd
from highdicom import sr
from pydicom.dataset import Dataset
from pydicom.sr.codedict import codes
from pydicom.sr.coding import Code
from pydicom.uid import generate_uid

_DEVICE_UID = generate_uid(entropy_srcs=["load_tests.peer"])
_IMAGING_PROCEDURE = Code("363679005", "SCT", "Imaging procedure")
_SERIES_NUMBER = 9001


@dataclass(frozen=True, slots=True)
class Label:
    """One output of the network: its key, and its code (value, scheme, meaning)."""

    key: str
    code: tuple[str, str, str]


def build(images: Sequence[Dataset], labels: Sequence[Label], scores: Sequence[float]) -> Dataset:
    """The report on one study; `images` are its source images, the first gives patient and study."""
    groups = [_group(label, score, images) for label, score in zip(labels, scores, strict=True)]
    content = sr.MeasurementReport(
        observation_context=sr.ObservationContext(observer_device_context=_observer()),
        procedure_reported=_IMAGING_PROCEDURE,
        imaging_measurements=groups,
        title=codes.DCM.ImagingMeasurementReport,
    )
    report: Dataset = sr.Comprehensive3DSR(
        evidence=images,
        content=content[0],
        series_instance_uid=generate_uid(),
        series_number=_SERIES_NUMBER,
        sop_instance_uid=generate_uid(),
        instance_number=1,
        manufacturer="Peer",
        is_complete=True,
        is_final=False,
        is_verified=False,
        specific_character_set="ISO_IR 192",
        series_description="AI findings (unverified)",
    )
    return report


def scores_in(report: Dataset) -> Mapping[str, float]:
    """Tracking Identifier → score in [0, 1], of any TID 1500 report.

    Percents are divided by 100.
    """
    return dict(_score(group) for group in _walk(report) if _name(group) == "Measurement Group")


def _observer() -> sr.ObserverContext:
    identity = sr.DeviceObserverIdentifyingAttributes(
        uid=hd.UID(_DEVICE_UID), name="peer", manufacturer_name="Peer", model_name="DenseNet-121"
    )
    return sr.ObserverContext(
        observer_type=codes.DCM.Device, observer_identifying_attributes=identity
    )


def _group(
    label: Label, score: float, images: Sequence[Dataset]
) -> sr.MeasurementsAndQualitativeEvaluations:
    certainty = sr.Measurement(
        name=codes.DCM.CertaintyOfFinding,
        value=round(100 * float(score), 4),
        unit=codes.UCUM.Percent,
    )
    algorithm = sr.AlgorithmIdentification(
        name="DenseNet-121", version="1", family=codes.DCM.ArtificialIntelligence
    )
    return sr.MeasurementsAndQualitativeEvaluations(
        tracking_identifier=sr.TrackingIdentifier(uid=hd.UID(generate_uid()), identifier=label.key),
        finding_type=Code(*label.code),
        algorithm_id=algorithm,
        measurements=[certainty],
        source_images=[
            sr.SourceImageForMeasurementGroup(image.SOPClassUID, image.SOPInstanceUID)
            for image in images
        ],
    )


def _walk(item: Dataset) -> list[Dataset]:
    return [found for child in item.get("ContentSequence", []) for found in (child, *_walk(child))]


def _name(item: Dataset) -> str:
    sequence = item.get("ConceptNameCodeSequence")
    return str(sequence[0].CodeMeaning) if sequence else ""


def _score(group: Dataset) -> tuple[str, float]:
    key = next(
        item.TextValue for item in group.ContentSequence if _name(item) == "Tracking Identifier"
    )
    number = next(
        item.MeasuredValueSequence[0] for item in group.ContentSequence if item.ValueType == "NUM"
    )
    is_percent = number.MeasurementUnitsCodeSequence[0].CodeValue == "%"
    return str(key), float(number.NumericValue) / (100 if is_percent else 1)

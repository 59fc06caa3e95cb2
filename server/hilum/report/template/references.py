"""Hierarchical SOP Instance Reference Macro (PS3.3 C.17.2.1).

Images and documents by study and series.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from pydicom.dataset import Dataset

from hilum.report.template.cut import Template, cut_item
from hilum.report.template.values import uid


class Reference(NamedTuple):
    """The identifiers of one SOP Instance of the study."""

    sop_class_uid: str
    sop_instance_uid: str
    series_instance_uid: str


@dataclass(frozen=True, slots=True)
class References:
    """The items of the macro: study, series, instance."""

    study: Template
    series: Template
    instance: Template

    def fill(self, study_instance_uid: str, references: Iterable[Reference]) -> bytes:
        """The study's item; series in the order of their first instance, each instance once."""
        series: dict[str, dict[str, bytes]] = {}
        for item in references:
            instances = series.setdefault(item.series_instance_uid, {})
            instances[item.sop_instance_uid] = self.instance.fill(
                uid(item.sop_class_uid), uid(item.sop_instance_uid)
            )
        items = [
            self.series.fill(b"".join(instances.values()), uid(series_uid))
            for series_uid, instances in series.items()
        ]
        return self.study.fill(b"".join(items), uid(study_instance_uid))


def compile_references(study: Dataset) -> References:
    """From an item of Current Requested Procedure Evidence Sequence."""
    (series, *_) = study.ReferencedSeriesSequence
    (instance, *_) = series.ReferencedSOPSequence
    names = {"ReferencedSOPClassUID": "class", "ReferencedSOPInstanceUID": "instance"}
    return References(
        Template(
            cut_item(study, {"ReferencedSeriesSequence": "series", "StudyInstanceUID": "uid"}),
            "series",
            "uid",
        ),
        Template(
            cut_item(series, {"ReferencedSOPSequence": "instances", "SeriesInstanceUID": "uid"}),
            "instances",
            "uid",
        ),
        Template(cut_item(instance, names), "class", "instance"),
    )

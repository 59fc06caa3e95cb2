"""All of a document but its tree.

It holds the constants, the elements of the result, and those inherited from an image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from pydicom.dataset import Dataset

from hilum.report.headers.header import STUDY
from hilum.report.headers.inherited import INHERITED, tags
from hilum.report.template.cut import Template, before_value, cut
from hilum.report.template.extract import Extract
from hilum.report.template.writing import encoded
from hilum_preprocessing.header.part10 import beginning_of

_INHERITED: Final = tags(INHERITED) - {STUDY}
# The elements whose values, or items, are the result's.
_GAPS: Final = (
    "InstanceCreationDate",
    "InstanceCreationTime",
    "SOPInstanceUID",
    "ContentDate",
    "ContentTime",
    "TimezoneOffsetFromUTC",
    "SeriesDescription",
    "ContributingEquipmentSequence",
    "StudyInstanceUID",
    "SeriesInstanceUID",
    "InstanceNumber",
    "PredecessorDocumentsSequence",
    "CurrentRequestedProcedureEvidenceSequence",
    "ContentSequence",
)


@dataclass(frozen=True, slots=True)
class Frame:
    """File Meta Information, the constant elements, and those of the result.

    Each is a tag, the bytes before the length, and the value.
    """

    meta: Template
    constants: Mapping[int, bytes]
    gaps: Mapping[str, tuple[int, bytes, int]]

    def fill(self, sop_instance_uid: bytes, said: Mapping[str, bytes], image: Extract) -> bytes:
        """The Part 10 file with these values of `_GAPS`; patient and study are those of `image`."""
        meta = self.meta.fill(sop_instance_uid)
        inherited = {tag: element for tag, element in image.elements.items() if tag in _INHERITED}
        elements = {**self.constants, **dict(self._said(said)), **inherited}
        return b"".join(
            [
                beginning_of(meta),
                *[elements[tag] for tag in sorted(elements)],
            ]
        )

    def _said(self, said: Mapping[str, bytes]) -> Iterable[tuple[int, bytes]]:
        for keyword, value in said.items():
            tag, before, size = self.gaps[keyword]
            yield tag, b"".join((before, len(value).to_bytes(size, "little"), value))


def compile_frame(report: Dataset) -> Frame:
    """From a report that has every element of `_GAPS`."""
    named = {keyword: report[keyword] for keyword in _GAPS}
    fast = {
        element.tag: element
        for element in report
        if element.keyword not in named and element.tag not in _INHERITED
    }
    meta = Dataset({tag: element for tag, element in report.file_meta.items() if tag.element != 0})
    return Frame(
        Template(cut(meta, {"MediaStorageSOPInstanceUID": "uid"}), "uid"),
        {int(tag): encoded([element]) for tag, element in fast.items()},
        {keyword: (int(item.tag), *before_value(item)) for keyword, item in named.items()},
    )

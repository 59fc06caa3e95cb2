"""A report as Basic Text SR (PS3.3 A.35.1), TID 2000.

A line of text for each finding, then the caveats for a reader, then the images. It is made from the
tree of the richer report, so its content is the same. This class has no numbers, codes and
measurement groups; programs find them in JSON.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from highdicom import sr
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence as DataSets
from pydicom.sr.coding import Code

from hilum.report.sr import codes
from hilum.report.sr.containers import container

_CONTAINS = sr.RelationshipTypeValues.CONTAINS
# TID 2000 takes these over: the language and the observer.
_CONTEXT = ("HAS OBS CONTEXT",)
_PURPOSES = (codes.VISUAL_EXPLANATION, codes.SOURCE_OF_MEASUREMENT)
_Key = tuple[str, str]


def to_basic_text(report: Dataset) -> None:
    """Replace the tree of `report`, which is TID 1500, by text."""
    lines = [_text(codes.FINDING, line) for line in _finding_lines(report)]
    comments = [_text(codes.COMMENT, item.TextValue) for item in _named(report, codes.COMMENT)]
    findings = container(codes.FINDINGS, [*lines, *comments, *_images(report)])
    kept = [
        item
        for item in report.ContentSequence
        if item.RelationshipType in _CONTEXT or _is(item, codes.LANGUAGE)
    ]
    report.ContentSequence = DataSets([*kept, findings])
    report.ConceptNameCodeSequence = DataSets(
        [sr.CodedConcept.from_code(codes.DIAGNOSTIC_IMAGING_REPORT)]
    )
    report.ContentTemplateSequence[0].TemplateIdentifier = "2000"


def _finding_lines(report: Dataset) -> Iterator[str]:
    """Return every finding with its decision and number, in the order of the report.

    None when the study was not analysed.
    """
    (evaluations,) = _named(report, codes.QUALITATIVE_EVALUATIONS)
    coded = _decisions(evaluations)
    worded = iter(
        [item.TextValue for item in evaluations.ContentSequence if _is(item, codes.FINDING)]
    )
    for group in _named(report, codes.MEASUREMENT_GROUP):
        found = [item for item in group.ContentSequence if _is(item, codes.FINDING)]
        finding = found[0].ConceptCodeSequence if found else None
        said = f"{_meaning(finding)}: {coded[_key(finding[0])].pop(0)}" if finding else next(worded)
        yield f"{said}. {_number(group)}"


def _decisions(evaluations: Dataset) -> dict[_Key, list[str]]:
    """Return the decisions in the order of the evaluations, by the code of the finding."""
    coded: dict[_Key, list[str]] = defaultdict(list)
    for item in evaluations.ContentSequence:
        if item.ValueType == "CODE":
            coded[_key(item.ConceptNameCodeSequence[0])].append(_meaning(item.ConceptCodeSequence))
    return coded


def _number(group: Dataset) -> str:
    item = next(item for item in group.ContentSequence if item.ValueType == "NUM")
    measured = item.MeasuredValueSequence[0]
    unit = measured.MeasurementUnitsCodeSequence[0]
    shown = "%" if unit.CodeValue == "%" else f"({unit.CodeMeaning})"
    texts = [str(text.get("TextValue", "")) for text in group.ContentSequence]
    compared = [
        text
        for beginning in ("score=", "operating_point=")
        for text in texts
        if text.startswith(beginning)
    ]
    return (
        f"{_meaning(item.ConceptNameCodeSequence)} {measured.NumericValue} {shown};"
        f" {', '.join(compared)}"
    )


def _images(report: Dataset) -> Iterator[sr.ContentItem]:
    """Return each image that the report names, once: evidence needs a reference in the tree.

    Only a measurement group has a source of measurement; the image library, which stands before the
    groups, calls each image Source. TID 2001 takes other purposes of reference than its own: CID
    7003 is a baseline.
    """
    seen = {}
    for item in _walk(report):
        if item.ValueType == "IMAGE":
            reference = item.ReferencedSOPSequence[0]
            name = next((purpose for purpose in _PURPOSES if _is(item, purpose)), codes.SOURCE)
            seen[reference.ReferencedSOPInstanceUID] = (
                name,
                reference.ReferencedSOPClassUID,
                reference.ReferencedSOPInstanceUID,
            )
    for name, *uids in seen.values():
        yield sr.ImageContentItem(name, *uids, relationship_type=_CONTAINS)


def _text(name: Code, value: str) -> sr.ContentItem:
    return sr.TextContentItem(name=name, value=value, relationship_type=_CONTAINS)


def _walk(parent: Dataset) -> Iterator[Dataset]:
    for child in parent.get("ContentSequence", []):
        yield child
        yield from _walk(child)


def _named(report: Dataset, name: Code) -> list[Dataset]:
    return [item for item in _walk(report) if _is(item, name)]


def _is(item: Dataset, name: Code) -> bool:
    sequence = item.get("ConceptNameCodeSequence")
    return bool(sequence) and _key(sequence[0]) == (name.value, name.scheme_designator)


def _key(code: Dataset) -> _Key:
    return str(code.CodeValue), str(code.CodingSchemeDesignator)


def _meaning(sequence: Sequence[Dataset]) -> str:
    return str(sequence[0].CodeMeaning)

"""What a structured report says, read from its bytes, in the same words as what the JSON document says: they must be equal."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final

from pydicom.dataset import Dataset

from tests.support.reports import sr_gate

PRESENCE: Final = {
    "present": ("52101004", "Present"),
    "absent": ("272519000", "Absent"),
    "undecided": ("373068000", "Undetermined"),
}


def items(document: Dataset, name: str) -> list[Dataset]:
    """All content items with this concept name."""
    return [item for item in sr_gate.walk(document) if sr_gate.name_of(item) == name]


def numbers(document: Dataset) -> list[Dataset]:
    """All NUM items."""
    return [item for item in sr_gate.walk(document) if item.get("ValueType") == "NUM"]


def said_in_json(finding: dict[str, Any]) -> tuple[Any, ...]:
    """Key, code, number and its unit, images: as the report has to say them."""
    is_private = finding["code"]["scheme"].startswith("99")
    code = None if is_private else (finding["code"]["value"], finding["code"]["scheme"])
    calibrated = finding["probability"] is not None
    number = round(finding["probability"] * 100, 4) if calibrated else finding["score"]
    name = ("111012", "%") if calibrated else ("246262008", "{uncalibrated}")
    return finding["key"], code, name, number, tuple(finding["source_sop_instance_uids"])


def said_in_group(group: Dataset) -> tuple[Any, ...]:
    """The same of one measurement group."""
    found = {sr_gate.name_of(item): item for item in group.ContentSequence}
    coded = found["121071"].ConceptCodeSequence[0] if "121071" in found else None
    code = (coded.CodeValue, coded.CodingSchemeDesignator) if coded else None
    (number,) = numbers(group)
    value = number.MeasuredValueSequence[0]
    name = (sr_gate.name_of(number), value.MeasurementUnitsCodeSequence[0].CodeValue)
    uids = [
        item.ReferencedSOPSequence[0].ReferencedSOPInstanceUID
        for item in group.ContentSequence
        if item.ValueType == "IMAGE"
    ]
    assert math.isclose(float(value.NumericValue), value.FloatingPointValue, rel_tol=1e-6)
    return found["112039"].TextValue, code, name, value.FloatingPointValue, tuple(uids)


def presence_in_json(content: dict[str, Any]) -> set[tuple[str, str]]:
    """(finding, presence) by code, or by words where the code is private."""
    said = set()
    for finding in content["findings"]:
        code, text = PRESENCE[finding["decision"]]
        is_private = finding["code"]["scheme"].startswith("99")
        said.add((finding["text"], text) if is_private else (finding["code"]["value"], code))
    return said


def presence_in_report(report: Dataset) -> set[tuple[str, str]]:
    """The same of the container Qualitative Evaluations."""
    (evaluations,) = items(report, "C0034375")
    codes = [item for item in evaluations.ContentSequence if item.ValueType == "CODE"]
    texts = [
        item.TextValue for item in evaluations.ContentSequence if sr_gate.name_of(item) == "121071"
    ]
    worded = {(text.split(": ")[0], text.split(": ")[1].split(" (")[0]) for text in texts}
    return worded | {
        (str(sr_gate.name_of(item)), item.ConceptCodeSequence[0].CodeValue) for item in codes
    }


def lines_in_json(content: dict[str, Any]) -> list[tuple[str, str, float]]:
    """(name, presence, number) of each finding, as a Basic Text SR has to say them."""
    return [_line(finding) for finding in content["findings"]]


def _line(finding: dict[str, Any]) -> tuple[str, str, float]:
    name = (
        finding["text"]
        if finding["code"]["scheme"].startswith("99")
        else finding["code"]["meaning"]
    )
    return (
        name,
        PRESENCE[finding["decision"]][1],
        float(f"{said_in_json(finding)[3]:.7g}"),
    )  # text has no Floating Point Value


def lines_in_text(report: Dataset) -> Iterator[tuple[str, str, float]]:
    """The same from the lines of a Basic Text SR."""
    for item in items(report, "121071"):
        found = re.match(
            r"(.+?): (\w+)(?: \(private code [^)]*\))?\. [A-Za-z ]+ ([-0-9.e]+) ", item.TextValue
        )
        assert found, item.TextValue
        yield found[1], found[2], float(found[3])


def measured_in_text(report: Dataset) -> set[str]:
    """Images that a Basic Text SR calls the source of a measurement."""
    return {
        item.ReferencedSOPSequence[0].ReferencedSOPInstanceUID for item in items(report, "121112")
    }

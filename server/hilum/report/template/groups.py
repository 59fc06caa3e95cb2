"""Measurement groups (TID 1501), one for each finding of a result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pydicom.dataset import Dataset

from hilum.domain import Code, Finding, Release, Result
from hilum.report import codes
from hilum.report.content import SCORE_PARAMETER, explanation, measurement_group, measurements, parameters, values_of
from hilum.report.context import HeatMap
from hilum.report.template.cutting import Part, Template, cut_item
from hilum.report.template.extract import Extract
from hilum.report.template.unusual import Unusual
from hilum.report.template.values import decimal, double, text, uid

_IMAGE = {"ReferencedSOPClassUID": "class", "ReferencedSOPInstanceUID": "instance"}
_NUMBER = {"NumericValue": "value", "FloatingPointValue": "exact"}


@dataclass(frozen=True, slots=True)
class Groups:
    """The container, a group for each label of the release, and what stands in a group. `numbers`: of an uncalibrated, a calibrated one.

    `score`: the parameter that a calibrated finding has.
    """

    container: Template
    groups: Mapping[tuple[str, Code], Template]
    numbers: tuple[Template, Template]
    score: Template
    source: Template
    explanation: Template

    def fill(self, result: Result, release: Release, images: Sequence[Extract], heat_map: HeatMap | None) -> bytes:
        """The container of all groups; nothing without findings. Raises Unusual."""
        if not result.findings:
            return b""
        sources = {image.sop_instance_uid: self._source(image) for image in images}
        return self.container.fill(b"".join([self._group(finding, result, release, sources, heat_map) for finding in result.findings]))

    def _source(self, image: Extract) -> bytes:
        return self.source.fill(uid(image.sop_class_uid), uid(image.sop_instance_uid))

    def _group(self, finding: Finding, result: Result, release: Release, sources: Mapping[str, bytes], heat_map: HeatMap | None) -> bytes:
        group = self.groups.get((finding.key, finding.code))
        if group is None:
            raise Unusual("unknown_finding")
        tracking = uid(codes.tracking_uid(result.identifiers["sr_series"], finding.key))
        used = [source for image, source in sources.items() if image in finding.source_sop_instance_uids]
        inside = b"".join([self._number(finding), *used, self._explanation(finding, heat_map)])
        point, score, preprocessing = _varying(finding, result, release)
        return group.fill(tracking, text(point), self.score.fill(text(score)) if score else b"", text(preprocessing), inside)

    def _number(self, finding: Finding) -> bytes:
        value, exact = values_of(finding)
        return self.numbers[finding.probability is not None].fill(decimal(value), double(exact))

    def _explanation(self, finding: Finding, heat_map: HeatMap | None) -> bytes:
        if heat_map is None or finding.key not in heat_map.finding_keys:
            return b""
        return self.explanation.fill(uid(heat_map.sop_class_uid), uid(heat_map.sop_instance_uid))


def compile_groups(result: Result, release: Release, image: Dataset, shown: HeatMap) -> Groups:
    """From a result with a finding of each label, on one image, with a heat map."""
    first = result.findings[0]
    whole = [measurement_group(replace(first, probability=value), result, release, [image], shown) for value in (None, 0.5)]
    return Groups(
        Template(cut_item(measurements(whole[:1]), {"ContentSequence": "groups"}), "groups"),
        {(finding.key, finding.code): _compiled(finding, result, release) for finding in result.findings},
        (_number(whole[0]), _number(whole[1])),
        Template(cut_item(_score(whole[1]), {"TextValue": "text"}), "text"),
        Template(cut_item(_typed("IMAGE", whole[0]), _IMAGE), "class", "instance"),
        Template(cut_item(explanation(shown), _IMAGE), "class", "instance"),
    )


def _number(group: Dataset) -> Template:
    return Template(cut_item(_typed("NUM", group), _NUMBER), "value", "exact")


def _typed(value_type: str, group: Dataset) -> Dataset:
    found: Dataset = next(item for item in group.ContentSequence if item.ValueType == value_type)
    return found


def _score(group: Dataset) -> Dataset:
    found: Dataset = next(item for item in group.ContentSequence if str(item.get("TextValue", "")).startswith(SCORE_PARAMETER))
    return found


def _varying(finding: Finding, result: Result, release: Release) -> tuple[str, str, str]:
    """The parameters that a release does not fix: operating point, score (empty: there is none) and preprocessing."""
    first, second, *_, last = parameters(finding, result, release)
    return first, second if finding.probability is not None else "", last


def _compiled(finding: Finding, result: Result, release: Release) -> Template:
    """A group without score, number and images; the last two stand at its end."""
    bare = replace(finding, probability=None)
    group = measurement_group(bare, result, release, [], None)
    point, _, preprocessing = _varying(bare, result, release)
    names = {point: "operating_point", preprocessing: "preprocessing"}
    inside = [part for item in group.ContentSequence if item.ValueType != "NUM" for part in _item(item, names)]
    gaps = ("tracking", "operating_point", "score", "preprocessing", "measured")
    return Template(cut_item(group, {"ContentSequence": [*inside, "measured"]}), *gaps)


def _item(item: Dataset, names: Mapping[str, str]) -> Iterable[Part]:
    named = names.get(str(item.get("TextValue")))
    yield from cut_item(item, {"UID": "tracking", **({"TextValue": named} if named else {})})
    if named == "operating_point":
        yield "score"  # an item, or nothing

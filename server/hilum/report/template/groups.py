"""Measurement groups (TID 1501), one for each finding of a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydicom.dataset import Dataset

from hilum.domain import SR, Finding, Release, Result
from hilum.report.context import HeatMap
from hilum.report.sr import codes
from hilum.report.sr.content import (
    explanation,
    measurement_group,
    measurements,
    parameters,
    values_of,
)
from hilum.report.template.cut import Template, cut_item
from hilum.report.template.extract import Extract
from hilum.report.template.unusual import Unusual
from hilum.report.template.values import decimal, double, text, uid

_IMAGE = {"ReferencedSOPClassUID": "class", "ReferencedSOPInstanceUID": "instance"}
_NUMBER = {"NumericValue": "value", "FloatingPointValue": "exact"}
_GAPS = ("tracking", "operating_point", "score", "preprocessing", "value", "exact", "images")


@dataclass(frozen=True, slots=True)
class Groups:
    """The container and its groups.

    Two groups for each label of the release, of an uncalibrated and of a calibrated finding.
    """

    container: Template
    groups: Mapping[tuple[str, ...], tuple[Template, Template]]
    source: Template
    explanation: Template

    def fill(
        self, result: Result, release: Release, images: Sequence[Extract], heat_map: HeatMap | None
    ) -> bytes:
        """The container of all groups; nothing without findings. Raises Unusual."""
        if not result.findings:
            return b""
        sources = {image.sop_instance_uid: self._source(image) for image in images}
        return self.container.fill(
            b"".join(
                [
                    self._group(finding, result, release, sources, heat_map)
                    for finding in result.findings
                ]
            )
        )

    def _source(self, image: Extract) -> bytes:
        return self.source.fill(uid(image.sop_class_uid), uid(image.sop_instance_uid))

    def _group(
        self,
        finding: Finding,
        result: Result,
        release: Release,
        sources: Mapping[str, bytes],
        heat_map: HeatMap | None,
    ) -> bytes:
        group = self.groups.get(named(finding))
        if group is None:
            raise Unusual("unknown_finding")
        tracking = uid(codes.tracking_uid(result.identifiers[SR.series], finding.key))
        used = [
            source for image, source in sources.items() if image in finding.source_sop_instance_uids
        ]
        shown = b"".join([*used, self._explanation(finding, heat_map)])
        value, exact = values_of(finding)
        said = map(text, _varying(finding, result, release))
        return group[finding.probability is not None].fill(
            tracking, *said, decimal(value), double(exact), shown
        )

    def _explanation(self, finding: Finding, heat_map: HeatMap | None) -> bytes:
        if heat_map is None or finding.key not in heat_map.finding_keys:
            return b""
        return self.explanation.fill(uid(heat_map.sop_class_uid), uid(heat_map.sop_instance_uid))


def compile_groups(result: Result, release: Release, image: Dataset, shown: HeatMap) -> Groups:
    """From a result with a finding of each label, on one image, with a heat map."""
    some = measurement_group(result.findings[0], result, release, [image], None)
    return Groups(
        Template(cut_item(measurements([some]), {"ContentSequence": "groups"}), "groups"),
        {
            named(finding): (
                _compiled(finding, None, result, release),
                _compiled(finding, 0.5, result, release),
            )
            for finding in result.findings
        },
        Template(cut_item(some.ContentSequence[-1], _IMAGE), "class", "instance"),
        Template(cut_item(explanation(shown), _IMAGE), "class", "instance"),
    )


def named(finding: Finding) -> tuple[str, ...]:
    """The parts of a finding that come from its label."""
    return finding.key, finding.code.value, finding.code.scheme, finding.code.meaning


def _varying(finding: Finding, result: Result, release: Release) -> tuple[str, str, str]:
    """The parameters that a release does not fix.

    Operating point, score (empty: there is none) and preprocessing.
    """
    first, second, *_, last = parameters(finding, result, release)
    return first, second if finding.probability is not None else "", last


def _compiled(
    finding: Finding, probability: float | None, result: Result, release: Release
) -> Template:
    """A group without images, which stand at its end."""
    sample = replace(finding, probability=probability)
    group = measurement_group(sample, result, release, [], None)
    names = dict(
        zip(
            _varying(sample, result, release),
            ("operating_point", "score", "preprocessing"),
            strict=True,
        )
    )
    inside = [part for item in group.ContentSequence for part in cut_item(item, _gaps(item, names))]
    return Template(cut_item(group, {"ContentSequence": [*inside, "images"]}), *_GAPS)


def _gaps(item: Dataset, names: Mapping[str, str]) -> Mapping[str, str]:
    said = names.get(str(item.get("TextValue")))
    return {"UID": "tracking", **_NUMBER, **({"TextValue": said} if said else {})}

"""The content tree: TID 1500 Imaging Measurement Report (PS3.16), built with highdicom.

    Imaging Measurement Report
      language, observer (the release as a device), procedure reported
      Qualitative Evaluations > finding = Present | Absent | Undetermined …, comments
      Image Library > Image Library Group > IMAGE …
      Imaging Measurements > Measurement Group (TID 1501) …
        one for each finding: number, algorithm, source images

Most readers see the tree from its top, so the decisions stand there, though their row of the
template is the last one (docs/decisions/decisions-before-measurements.md). No container is
CONTINUOUS: that is text that flows, and viewers leave the names of its items out (PS3.3 C.18.8).

Presence stands in the report-level container: older tables of TID 1501 have no row for it inside a
group. A finding without a verified code is text there, and a group without the item Finding.
Private codes in names and values make validators warn, and a code that is not SNOMED CT must not
claim to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import highdicom as hd
from highdicom import sr
from pydicom.dataset import Dataset
from pydicom.sr.coding import Code

from hilum.domain import SR, Finding, Outcome, Release, Result
from hilum.report.context import HeatMap, ReportContext
from hilum.report.numbers import certainty_of, score_of
from hilum.report.sr import codes
from hilum.report.sr.containers import container
from hilum.report.sr.image_library import image_library
from hilum.report.wording import DECISIONS, caveats, not_analysed

_CONTAINS = sr.RelationshipTypeValues.CONTAINS
SCORE_PARAMETER: Final = "score="


def content_tree(
    result: Result,
    release: Release,
    images: Sequence[Dataset],
    context: ReportContext,
    heat_map: HeatMap | None = None,
) -> Dataset:
    """The root container.

    `images` are the clean headers of the used source images, of a study that was not analysed all;
    one at least.
    """
    root: Dataset = sr.ContainerContentItem(
        name=codes.REPORT, is_content_continuous=False, template_id="1500"
    )
    said = [*_decisions(result), *map(comment, caveats(result, release, context, heat_map))]
    parts = [*frame(release, context), evaluations(said), image_library(images)]
    if groups := [
        measurement_group(finding, result, release, images, heat_map) for finding in result.findings
    ]:
        parts.append(measurements(groups))
    root.ContentSequence = sr.ContentSequence(parts)
    return root


def frame(release: Release, context: ReportContext) -> Iterator[sr.ContentItem]:
    """Return TID 1500 rows 2 to 4.

    highdicom's MeasurementReport needs a measurement, and a study that was not analysed has no
    measurement.
    """
    yield from sr.LanguageOfContentItemAndDescendants(codes.ENGLISH)
    yield from sr.ObservationContext(observer_device_context=_observer(release, context))
    yield sr.CodeContentItem(
        codes.PROCEDURE_REPORTED, codes.IMAGING_PROCEDURE, sr.RelationshipTypeValues.HAS_CONCEPT_MOD
    )


def measurements(groups: Sequence[sr.ContentItem]) -> sr.ContentItem:
    """The container of `groups`."""
    return container(codes.IMAGING_MEASUREMENTS, groups)


def _observer(release: Release, context: ReportContext) -> sr.ObserverContext:
    """Return TID 1004: the observer is the release, which runs in this installation."""
    identity = sr.DeviceObserverIdentifyingAttributes(
        uid=hd.UID(codes.device_uid(release)),
        name=release.id,
        manufacturer_name=release.manufacturer,
        model_name=release.name,
        serial_number=context.installation_serial,
    )
    return sr.ObserverContext(observer_type=codes.DEVICE, observer_identifying_attributes=identity)


def measurement_group(
    finding: Finding,
    result: Result,
    release: Release,
    images: Sequence[Dataset],
    heat_map: HeatMap | None,
) -> sr.ContentItem:
    """Return the measurements of one finding, on those of `images` that it rests on."""
    used = [image for image in images if image.SOPInstanceUID in finding.source_sop_instance_uids]
    uid = codes.tracking_uid(result.identifiers[SR.series], finding.key)
    group = sr.MeasurementsAndQualitativeEvaluations(
        tracking_identifier=sr.TrackingIdentifier(uid=hd.UID(uid), identifier=finding.key),
        finding_type=None if codes.is_private(finding) else _code(finding),
        finding_sites=[sr.FindingSite(anatomic_location=codes.CHEST)],
        algorithm_id=_algorithm(finding, result, release),
        measurements=[_number(finding)],
        source_images=[
            sr.SourceImageForMeasurementGroup(image.SOPClassUID, image.SOPInstanceUID)
            for image in used
        ],
    )
    group[0].ContinuityOfContent = "SEPARATE"  # highdicom writes CONTINUOUS
    if heat_map is not None and finding.key in heat_map.finding_keys:
        group[0].ContentSequence.append(explanation(heat_map))
    return group[0]


def explanation(heat_map: HeatMap) -> sr.ContentItem:
    """Visual explanation, as TID 1410 and 1411 have it since 2023; TID 1501 is extensible."""
    return sr.ImageContentItem(
        name=codes.VISUAL_EXPLANATION,
        referenced_sop_class_uid=heat_map.sop_class_uid,
        referenced_sop_instance_uid=heat_map.sop_instance_uid,
        relationship_type=_CONTAINS,
    )


def parameters(finding: Finding, result: Result, release: Release) -> list[str]:
    """Return the parameters that a person needs to get the same number again.

    With a calibrated probability goes the score, because the operating point is a score.
    """
    return [
        f"operating_point={'none' if finding.operating_point is None else finding.operating_point}",
        *([] if finding.probability is None else [f"{SCORE_PARAMETER}{score_of(finding)}"]),
        f"aggregation={release.aggregation}",
        f"precision={release.precision}",
        f"preprocessing={result.preprocessing_version or 'unknown'}",
    ]


def _algorithm(finding: Finding, result: Result, release: Release) -> sr.AlgorithmIdentification:
    """TID 4019."""
    return sr.AlgorithmIdentification(
        name=release.name,
        version=release.version,
        family=codes.ARTIFICIAL_INTELLIGENCE,
        parameters=parameters(finding, result, release),
    )


def values_of(finding: Finding) -> tuple[float, float]:
    """Numeric Value and Floating Point Value (PS3.3 C.18.1).

    The score, and all its digits; or a calibrated probability in percent.
    """
    if finding.probability is None:
        return score_of(finding), finding.score
    certainty = certainty_of(finding.probability)
    return certainty, certainty


def _number(finding: Finding) -> sr.Measurement:
    """Return the number of the finding: its probability, or its uncalibrated score."""
    value, exact = values_of(finding)
    name, unit = (
        (codes.SCORE, codes.UNCALIBRATED)
        if finding.probability is None
        else (codes.CERTAINTY_OF_FINDING, codes.PERCENT)
    )
    number = sr.Measurement(name=name, value=value, unit=unit)
    number[0].MeasuredValueSequence[0].FloatingPointValue = exact
    return number


def evaluations(items: Sequence[sr.ContentItem]) -> sr.ContainerContentItem:
    """Return TID 1500 row 12, which highdicom does not have.

    The decisions come first, then the caveats about them.
    """
    return container(codes.QUALITATIVE_EVALUATIONS, items)


def _decisions(result: Result) -> list[sr.ContentItem]:
    """The template wants all CODE items (row 13) before all TEXT items (row 14).

    Within each, the order of the manifest.
    """
    if result.outcome is Outcome.NOT_ANALYSED:
        return [summary(), comment(not_analysed(result))]
    coded = [presence(finding) for finding in result.findings if not codes.is_private(finding)]
    return [
        *coded,
        *(presence_in_words(finding) for finding in result.findings if codes.is_private(finding)),
    ]


def summary() -> sr.ContentItem:
    """Of a study of which no image was analysed.

    The code that CAD reports have for it (CID 6047).
    """
    return sr.CodeContentItem(
        name=codes.PROCESSING_SUMMARY,
        value=codes.NO_ALGORITHM_SUCCEEDED,
        relationship_type=_CONTAINS,
    )


def presence(finding: Finding) -> sr.ContentItem:
    """The decision as a code."""
    return sr.CodeContentItem(
        name=_code(finding), value=codes.PRESENCE[finding.decision], relationship_type=_CONTAINS
    )


def words_of(finding: Finding) -> str:
    """The decision in words."""
    return (
        f"{finding.text}: {DECISIONS[finding.decision]} (private code {finding.code.scheme}"
        f" {finding.code.value})"
    )


def presence_in_words(finding: Finding) -> sr.ContentItem:
    """The decision as text."""
    return sr.TextContentItem(
        name=codes.FINDING, value=words_of(finding), relationship_type=_CONTAINS
    )


def comment(sentence: str) -> sr.ContentItem:
    """One of `caveats`."""
    return sr.TextContentItem(name=codes.COMMENT, value=sentence, relationship_type=_CONTAINS)


def _code(finding: Finding) -> Code:
    return Code(finding.code.value, finding.code.scheme, finding.code.meaning)

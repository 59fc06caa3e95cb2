"""The content of a result sheet: sentences, rows and pictures, without a layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydicom.dataset import Dataset

from hilum.domain import SR, Decision, Finding, Outcome, Release, ReportJob, Result, SourceImage
from hilum.report.context import HeatMapSources, ReportContext
from hilum.report.headers.header import utc_offset
from hilum.report.heat_map.choice import HeatMapLeftOut, Shown, shown_on
from hilum.report.heat_map.display import grey_levels
from hilum.report.heat_map.layout import heading, resolution
from hilum.report.heat_map.panel import CAPTIONS, Panel
from hilum.report.numbers import percent, score_in_words
from hilum.report.sources import value_text
from hilum.report.sr.document_header import PRODUCT, local
from hilum.report.wording import DECISIONS, caveats, doubts_of, not_analysed
from hilum_preprocessing import InputSpec
from hilum_preprocessing.spec.placement import Placement

TITLE: Final = "AI result - NOT FOR DIAGNOSIS"
_IMAGES: Final = 4  # on one page
_FINDINGS: Final = 60  # of a release with more, those that are present come first
_LONGEST_SENTENCE: Final = 600  # characters; a study of many images would fill the page with UIDs
_SHOWN: Final = ("AI result - not for diagnosis", CAPTIONS[-1])
_NO_MAP: Final = np.zeros((1, 1), np.float32)
_UNTRAINED: Final = "UNTRAINED WEIGHTS: a technical test; the numbers mean nothing medical."


@dataclass(frozen=True, slots=True)
class FindingLine:
    """One finding as the report has it. `probability` is empty where nothing is calibrated."""

    text: str
    score: str
    probability: str
    operating_point: str
    decision: str
    is_present: bool


@dataclass(frozen=True, slots=True)
class SheetImage:
    """An image of the study: its picture, None where it cannot be shown, and words below it."""

    panel: Panel | None
    caption: str


@dataclass(frozen=True, slots=True)
class SheetContent:
    """All words and pictures of a sheet.

    `warnings` stand below the title. `reason`: why the study was not analysed. `maps`: heat maps of
    one image, with the keys of their findings and a sentence on them. `provenance`: pairs of a name
    and a value.
    """

    title: str
    subtitle: str
    warnings: tuple[str, ...]
    reason: str
    images: tuple[SheetImage, ...]
    findings: tuple[FindingLine, ...]
    remark: str
    maps: tuple[Panel, ...]
    map_keys: tuple[str, ...]
    map_note: str
    doubts: tuple[str, ...]
    notes: tuple[str, ...]
    provenance: tuple[tuple[str, str], ...]
    disclaimer: str

    @property
    def has_probabilities(self) -> bool:
        """Whether a finding has a calibrated probability."""
        return any(row.probability for row in self.findings)


def sheet_content(
    job: ReportJob,
    release: Release,
    context: ReportContext,
    sources: HeatMapSources,
    whose: Dataset,
) -> SheetContent:
    """Return the content of a result's sheet. A picture that cannot be shown becomes a sentence."""
    result = job.result
    shown = [item for item in result.source_images if item.is_used][:_IMAGES]
    images = [_image(item, result, release, sources) for item in shown]
    maps, map_keys, map_note = _maps(images, result, release, sources)
    doubts = doubts_of(result)
    said = [text for text in caveats(result, release, context) if text not in doubts]
    return SheetContent(
        title=TITLE,
        subtitle=f"{release.id}, unverified{_calibration(result)}",
        warnings=() if result.is_trained else (_UNTRAINED,),
        reason=not_analysed(result) if result.outcome is Outcome.NOT_ANALYSED else "",
        images=tuple(images),
        findings=tuple(map(_row, _listed(result.findings))),
        remark=_remark(result),
        maps=maps,
        map_keys=map_keys,
        map_note=map_note,
        doubts=tuple(_cut(text) for text in doubts),
        notes=tuple(_cut(text) for text in said if text != context.disclaimer),
        provenance=tuple(pair for pair in _provenance(job, release, context, whose) if pair[1]),
        disclaimer=context.disclaimer,
    )


def _calibration(result: Result) -> str:
    return ", uncalibrated" if result.findings and not result.is_calibrated else ""


def _cut(text: str) -> str:
    if len(text) <= _LONGEST_SENTENCE:
        return text
    return f"{text[:_LONGEST_SENTENCE]}... The structured report says the rest."


def _listed(findings: Sequence[Finding]) -> Sequence[Finding]:
    """Return the findings in the order of the report; of too many, the present ones first."""
    if len(findings) <= _FINDINGS:
        return findings
    return sorted(findings, key=lambda item: item.decision is not Decision.PRESENT)[:_FINDINGS]


def _remark(result: Result) -> str:
    """Return the sentences below the table: its rule, and how much is left out."""
    left = len(result.findings) - _FINDINGS
    is_decided = any(item.decision is not Decision.UNDECIDED for item in result.findings)
    rule = "A finding is present where its score is at or above its operating point."
    said = [rule] if is_decided else []
    said += [f"{left} more findings are in the structured report."] if left > 0 else []
    return " ".join(said)


def _row(finding: Finding) -> FindingLine:
    return FindingLine(
        finding.text,
        score_in_words(finding),
        "" if finding.probability is None else percent(finding.probability),
        "none" if finding.operating_point is None else f"{finding.operating_point:.10g}",
        DECISIONS[finding.decision],
        finding.decision is Decision.PRESENT,
    )


def _image(
    image: SourceImage, result: Result, release: Release, sources: HeatMapSources
) -> SheetImage:
    name = _name(image, result)
    try:
        grey, placement = _grey(image, release, sources)
    except HeatMapLeftOut as error:
        return SheetImage(None, f"{name}: not shown. {error.sentence}")
    return SheetImage(Panel(grey, placement, _NO_MAP, (), _SHOWN), name)


def _name(image: SourceImage, result: Result) -> str:
    """`Image 2 of 3, PA`: its number is that of the report's sentences."""
    uids = [item.sop_instance_uid for item in result.source_images]
    view = f", {image.view}" if image.view and image.view != "UNKNOWN" else ""
    return f"Image {uids.index(image.sop_instance_uid) + 1} of {len(uids)}{view}"


def _grey(
    image: SourceImage, release: Release, sources: HeatMapSources
) -> tuple[NDArray[np.uint8], Placement]:
    """Return the image as displayed, and the part that the model saw. Raises HeatMapLeftOut."""
    if sources.obstacle:
        raise HeatMapLeftOut(sources.obstacle)
    picture = sources.pictures.get(image.sop_instance_uid)
    if picture is None or picture.path is None:
        raise HeatMapLeftOut("The stored object is gone from the archive.")
    return grey_levels(
        picture.path, InputSpec.from_mapping(release.input_spec), sources.maximum_pixels
    )


def _maps(
    images: Sequence[SheetImage],
    result: Result,
    release: Release,
    sources: HeatMapSources,
) -> tuple[tuple[Panel, ...], tuple[str, ...], str]:
    """Return the heat maps of the first image that has one, their findings, and a sentence on them.

    Without any they are left out, as the heat map is: an addition, and no condition.
    """
    used = [item for item in result.source_images if item.is_used]
    for shown, image in zip(images, used, strict=False):
        panel = shown.panel
        picture = sources.pictures.get(image.sop_instance_uid)
        if panel is None or picture is None or picture.maps is None or not sources.shows_maps:
            continue
        try:
            found = shown_on(image, result, release, picture.maps)
        except HeatMapLeftOut as error:
            return (), (), f"No heat map: {error.sentence}"
        if found:
            keys = tuple(item.finding.key for item in found)
            note = _map_note(panel, found, _name(image, result))
            return _map_panels(panel, found, result), keys, note
    return (), (), ""


def _map_panels(panel: Panel, found: Sequence[Shown], result: Result) -> tuple[Panel, ...]:
    return tuple(
        Panel(panel.grey, panel.placement, item.cells, heading(item.finding, item.image, result))
        for item in found
    )


def _map_note(panel: Panel, found: Sequence[Shown], name: str) -> str:
    return (
        f"Class activation maps of {name}: {resolution(panel.placement, found[0].cells.shape)}."
        " Coloured cells raised the score; the colours are smoothed and outline no lesion. Each"
        " map has a scale of its own."
    )


def _provenance(
    job: ReportJob, release: Release, context: ReportContext, whose: Dataset
) -> Iterator[tuple[str, str]]:
    """Yield names and values; of the study those that the header of the report has."""
    result = job.result
    used = sum(image.is_used for image in result.source_images)
    created = local(result.created_at, utc_offset(whose))
    yield "Release", f"{release.id}, {release.architecture}, {release.manufacturer}"
    yield "Weights", f"sha256 {release.weights_sha256[:16]}" if release.weights_sha256 else ""
    yield "Preprocessing", result.preprocessing_version or ""
    yield "Program", f"{PRODUCT} {context.software_version}, {context.manufacturer}"
    yield "Site", context.site_name
    yield "Result", f"revision {result.revision}, {created:%Y-%m-%d %H:%M:%S %z}"
    yield "Images", f"{used} of {len(result.source_images)} analysed"
    yield "Accession number", _text(whose, "AccessionNumber")
    yield "Study date", _text(whose, "StudyDate")
    yield "Study", result.study_instance_uid
    if result.findings:
        yield "Report", result.identifiers[SR.key]


def _text(header: Dataset, keyword: str) -> str:
    """Return a value of an image. It can have any length, and a long word takes minutes to wrap."""
    return _cut(value_text(header.get(keyword)) or "")

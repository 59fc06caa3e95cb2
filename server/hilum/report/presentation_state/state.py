"""The presentation state of a result: one for the study, over all images that it can show.

A kind of document has one UID for each result. Modality LUT and polarity hold for all images of a
presentation state (PS3.3 C.11.1, C.11.6); the images of most studies agree in them. Where they do
not, the largest group of images that do is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property

from highdicom.content import PresentationLUTTransformation
from highdicom.pr import GraphicAnnotation, GrayscaleSoftcopyPresentationState
from pydicom.dataset import Dataset
from pydicom.uid import ExplicitVRLittleEndian

from hilum.domain import GSPS, Document, Outcome, Release, ReportJob, Result
from hilum.report.context import HeatMapSources, ReportContext
from hilum.report.headers.header import utc_offset
from hilum.report.heat_map.capture import stored_document
from hilum.report.heat_map.choice import HeatMapLeftOut, Shown, shown_on
from hilum.report.presentation_state.annotations import (
    LINE_LAYER,
    TEXT_LAYER,
    line_annotation,
    text_annotation,
)
from hilum.report.presentation_state.contours import FRACTION, Points, contours_of
from hilum.report.presentation_state.lines import foot_lines, head_lines
from hilum.report.presentation_state.source_image import SourceDisplay, source_display
from hilum.report.presentation_state.transforms import Ranges, add_transforms
from hilum.report.presentation_state.value_range import value_range
from hilum.report.sr.document_header import (
    PRODUCT,
    algorithm_equipment,
    local,
    name_implementation,
    settle_times,
    short,
)
from hilum.report.wording import picture_description
from hilum_preprocessing import InputSpec

_LABEL = "AI FINDINGS"
_TITLE = "AI findings"
_NOTE = (
    f"Numbered lines: where the model looked, {FRACTION:.0%} of the map's maximum; coarse, no"
    " outline of a lesion."
)
Contours = Mapping[int, Sequence[Points]]


@dataclass(frozen=True)
class Layered:
    """The inputs of a presentation state. `headers`: of the images that the report is about."""

    job: ReportJob
    release: Release
    context: ReportContext
    sources: HeatMapSources
    headers: Sequence[Dataset]

    @property
    def result(self) -> Result:
        """The result that is shown."""
        return self.job.result

    @cached_property
    def spec(self) -> InputSpec:
        """How the release prepares an image."""
        return InputSpec.from_mapping(self.release.input_spec)

    @cached_property
    def images(self) -> list[SourceDisplay]:
        """The images in one presentation state, in the order of the result."""
        stored = {instance.sop_instance_uid: instance for instance in self.job.instances}
        named = {str(header.SOPInstanceUID) for header in self.headers}
        uids = [image.sop_instance_uid for image in self.result.source_images]
        found = [source_display(stored[uid], self.spec) for uid in uids if uid in named]
        groups: list[list[SourceDisplay]] = []
        for image in (item for item in found if item is not None):
            group = next((group for group in groups if group[0].shares_with(image)), None)
            if group is None:
                groups.append([image])
            else:
                group.append(image)
        return max(groups, key=len, default=[])

    def contours(self, image: SourceDisplay) -> dict[int, list[Points]]:
        """Return the lines over an image by the number of their finding, highest score first."""
        if image.placement is None:
            return {}
        lines = {
            number: contours_of(item.cells, image.placement)
            for number, item in enumerate(self._shown(image), 1)
        }
        return {
            number: [image.stored(line) for line in found]
            for number, found in lines.items()
            if found
        }

    def numbers(self, image: SourceDisplay) -> dict[str, int]:
        """Return the numbers of the findings that have a map on an image, by their keys."""
        return {item.finding.key: number for number, item in enumerate(self._shown(image), 1)}

    def ranges(self) -> Ranges:
        """Return the range of values of those images that have no window and no VOI LUT."""
        found = {
            image.sop_instance_uid: value_range(image.sop_instance_uid, self.sources, self.spec)
            for image in self.images
            if image.voi.window is None and image.voi.lut is None
        }
        return {uid: ends for uid, ends in found.items() if ends is not None}

    def _shown(self, image: SourceDisplay) -> tuple[Shown, ...]:
        may_show = self.release.has_cam and self.sources.shows_maps
        picture = self.sources.pictures.get(image.sop_instance_uid)
        if picture is None or picture.maps is None or not may_show:
            return ()
        source = next(
            item
            for item in self.result.source_images
            if item.sop_instance_uid == image.sop_instance_uid
        )
        try:
            return shown_on(source, self.result, self.release, picture.maps)
        except HeatMapLeftOut:
            return ()


def presentation_state(layered: Layered) -> Document | None:
    """Return the document, None where there is nothing to show.

    That is a result without any image that a presentation state can show, and a study that was not
    analysed. Where a destination may have an earlier one, one that says so takes its place.
    Deterministic: the same result gives the same bytes.
    """
    job = layered.job
    is_analysed = layered.result.outcome is not Outcome.NOT_ANALYSED
    if not layered.images or not (is_analysed or GSPS.key in job.predecessors):
        return None
    referenced = [_reference(image, layered.headers[0]) for image in layered.images]
    annotations = [
        item
        for reference, image in zip(referenced, layered.images, strict=True)
        for item in _annotations(reference, image, layered)
    ]
    state = _state(layered, referenced, annotations)
    add_transforms(state, layered.images, layered.ranges())
    return stored_document(state, job, GSPS)


def _reference(image: SourceDisplay, whose: Dataset) -> Dataset:
    """Return an image as highdicom asks for it, with the patient and study of the report."""
    item = deepcopy(whose)  # elements, too: to set a value changes that of each holder
    item.SOPClassUID = image.sop_class_uid
    item.SOPInstanceUID = image.sop_instance_uid
    item.SeriesInstanceUID = image.series_instance_uid
    item.Rows = image.rows
    item.Columns = image.columns
    item.SamplesPerPixel = 1
    return item


def _of_one_size(reference: Dataset, first: Dataset) -> Dataset:
    """Return an image with this size: highdicom refuses several, the standard does not."""
    item = Dataset(reference)
    item["Rows"] = first["Rows"]
    item["Columns"] = first["Columns"]
    return item


def _annotations(
    reference: Dataset, image: SourceDisplay, layered: Layered
) -> list[GraphicAnnotation]:
    contours = layered.contours(image)
    numbers = {key: one for key, one in layered.numbers(image).items() if one in contours}
    head = head_lines(layered.result, layered.release, numbers)
    text = text_annotation(reference, head, foot_lines(layered.context, _NOTE if contours else ""))
    return [text, line_annotation(reference, image, contours)] if contours else [text]


def _state(
    layered: Layered, referenced: Sequence[Dataset], annotations: Sequence[GraphicAnnotation]
) -> GrayscaleSoftcopyPresentationState:
    result = layered.result
    context = layered.context
    whose = layered.headers[0]
    created = local(result.created_at, utc_offset(whose))
    used = {item.GraphicLayer for item in annotations}
    shape = "INVERSE" if layered.images[0].is_monochrome1 else "IDENTITY"
    description = picture_description(result, _TITLE)
    state = GrayscaleSoftcopyPresentationState(
        [_of_one_size(item, referenced[0]) for item in referenced],
        series_instance_uid=result.identifiers[GSPS.series],
        series_number=context.gsps_series_number,
        sop_instance_uid=result.identifiers[GSPS.key],
        instance_number=result.revision,
        manufacturer=short(context.manufacturer),
        manufacturer_model_name=PRODUCT,
        software_versions=short(context.software_version),
        device_serial_number=short(context.installation_serial),
        institution_name=short(context.site_name) or None,
        content_label=_LABEL,
        content_description=description,
        graphic_annotations=annotations,
        graphic_layers=[layer for layer in (TEXT_LAYER, LINE_LAYER) if layer.GraphicLayer in used],
        presentation_lut_transformation=PresentationLUTTransformation(shape),
        transfer_syntax_uid=ExplicitVRLittleEndian,
        contributing_equipment=[algorithm_equipment(result, layered.release, created)],
        specific_character_set="ISO_IR 192",
        series_description=description,
    )
    offset = utc_offset(whose)
    if offset is not None:
        state.TimezoneOffsetFromUTC = offset
    settle_times(state, created)
    state.PresentationCreationDate = state.pop("ContentDate").value
    state.PresentationCreationTime = state.pop("ContentTime").value
    state.BodyPartExamined = "CHEST"  # without it Laterality would be due (PS3.3 C.7.3.1)
    name_implementation(state, context)
    return state

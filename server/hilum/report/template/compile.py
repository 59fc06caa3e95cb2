"""From the reference builder to a template.

It takes highdicom half a second, so it is done in another process than a dispatcher's.
"""

from __future__ import annotations

from typing import Final

from highdicom._standard_utils import (
    does_iod_have_pixel_data,
    get_iod_module_map,
    get_module_attribute_map,
    get_sop_class_iod_map,
)
from pydicom import uid
from pydicom.dataset import Dataset

from hilum.domain import Release
from hilum.report.context import ReportContext
from hilum.report.headers.inherited import INHERITED
from hilum.report.headers.suppress_warnings import quietly
from hilum.report.sr.build import build
from hilum.report.sr.content import frame
from hilum.report.sr.document_header import encode
from hilum.report.template import SrTemplate
from hilum.report.template.cut import Template, cut_item
from hilum.report.template.equipment import compile_equipment
from hilum.report.template.evaluations import compile_evaluations
from hilum.report.template.extract import extract_of
from hilum.report.template.frame import compile_frame
from hilum.report.template.groups import compile_groups
from hilum.report.template.library import compile_library
from hilum.report.template.references import compile_references
from hilum.report.template.samples import Sample, samples

# SOP Classes of the listener; a test compares the two.
IMAGES: Final = (
    uid.ComputedRadiographyImageStorage,
    uid.DigitalXRayImageStorageForPresentation,
    uid.DigitalXRayImageStorageForProcessing,
    uid.SecondaryCaptureImageStorage,
)


def compile_template(release: Release, context: ReportContext) -> SrTemplate | None:
    """Return the template of a release, or None if its samples differ from the reference.

    Then it must not be used.
    """
    rich, *others = samples(release)
    with quietly():
        template = _compiled(rich, release, context)
        return template if all(_is_right(template, sample) for sample in (rich, *others)) else None


def _compiled(sample: Sample, release: Release, context: ReportContext) -> SrTemplate:
    (image,) = sample.images
    report = _reference(sample, release, context)
    assert sample.heat_map is not None
    return SrTemplate(
        release=release,
        context=context,
        sop_classes=frozenset(filter(_is_ordinary, IMAGES)),
        frame=compile_frame(report),
        equipment=compile_equipment(report),
        references=compile_references(report.CurrentRequestedProcedureEvidenceSequence[0]),
        context_items=b"".join(Template(cut_item(item)).fill() for item in frame(release, context)),
        library=compile_library(image),
        groups=compile_groups(sample.result, release, image, sample.heat_map),
        evaluations=compile_evaluations(sample.result.findings),
    )


def _reference(sample: Sample, release: Release, context: ReportContext) -> Dataset:
    report: Dataset = build(
        sample.result, release, context, sample.images, sample.before, sample.heat_map
    )
    return report


def _is_ordinary(sop_class_uid: str) -> bool:
    """Return whether highdicom copies INHERITED from an image of this SOP Class."""
    modules = get_iod_module_map()[get_sop_class_iod_map()[sop_class_uid]]
    keys = [module["key"] for module in modules if module["ie"] in ("Patient", "Study")]
    copied = {
        item["keyword"]
        for key in keys
        for item in get_module_attribute_map()[key]
        if not item["path"]
    }
    return copied == INHERITED and does_iod_have_pixel_data(sop_class_uid)


def _is_right(template: SrTemplate, sample: Sample) -> bool:
    written = template.fill(
        sample.result,
        [extract_of(image) for image in sample.images],
        sample.before,
        sample.heat_map,
    )
    return written == encode(_reference(sample, template.release, template.context))

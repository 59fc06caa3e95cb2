"""The input guard by tags: is this a chest radiograph that the specification takes? Nothing is decoded. Torch-free."""

from __future__ import annotations

import re
from typing import NamedTuple

from pydicom.dataset import Dataset
from pydicom.uid import (
    ComputedRadiographyImageStorage,
    DigitalXRayImageStorageForPresentation,
    DigitalXRayImageStorageForProcessing,
    SecondaryCaptureImageStorage,
)

from hilum_preprocessing.elements import says, word
from hilum_preprocessing.errors import Flag, NotAnalysable, Reason
from hilum_preprocessing.header import PixelHeader, require_pixel_data
from hilum_preprocessing.orientation import orientation_flags
from hilum_preprocessing.population import age_years
from hilum_preprocessing.spec import InputSpec
from hilum_preprocessing.views import View, view_of

# Secondary Capture with Modality CR or DX is the commonest public chest radiograph (RSNA, NIH): the class alone must not refuse it.
_SOP_CLASSES = {
    ComputedRadiographyImageStorage,
    DigitalXRayImageStorageForPresentation,
    DigitalXRayImageStorageForProcessing,
    SecondaryCaptureImageStorage,
}
_MODALITIES = {"CR", "DX"}
_CHEST_WORDS = {"CHEST", "THORAX"}  # PS3.16 Annex L


class Admitted(NamedTuple):
    """What was read of an image that may be analysed."""

    view: View
    header: PixelHeader


def check_tags(dataset: Dataset, spec: InputSpec) -> View:
    """The view of an image that may be analysed. Raises NotAnalysable with the first reason against it."""
    return admitted(dataset, spec).view


def admitted(dataset: Dataset, spec: InputSpec) -> Admitted:
    """The same, with the header that was read for it."""
    _check_modality(dataset)
    _check_presentation_intent(dataset, spec)
    _check_body_part(dataset)
    spec.population.check(dataset)
    view = view_of(dataset)
    if view == "LATERAL" and spec.views == "frontal_only":
        raise NotAnalysable(Reason.LATERAL_NOT_SUPPORTED, "lateral or oblique view")
    require_pixel_data(dataset)
    header = PixelHeader.of(dataset)
    header.require(rgb=spec.source.rgb, frames=spec.source.frames)
    return Admitted(view, header)


def tag_flags(dataset: Dataset, spec: InputSpec, view: View) -> tuple[str, ...]:
    """What the tags of an image that may be analysed leave in doubt. Never raises: a doubt is no refusal."""
    seen = {
        Flag.VIEW_UNKNOWN: view == "UNKNOWN",
        Flag.AGE_UNKNOWN: spec.population.minimum_age_years > 0 and age_years(dataset) is None,
        Flag.BURNED_IN_TEXT: says(dataset, "BurnedInAnnotation", "YES"),
    }
    found = (*(flag for flag, is_seen in seen.items() if is_seen), *orientation_flags(dataset, spec.source, view))
    return tuple(flag.value for flag in found)


def _check_modality(dataset: Dataset) -> None:
    modality = word(dataset, "Modality")
    if modality not in _MODALITIES:
        raise NotAnalysable(Reason.WRONG_MODALITY, "Modality is missing" if not modality else "Modality is neither CR nor DX")
    if word(dataset, "SOPClassUID") not in _SOP_CLASSES:
        raise NotAnalysable(Reason.WRONG_MODALITY, "SOP Class is none of CR, DX and Secondary Capture")


def _check_presentation_intent(dataset: Dataset, spec: InputSpec) -> None:
    """For Processing pixels are raw detector signal: no window or polarity makes them what a model was trained on (PS3.3 C.8.11.1.1.1)."""
    is_raw = word(dataset, "SOPClassUID") == DigitalXRayImageStorageForProcessing
    if spec.presentation_intent == "for_presentation" and (is_raw or word(dataset, "PresentationIntentType") == "FOR PROCESSING"):
        raise NotAnalysable(Reason.NOT_FOR_PRESENTATION, "Presentation Intent Type is FOR PROCESSING")


def _check_body_part(dataset: Dataset) -> None:
    """Empty passes: the attribute is optional, and often wrong rather than missing. "CHEST PA" passes, "CHESTABDOMEN" does not."""
    body_part = word(dataset, "BodyPartExamined")
    if body_part and not _CHEST_WORDS & set(re.split(r"[^A-Z]+", body_part)):
        raise NotAnalysable(Reason.NOT_CHEST, "Body Part Examined is neither CHEST nor THORAX")

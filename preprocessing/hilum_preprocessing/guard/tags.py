"""The input guard by tags: does the specification take this object? Torch-free.

Nothing is decoded.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pydicom.dataset import Dataset
from pydicom.uid import (
    ComputedRadiographyImageStorage,
    DigitalXRayImageStorageForPresentation,
    DigitalXRayImageStorageForProcessing,
    SecondaryCaptureImageStorage,
)

from hilum_preprocessing.errors import Flag, NotAnalysable, Reason
from hilum_preprocessing.header.body_parts import NO_WORDS, SiteWords, body_part
from hilum_preprocessing.header.elements import says, word
from hilum_preprocessing.header.pixel_header import PixelHeader, require_pixel_data
from hilum_preprocessing.header.views import View, view_of
from hilum_preprocessing.orientation import orientation_flags
from hilum_preprocessing.pictures.mark import is_picture
from hilum_preprocessing.spec.input_spec import InputSpec
from hilum_preprocessing.spec.population import age_years

# An object of these classes is a projection radiograph with any Modality: DR, RG, nothing, or a
# device's own word.
_RADIOGRAPHS: Final = frozenset(
    {
        ComputedRadiographyImageStorage,
        DigitalXRayImageStorageForPresentation,
        DigitalXRayImageStorageForProcessing,
    }
)
# A Secondary Capture may hold anything, so its Modality must name a radiograph. The commonest
# public chest radiographs (RSNA, NIH) are of that kind. DR and DRX are common words for DX. RG is
# film (PS3.3 C.7.3.1.1.1). XR is the word of HL7 orders.
_MODALITIES: Final = frozenset({"CR", "DX", "DR", "DRX", "RG", "XR"})
# Defined Terms of PS3.3 C.7.3.1.1.1 that name another kind of image; PX is a dental panoramic, IO a
# film in the mouth.
_OTHER_MODALITIES: Final = frozenset(
    {
        *(
            "BMD",
            "CT",
            "ECG",
            "ES",
            "GM",
            "IO",
            "IVOCT",
            "IVUS",
            "LS",
            "MG",
            "MR",
            "NM",
            "OCT",
            "OP",
            "OPT",
            "PT",
            "PX",
            "RF",
        ),
        *("RTDOSE", "RTIMAGE", "SEG", "SM", "SR", "TG", "US", "VA", "XA", "XC"),
    }
)


class Admitted(NamedTuple):
    """The view and the header of an image that may be analysed."""

    view: View
    header: PixelHeader


def check_tags(dataset: Dataset, spec: InputSpec, site: SiteWords = NO_WORDS) -> View:
    """The view of an image that may be analysed.

    Raises NotAnalysable with the first reason against it.
    """
    return admitted(dataset, spec, site).view


def admitted(dataset: Dataset, spec: InputSpec, site: SiteWords = NO_WORDS) -> Admitted:
    """The same, with the header that was read for it."""
    _check_modality(dataset)
    _check_presentation_intent(dataset, spec)
    _check_body_part(dataset, site)
    spec.population.check(dataset)
    view = view_of(dataset)
    if view == "LATERAL" and spec.views == "frontal_only":
        raise NotAnalysable(Reason.LATERAL_NOT_SUPPORTED, "lateral or oblique view")
    require_pixel_data(dataset)
    header = PixelHeader.of(dataset)
    header.require(rgb=spec.source.rgb, frames=spec.source.frames)
    return Admitted(view, header)


def tag_flags(
    dataset: Dataset, spec: InputSpec, view: View, site: SiteWords = NO_WORDS
) -> tuple[str, ...]:
    """Return the doubts that the tags of an analysable image leave.

    Never raises: a doubt is no refusal.
    """
    seen = {
        Flag.VIEW_UNKNOWN: view == "UNKNOWN",
        Flag.BODY_PART_UNKNOWN: body_part(dataset, site)[0] is None,
        Flag.AGE_UNKNOWN: spec.population.minimum_age_years > 0 and age_years(dataset) is None,
        Flag.PICTURE_FILE: is_picture(dataset),
        Flag.BURNED_IN_TEXT: says(dataset, "BurnedInAnnotation", "YES"),
    }
    found = (
        *(flag for flag, is_seen in seen.items() if is_seen),
        *orientation_flags(dataset, spec.source, view),
    )
    return tuple(flag.value for flag in found)


def _check_modality(dataset: Dataset) -> None:
    modality = word(dataset, "Modality")
    sop_class = word(dataset, "SOPClassUID")
    if sop_class in _RADIOGRAPHS:
        if modality in _OTHER_MODALITIES:
            raise NotAnalysable(Reason.WRONG_MODALITY, "Modality names another kind of image")
    elif sop_class != SecondaryCaptureImageStorage:
        raise NotAnalysable(
            Reason.WRONG_MODALITY, "SOP Class is none of CR, DX and Secondary Capture"
        )
    elif modality not in _MODALITIES and not is_picture(dataset):
        detail = (
            "the Modality of a Secondary Capture names no radiograph"
            if modality
            else "the Modality of a Secondary Capture is missing"
        )
        raise NotAnalysable(Reason.WRONG_MODALITY, detail)


def _check_presentation_intent(dataset: Dataset, spec: InputSpec) -> None:
    """Raises NotAnalysable for pixels that are FOR PROCESSING: raw detector signal.

    No window or polarity makes them like the training images (PS3.3 C.8.11.1.1.1).
    """
    is_raw = word(dataset, "SOPClassUID") == DigitalXRayImageStorageForProcessing
    if spec.presentation_intent == "for_presentation" and (
        is_raw or word(dataset, "PresentationIntentType") == "FOR PROCESSING"
    ):
        raise NotAnalysable(
            Reason.NOT_FOR_PRESENTATION, "Presentation Intent Type is FOR PROCESSING"
        )


def _check_body_part(dataset: Dataset, site: SiteWords) -> None:
    """An unknown body part passes, with a flag: the attribute is optional, and often empty."""
    named, where = body_part(dataset, site)
    if named == "OTHER":
        raise NotAnalysable(Reason.NOT_CHEST, f"{where} names another body part")

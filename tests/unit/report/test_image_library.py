"""What the Image Library of a report says of an image's modality."""

from __future__ import annotations

import pytest
from pydicom.dataset import Dataset
from pydicom.uid import (
    ComputedRadiographyImageStorage,
    DigitalXRayImageStorageForPresentation,
    SecondaryCaptureImageStorage,
)

from hilum.report.sr.image_library import modality


@pytest.mark.parametrize(
    ("stated", "sop_class", "code"),
    [
        ("DX", DigitalXRayImageStorageForPresentation, "DX"),
        ("CR", DigitalXRayImageStorageForPresentation, "CR"),
        ("dx", SecondaryCaptureImageStorage, "DX"),
        ("DR", DigitalXRayImageStorageForPresentation, "DX"),
        ("RG", ComputedRadiographyImageStorage, "CR"),
        (None, ComputedRadiographyImageStorage, "CR"),
        ("DR", SecondaryCaptureImageStorage, None),
    ],
)
def test_the_sop_class_says_what_a_word_of_a_device_does_not(
    stated: str | None, sop_class: str, code: str | None
) -> None:
    image = Dataset()
    image.SOPClassUID, image.Modality = sop_class, stated
    assert [item.value.value for item in modality(image)] == ([code] if code else [])

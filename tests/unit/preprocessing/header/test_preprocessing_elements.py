"""Values of a VR that the attribute does not have.

A reason of the list, and no unforeseen exception.
"""

from __future__ import annotations

from typing import Any

import pytest
from pydicom.dataelem import DataElement
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence

from hilum_preprocessing import NotAnalysable, Reason
from hilum_preprocessing.prepare import prepare
from tests.support.objects.radiograph import radiograph, ramp, spec

HUGE = int("9" * 400)
NEEDS_ALL = spec(
    "vit_imagenet_224", source={"pixel_aspect": "reject_if_not_square", "missing_voi": "reject"}
)


def with_value(keyword: str, vr: str, value: Any) -> Dataset:
    dataset = radiograph(ramp(16, 16), 12, WindowCenter="2000", WindowWidth="4000")
    dataset[keyword] = DataElement(keyword, vr, value, already_converted=True)
    return dataset


@pytest.mark.parametrize(
    ("keyword", "reason"),
    [
        ("WindowWidth", Reason.CORRUPT_HEADER),
        ("RescaleSlope", Reason.CORRUPT_HEADER),
        ("PixelSpacing", Reason.UNSUPPORTED_PIXEL_FORMAT),
    ],
)
def test_a_whole_number_beyond_all_floats(keyword: str, reason: Reason) -> None:
    with pytest.raises(NotAnalysable) as refused:
        prepare(with_value(keyword, "IS", HUGE), NEEDS_ALL)
    assert refused.value.reason is reason


@pytest.mark.parametrize("sequence", ["ModalityLUTSequence", "VOILUTSequence"])
@pytest.mark.parametrize(
    ("keyword", "vr", "value"), [("LUTData", "FD", float("inf")), ("LUTDescriptor", "IS", HUGE)]
)
def test_a_table_of_no_numbers(sequence: str, keyword: str, vr: str, value: float) -> None:
    item = Dataset()
    item.LUTDescriptor, item.LUTData = [1, 0, 16], [7]
    item[keyword] = DataElement(keyword, vr, value, already_converted=True)
    dataset = with_value(sequence, "SQ", Sequence([item]))
    del dataset.WindowCenter, dataset.WindowWidth
    with pytest.raises(NotAnalysable) as refused:
        prepare(dataset, NEEDS_ALL)
    assert refused.value.reason is Reason.CORRUPT_HEADER


def test_pixel_data_that_is_no_bytes() -> None:
    with pytest.raises(NotAnalysable) as refused:
        prepare(with_value("PixelData", "US", 7), NEEDS_ALL)
    assert refused.value.reason is Reason.CORRUPT_HEADER

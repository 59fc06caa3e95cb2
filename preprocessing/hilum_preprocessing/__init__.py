"""Chest radiographs as models were trained on them: a DICOM data set in, a tensor out. Knows nothing of servers.

    from hilum_preprocessing import InputSpec, read_file
    from hilum_preprocessing.prepare import prepare

    tensor = prepare(read_file("pa.dcm"), InputSpec.from_mapping({"recipe": "torchxrayvision_224"})).tensor

Importing this package does not load torch: `prepare_stored`, `prepare_array` and `Prepared` load it when they are first asked for.
`prepare` is imported from its module, which bears the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hilum_preprocessing.decode import DEFAULT_MAXIMUM_PIXELS, StoredValues, decode
from hilum_preprocessing.decoding import Decoding, decoding_for
from hilum_preprocessing.errors import Flag, NotAnalysable, Reason, SpecError
from hilum_preprocessing.files import read_file
from hilum_preprocessing.frames import decode_frames, reducible
from hilum_preprocessing.guard import admitted, check_tags, tag_flags
from hilum_preprocessing.header import PixelHeader
from hilum_preprocessing.pixel_guard import PixelLimits, PixelStatistics, check_pixels, look, pixel_flags
from hilum_preprocessing.recipes import RECIPES
from hilum_preprocessing.spec import InputSpec
from hilum_preprocessing.views import View, view_of

if TYPE_CHECKING:
    from hilum_preprocessing.prepare import Prepared, prepare_array, prepare_stored

__all__ = [
    "DEFAULT_MAXIMUM_PIXELS",
    "RECIPES",
    "Decoding",
    "Flag",
    "InputSpec",
    "NotAnalysable",
    "PixelHeader",
    "PixelLimits",
    "PixelStatistics",
    "Prepared",
    "Reason",
    "SpecError",
    "StoredValues",
    "View",
    "admitted",
    "check_pixels",
    "check_tags",
    "decode",
    "decode_frames",
    "decoding_for",
    "look",
    "pixel_flags",
    "prepare_array",
    "prepare_stored",
    "read_file",
    "reducible",
    "tag_flags",
    "view_of",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    if name in ("Prepared", "prepare_array", "prepare_stored"):
        from hilum_preprocessing import prepare  # noqa: PLC0415 - loads torch, which a listener must not

        return getattr(prepare, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

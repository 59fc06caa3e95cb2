"""Chest radiographs as models were trained on them: a DICOM data set in, a tensor out.

Knows nothing of servers.

    from hilum_preprocessing import InputSpec, prepare

    tensor = prepare("pa.dcm", InputSpec.from_mapping({"recipe": "torchxrayvision_224"})).tensor

Importing this package loads nothing of it; each name loads its module when it is first asked for.
So a listener, which uses `header.structure` alone, loads no codec, and torch is loaded by
`prepare`, `prepare_stored`, `prepare_array` and `Prepared` only. `decode` and `prepare` are
functions here. Their modules bear the same names: `from hilum_preprocessing.prepare import
prepare_stored` finds those, and `import hilum_preprocessing.prepare as name` binds the function.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hilum_preprocessing.codecs.frames import decode_frames, reducible
    from hilum_preprocessing.decode import DEFAULT_MAXIMUM_PIXELS, StoredValues, decode
    from hilum_preprocessing.decode_options import Decoding, decoding_for
    from hilum_preprocessing.errors import Flag, NotAnalysable, Reason, SpecError
    from hilum_preprocessing.guard.level_doubts import level_flags
    from hilum_preprocessing.guard.pixels import (
        PixelLimits,
        PixelStatistics,
        check_pixels,
        look,
        pixel_flags,
    )
    from hilum_preprocessing.guard.tags import admitted, check_tags, tag_flags
    from hilum_preprocessing.header.files import read_file
    from hilum_preprocessing.header.pixel_header import PixelHeader
    from hilum_preprocessing.header.views import View, view_of
    from hilum_preprocessing.pictures.image_input import ImageInput
    from hilum_preprocessing.prepare import Prepared, prepare, prepare_array, prepare_stored
    from hilum_preprocessing.spec.input_spec import InputSpec
    from hilum_preprocessing.spec.recipes import RECIPES

__version__ = "0.1.0"

__all__ = [
    "DEFAULT_MAXIMUM_PIXELS",
    "RECIPES",
    "Decoding",
    "Flag",
    "ImageInput",
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
    "level_flags",
    "look",
    "pixel_flags",
    "prepare",
    "prepare_array",
    "prepare_stored",
    "read_file",
    "reducible",
    "tag_flags",
    "view_of",
]


_MODULES = MappingProxyType(
    {
        **dict.fromkeys(("DEFAULT_MAXIMUM_PIXELS", "StoredValues", "decode"), "decode"),
        **dict.fromkeys(("Decoding", "decoding_for"), "decode_options"),
        **dict.fromkeys(("Flag", "NotAnalysable", "Reason", "SpecError"), "errors"),
        "read_file": "header.files",
        **dict.fromkeys(("decode_frames", "reducible"), "codecs.frames"),
        **dict.fromkeys(("admitted", "check_tags", "tag_flags"), "guard.tags"),
        "PixelHeader": "header.pixel_header",
        "level_flags": "guard.level_doubts",
        **dict.fromkeys(
            ("PixelLimits", "PixelStatistics", "check_pixels", "look", "pixel_flags"),
            "guard.pixels",
        ),
        **dict.fromkeys(("Prepared", "prepare", "prepare_array", "prepare_stored"), "prepare"),
        "ImageInput": "pictures.image_input",
        "RECIPES": "spec.recipes",
        "InputSpec": "spec.input_spec",
        **dict.fromkeys(("View", "view_of"), "header.views"),
    }
)
"""Each name, and the module that has it."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


class _Package(ModuleType):
    """Python binds a module here once it is loaded.

    `decode` and `prepare` stay the functions all the same.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _MODULES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

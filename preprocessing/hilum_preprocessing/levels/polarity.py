"""Polarity: MONOCHROME1, and the point about which levels are inverted. Torch-free.

PS3.3 C.7.6.3.1.2, C.8.11.3 and C.11.6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.levels.intensity import invert
from hilum_preprocessing.levels.tables import Levels
from hilum_preprocessing.spec.source import Source

if TYPE_CHECKING:
    from hilum_preprocessing.decode import StoredValues


def is_inverted(stored: StoredValues, source: Source) -> bool:
    """Return whether the picture is MONOCHROME1, or INVERSE where the shape is honoured.

    The Presentation LUT is the last step, and its output are P-values (PS3.3 C.11.6), so its shape
    alone decides whether the output is inverted. In the DX IOD INVERSE goes with MONOCHROME1 and
    IDENTITY with MONOCHROME2 (C.8.11.3): one inversion, stated twice. The two readings differ only
    for an object that breaks that rule.
    """
    if source.presentation_lut == "honour" and stored.presentation_lut_shape:
        return stored.presentation_lut_shape == "INVERSE"
    return stored.is_monochrome1


def with_polarity(levels: Levels, stored: StoredValues, source: Source) -> Levels:
    """PS3.3 C.7.6.3.1.2: MONOCHROME1 shows its smallest value as white.

    Raises NotAnalysable where the specification refuses it.
    """
    if source.presentation_lut == "honour" and stored.presentation_lut_shape == "SEQUENCE":
        raise NotAnalysable(
            Reason.UNSUPPORTED_PIXEL_FORMAT,
            "Presentation LUT Sequence, and the specification honours presentation LUTs",
        )
    if not is_inverted(stored, source) or source.monochrome1 in ("ignore", "invert_after_uint8"):
        return levels
    if source.monochrome1 == "reject":
        raise NotAnalysable(
            Reason.UNSUPPORTED_PIXEL_FORMAT, "MONOCHROME1, which the specification refuses"
        )
    return _inverted_about(levels, source)


def _inverted_about(levels: Levels, source: Source) -> Levels:
    if source.monochrome1_about == "nominal":
        return invert(levels)
    point = (
        levels.two_to_bits
        if source.monochrome1_about == "two_to_bits"
        else float(levels.picture.max())
    )
    return levels.map(lambda value: point - value)


def invert_after_uint8(levels: Levels) -> Levels:
    """255 - x, as cv2.bitwise_not does to a picture of whole grey levels."""
    return levels.map(lambda level: 255.0 - level)

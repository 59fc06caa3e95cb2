"""Which flags of an image, together, mean that no model should read it. Torch-free."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from hilum_preprocessing.errors import Flag, NotAnalysable, Reason

_UNKNOWN: Final = Flag.BODY_PART_UNKNOWN

REFUSED_TOGETHER: Final[tuple[tuple[str, ...], ...]] = (
    # Nothing names the chest, and the shape is not a chest's: a dental panoramic is twice as wide
    # as it is high.
    (_UNKNOWN.value, Flag.UNUSUAL_ASPECT.value),
    # Nothing names the chest or the view, and one thing about the pixels is unusual.
    (_UNKNOWN.value, Flag.VIEW_UNKNOWN.value, Flag.FEW_LEVELS.value),
    (_UNKNOWN.value, Flag.VIEW_UNKNOWN.value, Flag.SATURATED.value),
    (_UNKNOWN.value, Flag.VIEW_UNKNOWN.value, Flag.LOOKS_INVERTED.value),
    (_UNKNOWN.value, Flag.VIEW_UNKNOWN.value, Flag.ASYMMETRIC.value),
    (_UNKNOWN.value, Flag.VIEW_UNKNOWN.value, Flag.LOW_CONTRAST.value),
    # Nothing names the chest, and two signs of limbs and teeth are there: much air, no lungs.
    (_UNKNOWN.value, Flag.FEW_LEVELS.value, Flag.SATURATED.value),
    (_UNKNOWN.value, Flag.FEW_LEVELS.value, Flag.LOOKS_INVERTED.value),
    (_UNKNOWN.value, Flag.SATURATED.value, Flag.LOOKS_INVERTED.value),
    # All three signs, also where the header names the chest: a mislabelled limb.
    (Flag.FEW_LEVELS.value, Flag.SATURATED.value, Flag.LOOKS_INVERTED.value),
)
"""Combinations of flags whose images are not analysed, unless a site says otherwise.

Neither an unknown body part nor an unknown view is among them by itself, nor both together: real
chest radiographs lack both often (docs/decisions/doubtful-images.md).
"""


def require_no_doubt(
    flags: Collection[str], refused: Collection[str] = (), together: Iterable[Collection[str]] = ()
) -> None:
    """Raises NotAnalysable (implausible_pixels) for a refused flag or combination of flags.

    `refused`: single flags. `together`: rows of flags that refuse an image only when all are
    present. A view that is not known counts in no row for a picture file, which cannot state it.
    """
    seen = set(flags)
    against = seen & set(refused)
    signs = seen - {Flag.VIEW_UNKNOWN.value} if Flag.PICTURE_FILE.value in seen else seen
    for row in together:
        against |= set(row) if row and signs.issuperset(row) else set()
    if against:
        raise NotAnalysable(Reason.IMPLAUSIBLE_PIXELS, ", ".join(sorted(against)))

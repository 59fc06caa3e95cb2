"""Modality LUT, VOI LUT and windows as the data set gives them: PS3.3 C.11.1 and C.11.2.

They are applied in levels/grayscale.py. Torch-free.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, NamedTuple, TypeVar

from pydicom.dataset import Dataset

from hilum_preprocessing.errors import NotAnalysable, Reason
from hilum_preprocessing.header.elements import element, first_item, numbers, word, words
from hilum_preprocessing.header.lookup_table import LookupTable, lookup_table

T = TypeVar("T")
Function = Literal["LINEAR", "LINEAR_EXACT", "SIGMOID"]
"""VOI LUT Function (0028,1056)."""

_WORDS: Final = 1 << 16
_FUNCTIONS: Final[Mapping[str, Function]] = {
    "LINEAR": "LINEAR",
    "LINEAR_EXACT": "LINEAR_EXACT",
    "SIGMOID": "SIGMOID",
}


@dataclass(frozen=True, slots=True)
class Rescale:
    """Output = slope * stored + intercept (PS3.3 C.11.1.1.2)."""

    slope: float
    intercept: float


@dataclass(frozen=True, slots=True)
class Unusable:
    """Something stands there, and cannot be used.

    `detail`: why, for a specification that needs it.
    """

    detail: str


ModalityLut = Rescale | LookupTable | Unusable | None
"""What maps stored values to the manufacturer's own units; None: nothing does."""


@dataclass(frozen=True, slots=True)
class Window:
    """Centre and width of PS3.3 C.11.2.1.2, with the function that they belong to."""

    centre: float
    width: float
    function: Function = "LINEAR"


@dataclass(frozen=True, slots=True)
class Voi:
    """The windows and the VOI LUT that the object offers for display.

    `is_unusable`: it offered something that breaks the standard's own rules. `window` is the first
    of `windows`; one that cannot be used is None in its place. `explanations` go with them, in
    capitals.
    """

    window: Window | None
    lut: LookupTable | None
    is_unusable: bool
    windows: tuple[Window | None, ...] = ()
    explanations: tuple[str, ...] = ()

    def explained(self, explanation: str) -> Window | None:
        """The first window with this explanation, however it is written."""
        wanted = explanation.strip().upper()
        return next(
            (
                window
                for window, text in zip(self.windows, self.explanations, strict=False)
                if text == wanted
            ),
            None,
        )


NO_VOI = Voi(None, None, is_unusable=False)


def modality_of(dataset: Dataset) -> ModalityLut:
    """The modality LUT: a sequence, else slope and intercept, else None (PS3.3 C.11.1).

    One that cannot be used is `Unusable`: a recipe that needs none must not fail. A slope without
    an intercept has the intercept 0, an intercept without a slope the slope 1.
    """
    try:
        item = first_item(dataset, "ModalityLUTSequence")
        return _rescale(dataset) if item is None else lookup_table(item)
    except NotAnalysable as error:
        return Unusable(error.detail)


def _rescale(dataset: Dataset) -> Rescale | None:
    slope = numbers(dataset, "RescaleSlope")
    intercept = numbers(dataset, "RescaleIntercept")
    if not slope and not intercept:
        return None
    if len(slope) > 1 or len(intercept) > 1:
        raise NotAnalysable(
            Reason.CORRUPT_HEADER, "Rescale Slope and Rescale Intercept are not one number each"
        )
    if slope and slope[0] == 0:
        raise NotAnalysable(Reason.CORRUPT_HEADER, "Rescale Slope is 0")
    # + 0.0: -0 becomes 0. Equal intercepts must give equal bits, whichever came first.
    return Rescale(slope[0] if slope else 1.0, (intercept[0] if intercept else 0.0) + 0.0)


def voi_of(dataset: Dataset) -> Voi:
    """The windows and the first VOI LUT. Unusable ones are left out and noted.

    A recipe that needs none must not fail.
    """
    windows, window_unusable = _or_unusable(_windows, dataset)
    lut, lut_unusable = _or_unusable(_first_voi_lut, dataset)
    explanations, _ = _or_unusable(lambda of: words(of, "WindowCenterWidthExplanation"), dataset)
    window = windows[0] if windows else None
    is_unusable = window_unusable or lut_unusable or (bool(windows) and window is None)
    return Voi(window, lut, is_unusable, windows or (), explanations or ())


def _or_unusable(read: Callable[[Dataset], T], dataset: Dataset) -> tuple[T | None, bool]:
    try:
        return read(dataset), False
    except NotAnalysable:
        return None, True


def _windows(dataset: Dataset) -> tuple[Window | None, ...]:
    """Raises NotAnalysable for attributes that are not numbers, or not equally many."""
    centres = numbers(dataset, "WindowCenter")
    widths = numbers(dataset, "WindowWidth")
    function = word(dataset, "VOILUTFunction") or "LINEAR"
    if bool(centres) != bool(widths) or function not in _FUNCTIONS:
        raise NotAnalysable(
            Reason.CORRUPT_HEADER,
            "Window Center without Window Width or the other way round, or an unknown VOI LUT"
            " Function",
        )
    return tuple(
        _window(centre, width, _FUNCTIONS[function])
        for centre, width in zip(centres, widths, strict=False)
    )


def _window(centre: float, width: float, function: Function) -> Window | None:
    """PS3.3 C.11.2.1.2.1: LINEAR needs a width of at least 1.

    C.11.2.1.3: the others more than 0.
    """
    is_wide_enough = width >= 1 if function == "LINEAR" else width > 0
    return Window(centre, width, function) if is_wide_enough else None


def _first_voi_lut(dataset: Dataset) -> LookupTable | None:
    item = first_item(dataset, "VOILUTSequence")
    return None if item is None else lookup_table(item)


class Padding(NamedTuple):
    """`values`: stored values that are no part of the picture, both ends included.

    `is_unusable`: the header's padding makes no sense.
    """

    values: tuple[int, int] | None
    is_unusable: bool = False


def padding_of(dataset: Dataset, *, is_signed: bool) -> Padding:
    """Pixel Padding Value and its Range Limit (PS3.3 C.7.5.1.1.2); unusable ones are noted."""
    value, is_unreadable = _padding_end(dataset, "PixelPaddingValue")
    limit, is_limit_unreadable = _padding_end(dataset, "PixelPaddingRangeLimit")
    is_unusable = is_unreadable or is_limit_unreadable
    if is_unusable or value is None:
        return Padding(None, is_unusable)
    ends = (value, value if limit is None else limit)
    low, high = sorted(_of_sign(end, is_signed=is_signed) for end in ends)
    return Padding((low, high))


def _padding_end(dataset: Dataset, keyword: str) -> tuple[int | None, bool]:
    """One end of the padding, and whether something is there that is no whole number."""
    value, is_unreadable = _or_unusable(partial(element, keyword=keyword), dataset)
    is_number = isinstance(value, int | None)
    return value if is_number else None, is_unreadable or not is_number


def _of_sign(value: int, *, is_signed: bool) -> int:
    """No pixel of the other sign has such a value.

    Explicit VR says US where it should say SS, or SS where US.
    """
    if is_signed:
        return value - _WORDS if value >= _WORDS // 2 else value
    return value + _WORDS if value < 0 else value


def presentation_lut_shape_of(dataset: Dataset) -> str:
    """IDENTITY, INVERSE, SEQUENCE (a table stands there instead), or "" (PS3.3 C.11.6).

    A malformed one counts as absent.
    """
    sequence, _ = _or_unusable(lambda of: first_item(of, "PresentationLUTSequence"), dataset)
    shape, _ = _or_unusable(lambda of: word(of, "PresentationLUTShape"), dataset)
    return "SEQUENCE" if sequence is not None else shape if shape in ("IDENTITY", "INVERSE") else ""


def pixel_aspect_of(dataset: Dataset) -> float | None:
    """Height of a pixel over its width, 1 when the header has none (PS3.3 C.7.6.3.1.7).

    None: the header's spacing or ratio makes no sense.
    """
    for keyword in ("PixelSpacing", "ImagerPixelSpacing", "PixelAspectRatio"):
        sides, is_unreadable = _or_unusable(partial(numbers, keyword=keyword), dataset)
        if is_unreadable or sides:
            return sides[0] / sides[1] if sides and len(sides) == 2 and min(sides) > 0 else None
    return 1.0

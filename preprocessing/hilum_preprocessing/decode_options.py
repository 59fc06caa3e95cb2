"""How a specification wants a picture decoded, before a byte of its pixels is touched.

Torch-free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydicom.dataset import Dataset

from hilum_preprocessing.codecs.frames import reducible
from hilum_preprocessing.decode import DEFAULT_MAXIMUM_PIXELS, StoredValues, decode
from hilum_preprocessing.header.pixel_header import PixelHeader
from hilum_preprocessing.header.views import view_of
from hilum_preprocessing.orientation import Turn, turn_of
from hilum_preprocessing.spec.input_spec import InputSpec
from hilum_preprocessing.spec.reduction import choose_reduction


@dataclass(frozen=True, slots=True)
class Decoding:
    """The choices for decoding; specifications with equal ones share the decoded picture.

    `reduce`: how often a wavelet picture is halved. `turn`: the turn to an upright picture, where
    that is asked for.
    """

    frames: Literal["reject", "first"]
    rgb: Literal["reject", "luma", "first_channel"]
    reduce: int = 0
    turn: Turn | None = None

    def of(
        self,
        dataset: Dataset,
        maximum_pixels: int = DEFAULT_MAXIMUM_PIXELS,
        header: PixelHeader | None = None,
    ) -> StoredValues:
        """`header` as in `decode`. Raises NotAnalysable."""
        stored = decode(
            dataset,
            maximum_pixels,
            frames=self.frames,
            rgb=self.rgb,
            reduce=self.reduce,
            header=header,
        )
        return stored if self.turn is None else self.turn.of(stored)


def decoding_for(dataset: Dataset, spec: InputSpec) -> Decoding:
    """Raises NotAnalysable where the header already says why not."""
    source = spec.source
    turn = turn_of(dataset, view_of(dataset)) if source.orientation == "patient" else None
    if turn is not None:
        # Samples of a reduced picture lie on a grid from its first pixel, and would not after a
        # turn.
        return Decoding(source.frames, source.rgb, turn=turn)
    if source.allow_reduced_decode != "auto":
        return Decoding(source.frames, source.rgb)
    header = PixelHeader.of(dataset)
    return Decoding(
        source.frames,
        source.rgb,
        choose_reduction(spec, (header.rows, header.columns), reducible(dataset)),
    )

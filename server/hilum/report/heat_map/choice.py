"""Which findings and images a heat map shows, and the maps as arrays (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hilum.domain import ActivationMaps, Decision, Finding, Release, Result, SourceImage

_FINDINGS: Final = 3
_IMAGES: Final = 4


class HeatMapLeftOut(Exception):
    """There will be no heat map.

    `sentence` says why, for the report and for a person; it holds no patient data.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


@dataclass(frozen=True, slots=True)
class Shown:
    """A finding on an image for one panel, and its map (h, w) float32.

    Each cell holds its contribution to the logit.
    """

    finding: Finding
    image: SourceImage
    cells: NDArray[np.float32]


def chosen_findings(result: Result) -> tuple[Finding, ...]:
    """Return the present findings, highest score first, three at most.

    Where the release decides nothing, as untrained ones, the highest scores.
    """
    is_decided = any(finding.decision is not Decision.UNDECIDED for finding in result.findings)
    candidates = [
        finding
        for finding in result.findings
        if finding.decision is Decision.PRESENT or not is_decided
    ]
    return tuple(sorted(candidates, key=lambda finding: -finding.score)[:_FINDINGS])


def chosen_images(result: Result, findings: Sequence[Finding]) -> tuple[SourceImage, ...]:
    """Images that these findings rest on, in the order of the result, four at most.

    A study of more is a series of repeats.
    """
    named = {uid for finding in findings for uid in finding.source_sop_instance_uids}
    return tuple(
        image for image in result.source_images if image.is_used and image.sop_instance_uid in named
    )[:_IMAGES]


def shown_on(
    image: SourceImage, result: Result, release: Release, maps: ActivationMaps
) -> tuple[Shown, ...]:
    """The panels of one image.

    Raises HeatMapLeftOut when the ledger's maps are not those of this result.
    """
    _require_same_reading(image, release, maps)
    cells = _cells(maps.cam, release)
    rows = {label.key: number for number, label in enumerate(release.labels)}
    wanted = [
        finding
        for finding in chosen_findings(result)
        if image.sop_instance_uid in finding.source_sop_instance_uids
    ]
    return tuple(
        Shown(finding, image, cells[rows[finding.key]]) for finding in wanted if finding.key in rows
    )


def _require_same_reading(image: SourceImage, release: Release, maps: ActivationMaps) -> None:
    """An image may have been analysed again since.

    A picture of other numbers than the report's would be a false one.
    """
    labels = [label.key for label in release.labels]
    now = dict(zip(labels, maps.logits, strict=False))
    if len(maps.logits) != len(labels) or any(
        now.get(key) != logit for key, logit in image.logits.items()
    ):
        raise HeatMapLeftOut(
            "The image has been analysed again since; the newer result brings its own."
        )


def _cells(cam: bytes, release: Release) -> NDArray[np.float32]:
    """Return (L, h, w), the contribution of each cell: all cells and the bias give the logit.

    A row holds the maps before the mean. It holds no shape: the grid has the aspect of the wire
    tensor.
    """
    values = np.frombuffer(cam, np.float16).astype(np.float32)
    per_label, rest = divmod(values.size, len(release.labels))
    height, width = grid_of(per_label, _wire_size(release.input_spec))
    if rest or height * width != per_label or not np.isfinite(values).all():
        raise HeatMapLeftOut("The stored class activation maps do not fit the release.")
    return values.reshape(len(release.labels), height, width) / np.float32(per_label)


def _wire_size(input_spec: Mapping[str, Any]) -> tuple[int, int]:
    from hilum_preprocessing import InputSpec  # noqa: PLC0415 - only a report with a heat map pays for it

    _, height, width = InputSpec.from_mapping(input_spec).wire_shape
    return height, width


def grid_of(cells: int, size: tuple[int, int]) -> tuple[int, int]:
    """(h, w) of so many cells over a tensor of this size.

    Its product differs from `cells` when they do not fit.
    """
    width = max(1, round(math.sqrt(cells * size[1] / size[0])))
    return cells // width, width

"""A release as a profile serves it: tensors, batch sizes, and pinned values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hilum.models.manifest.manifest import Manifest

WIRE_TYPES: Final = {"uint8": "TYPE_UINT8", "fp16": "TYPE_FP16"}


@dataclass(frozen=True, slots=True)
class Served:
    """The tensor contract and the values that the release pins.

    `members`: number of an ensemble's networks; 0 without an ensemble.
    """

    triton_name: str
    wire_type: str
    height: int
    width: int
    outputs: int
    cam_grid: tuple[int, int] | None
    max_batch: int
    engine: str
    precision: str
    optimisation: str
    members: int = 0
    accelerator: str = "none"

    @property
    def image_dims(self) -> list[int]:
        """The dimensions of one image on the wire."""
        return [1, self.height, self.width]

    @property
    def tensors(self) -> dict[str, tuple[str, list[int]]]:
        """The outputs: Triton's type and the dimensions without the batch."""
        tensors = {"logits": ("TYPE_FP32", [self.outputs])}
        if self.members:
            tensors["member_logits"] = ("TYPE_FP32", [self.members, self.outputs])
        if self.cam_grid:
            tensors["cam"] = ("TYPE_FP16", [self.outputs, *self.cam_grid])
        return tensors


def preferred_sizes(max_batch: int) -> list[int]:
    """Return half a batch and a whole one."""
    return sorted({max(1, max_batch // 2), max_batch})


def warm_sizes(max_batch: int) -> list[int]:
    """Return the sizes that an engine prepares before the first request.

    They are the powers of two and the largest.
    """
    return sorted(
        {
            *(1 << power for power in range(max_batch.bit_length()) if 1 << power <= max_batch),
            max_batch,
        }
    )


def shape_ranges(served: Served) -> dict[str, list[int]]:
    """Return TensorRT's optimization profile: smallest, most usual and largest shape of `image`."""
    sizes = {"min": 1, "opt": preferred_sizes(served.max_batch)[0], "max": served.max_batch}
    return {name: [size, *served.image_dims] for name, size in sizes.items()}


def served(manifest: Manifest, cam_grid: Sequence[int] | None, accelerator: str = "none") -> Served:
    """Return the contract of a manifest.

    `cam_grid`: height and width of the maps, None where the release has none.
    """
    release = manifest.release
    (_, height, width) = manifest.spec.wire_shape
    return Served(
        triton_name=release.triton_name,
        wire_type=manifest.spec.wire_dtype,
        height=height,
        width=width,
        outputs=len(release.labels),
        cam_grid=(cam_grid[0], cam_grid[1]) if cam_grid else None,
        max_batch=release.max_batch,
        engine=release.engine,
        precision=release.precision,
        optimisation=manifest.engine.optimisation,
        members=len(release.members),
        accelerator=accelerator,
    )

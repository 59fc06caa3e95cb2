"""Triton's responses as the analyser takes them: a checked result, or an error.

The error shows whether to try again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from hilum.domain import Release
from hilum.errors import Retry

Array = np.ndarray[Any, np.dtype[Any]]

LATER: Final = frozenset(
    {
        "StatusCode.UNAVAILABLE",
        "StatusCode.DEADLINE_EXCEEDED",
        "StatusCode.CANCELLED",
        "StatusCode.RESOURCE_EXHAUSTED",
    }
)
_NOT_LOADED: Final = ("unknown model", "has no available versions", "is not found", "is not ready")
_NO_CONTROL: Final = "explicit model load / unload is not allowed"


class KnownAnswer(Protocol):
    """An image and the logits that the release gives for it."""

    @property
    def name(self) -> str:
        """The name for people: the canary, or a golden case."""

    @property
    def image(self) -> Array:
        """(1, C, H, W) in the wire dtype."""

    @property
    def logits(self) -> Array:
        """(1, L) float32."""

    @property
    def tolerance(self) -> float:
        """Largest allowed difference of a logit."""

    def broken_maps(self, logits: Array, cam: Array | None) -> str | None:
        """Return the fault of the maps, or None.

        None: (B, L, h, w) maps add up to (B, L) logits, or there are no maps.
        """


@dataclass(frozen=True, slots=True)
class InferenceResult:
    """The outputs for a batch: (B, L) float32 logits.

    Where the release has them, also maps (B, L, h, w) float16 and the members' logits (B, k, L)
    float32.
    """

    logits: Array
    cam: Array | None
    member_logits: Array | None = None


class TritonUnavailable(Retry):
    """This Triton did not respond, or not in time. Another one may."""

    def __init__(self, detail: str, after_seconds: float | None = None) -> None:
        super().__init__(detail, after_seconds, is_outage=True)


class NotLoaded(TritonUnavailable):
    """This Triton responds, but does not have the release."""


class WrongAnswer(RuntimeError):
    """Triton's response does not match the release: a broken engine, never a number to report."""


def canary_problem(release: Release, inference: InferenceResult, canary: KnownAnswer) -> str | None:
    """Return the fault in the canary's result, for people, or None.

    None: these are the logits that the release gives for its canary, and its maps add up to them.
    """
    worst = float(np.abs(inference.logits - canary.logits).max())
    if worst <= canary.tolerance:
        broken = canary.broken_maps(inference.logits, inference.cam)
        return (
            f"{release.id}: {broken}; another build is loaded or the engine is broken"
            if broken
            else None
        )
    off = f"{worst:.3g} off (tolerance {canary.tolerance:.3g})"
    return (
        f"{release.id}: {canary.name}'s logits are {off}; another build is loaded or the engine is"
        " broken"
    )


def explained(status: str, message: str, release: Release, url: str) -> Exception:
    """Return the exception for an error of the Triton at `url`.

    It quotes no tensor, so it holds no patient data.
    """
    if any(sign in message for sign in _NOT_LOADED) or "failed to load" in message:
        advice = (
            f"build it (`hilum models build {release.id}`), and load {release.triton_name} or"
            " restart that Triton"
        )
        return NotLoaded(
            f"{release.id} is not loaded in the Triton at {url} ({first_line(message)}): {advice}"
        )
    if _NO_CONTROL in message:
        return Retry(
            f"the Triton at {url} does not load models on request: start it with"
            " --model-control-mode=explicit"
        )
    if status in LATER:
        said = f"{status}: {first_line(message)}"
        return TritonUnavailable(
            f"Triton at {url} did not answer for {release.id} ({said}): is it running there?"
        )
    return WrongAnswer(
        f"{release.id}: Triton refused the request ({status}: {first_line(message)})"
    )


def first_line(message: str) -> str:
    """Return the first line of a message of Triton's, short enough for a row."""
    return message.strip().splitlines()[0][:200] if message.strip() else "no message"


def checked_logits(logits: Array | None, release: Release, images: int) -> Array:
    """Return (B, L) float32, finite. Raises WrongAnswer."""
    wanted = (images, len(release.labels))
    if logits is None or logits.shape != wanted or logits.dtype != np.float32:
        found = "nothing" if logits is None else f"{logits.dtype} {logits.shape}"
        raise WrongAnswer(
            f"{release.id}: the logits are {found}, the release promises float32 {wanted}"
        )
    if not np.isfinite(logits).all():
        images_hit = sorted({int(row) for row in np.argwhere(~np.isfinite(logits))[:, 0]})
        raise WrongAnswer(f"{release.id}: logits of image {images_hit} of the batch are not finite")
    return logits


def checked_cam(cam: Array | None, release: Release, images: int) -> Array:
    """Return (B, L, h, w). Raises WrongAnswer.

    The canary decides whether maps add up to logits.
    """
    wanted = (images, len(release.labels))
    if cam is None or cam.ndim != 4 or cam.shape[:2] != wanted or cam.size == 0:
        found = "nothing" if cam is None else f"{cam.dtype} {cam.shape}"
        raise WrongAnswer(
            f"{release.id}: the class activation maps are {found}, the release promises {wanted} of"
            " them"
        )
    return cam


def checked_members(logits: Array | None, release: Release, images: int) -> Array:
    """Return (B, k, L), finite. Raises WrongAnswer."""
    wanted = (images, len(release.members), len(release.labels))
    if logits is None or logits.shape != wanted:
        found = "nothing" if logits is None else f"{logits.dtype} {logits.shape}"
        raise WrongAnswer(
            f"{release.id}: the members' logits are {found}, the release promises {wanted}"
        )
    if not np.isfinite(logits).all():
        raise WrongAnswer(f"{release.id}: logits of a member are not finite")
    return logits

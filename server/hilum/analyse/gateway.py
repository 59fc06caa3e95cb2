"""The way to Triton: the one file that calls it. Batches go in, logits come out, and every failure says whether to try again.

Bounds, priorities and deadlines live on this side: with a queue policy of its own Triton 2.51 stalls 500 ms at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import tritonclient.grpc.aio as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from hilum import telemetry
from hilum.domain import Release
from hilum.errors import Retry

Array = np.ndarray[Any, np.dtype[Any]]

_LATER: Final = frozenset(
    {"StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED", "StatusCode.CANCELLED", "StatusCode.RESOURCE_EXHAUSTED"}
)
_NOT_LOADED: Final = ("unknown model", "has no available versions", "is not found", "is not ready")
_DEAD_STUB: Final = "is not healthy"
_CHANNEL: Final = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # gRPC would double its pauses up to two minutes; the images wait on disk, so look for a restarted Triton each second.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_NO_CONTROL: Final = "explicit model load / unload is not allowed"
_HEAL_SECONDS: Final = 60.0  # a model of 350 MB loads in a few seconds
log = telemetry.logger("analyse")


class KnownAnswer(Protocol):
    """An image and the logits that the release gives for it."""

    @property
    def image(self) -> Array:
        """(1, C, H, W) in the wire dtype."""

    @property
    def logits(self) -> Array:
        """(1, L) float32."""

    @property
    def tolerance(self) -> float:
        """Largest allowed difference of a logit."""


@dataclass(frozen=True, slots=True)
class Inference:
    """(B, L) float32 and, where the release has them, class activation maps (B, L, h, w) float16."""

    logits: Array
    cam: Array | None


class WrongAnswer(RuntimeError):
    """Triton answered, but not with what the release promises: a broken engine, never a number to report."""


class TritonGateway:
    """One channel to one Triton. `infer` may run several times at once; batch sizes and order are the caller's."""

    def __init__(self, url: str, deadline_seconds: float) -> None:
        self._client = triton.InferenceServerClient(url, channel_args=list(_CHANNEL))
        self._url = url
        self._deadline = deadline_seconds
        self._healing: dict[str, asyncio.Task[None]] = {}
        self._healed_at: dict[str, float] = {}

    async def infer(self, release: Release, batch: Array) -> Inference:
        """(B, C, H, W) in the wire dtype → (B, L) logits.

        Raises Retry when it may work later (a dead stub is healed first), WrongAnswer when the answer is none.
        """
        image = triton.InferInput("image", list(batch.shape), np_to_triton_dtype(batch.dtype))
        image.set_data_from_numpy(batch)
        names = ["logits", "cam"] if release.has_cam else ["logits"]
        wanted = [triton.InferRequestedOutput(name) for name in names]
        sent_at = asyncio.get_running_loop().time()
        try:
            answer = await self._client.infer(release.triton_name, [image], outputs=wanted, client_timeout=self._deadline)
        except InferenceServerException as error:
            if _DEAD_STUB in str(error.message()):
                await self._heal_unless_done_since(release, sent_at)
                raise Retry(f"{release.id}: its process in Triton had died; it was loaded again", after_seconds=0.0) from error
            raise self._explained(error, release) from error
        return Inference(
            _checked_logits(answer.as_numpy("logits"), release, len(batch)), answer.as_numpy("cam") if release.has_cam else None
        )

    async def is_loaded(self, release: Release) -> bool:
        """Triton's own word; it says yes to a model whose process has died. False also when Triton does not answer."""
        try:
            return bool(await self._client.is_model_ready(release.triton_name, client_timeout=self._deadline))
        except InferenceServerException:
            return False

    async def load(self, release: Release) -> None:
        """Load a built release into a Triton that runs in explicit mode. Raises Retry when that fails."""
        with self._explaining(release):
            await self._client.load_model(release.triton_name, client_timeout=_HEAL_SECONDS)

    async def heal(self, release: Release) -> None:
        """Unload and load: Triton keeps a dead stub's model as READY, and loading it again changes nothing. Once at a time a release."""
        if release.id not in self._healing:
            self._healing[release.id] = asyncio.create_task(self._heal(release))
        # Shielded: one caller's cancellation must not leave the model unloaded.
        await asyncio.shield(self._healing[release.id])

    async def check_canary(self, release: Release, canary: KnownAnswer) -> str | None:
        """None: the release gives its known answer. Else what is wrong, for people."""
        try:
            inference = await self.infer(release, canary.image)
        except Retry as error:
            return error.detail
        except WrongAnswer as error:
            return str(error)
        worst = float(np.abs(inference.logits - canary.logits).max())
        if worst <= canary.tolerance:
            return None
        off = f"{worst:.3g} off (tolerance {canary.tolerance:.3g})"
        return f"{release.id}: the canary's logits are {off}; another build is loaded or the engine is broken"

    async def close(self) -> None:
        """Wait for a healing in progress, then close the channel."""
        await asyncio.gather(*self._healing.values(), return_exceptions=True)
        await self._client.close()

    async def _heal_unless_done_since(self, release: Release, sent_at: float) -> None:
        """Of several requests that the dead process took with it, the first heals."""
        if self._healed_at.get(release.id, float("-inf")) < sent_at:
            await self.heal(release)

    async def _heal(self, release: Release) -> None:
        try:
            log.warning("model_healing", release=release.id)
            with self._explaining(release):
                await self._client.unload_model(release.triton_name, client_timeout=_HEAL_SECONDS)
                await self._client.load_model(release.triton_name, client_timeout=_HEAL_SECONDS)
            telemetry.MODEL_HEALS.labels(release=release.id).inc()
            self._healed_at[release.id] = asyncio.get_running_loop().time()
        finally:
            del self._healing[release.id]

    @contextmanager
    def _explaining(self, release: Release) -> Iterator[None]:
        try:
            yield
        except InferenceServerException as error:
            raise self._explained(error, release) from error

    def _explained(self, error: InferenceServerException, release: Release) -> Exception:
        """What the pipeline shall do about Triton's error; it quotes no tensor, so it holds no patient data."""
        message = str(error.message())
        if any(sign in message for sign in _NOT_LOADED) or "failed to load" in message:
            advice = f"build it (`hilum models build {release.id}`), and load {release.triton_name} or restart that Triton"
            return Retry(f"{release.id} is not loaded in the Triton at {self._url} ({_first_line(message)}): {advice}", is_outage=True)
        if _NO_CONTROL in message:
            return Retry(f"the Triton at {self._url} does not load models on request: start it with --model-control-mode=explicit")
        if error.status() in _LATER:
            return Retry(
                f"Triton at {self._url} did not answer for {release.id} ({error.status()}: {_first_line(message)}): is it running there?",
                is_outage=True,
            )
        return WrongAnswer(f"{release.id}: Triton refused the request ({error.status()}: {_first_line(message)})")


def _first_line(message: str) -> str:
    return message.strip().splitlines()[0][:200] if message.strip() else "no message"


def _checked_logits(logits: Array | None, release: Release, images: int) -> Array:
    """(B, L) float32, finite, or WrongAnswer."""
    wanted = (images, len(release.labels))
    if logits is None or logits.shape != wanted or logits.dtype != np.float32:
        found = "nothing" if logits is None else f"{logits.dtype} {logits.shape}"
        raise WrongAnswer(f"{release.id}: the logits are {found}, the release promises float32 {wanted}")
    if not np.isfinite(logits).all():
        images_hit = sorted({int(row) for row in np.argwhere(~np.isfinite(logits))[:, 0]})
        raise WrongAnswer(f"{release.id}: logits of image {images_hit} of the batch are not finite")
    return logits

"""The way to Triton: the only file that calls it.

Batches go in, logits come out, and every failure shows whether to try again. Bounds, priorities and
deadlines are on this side: with a queue policy of its own Triton 2.51 stalls 500 ms at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import numpy as np
import tritonclient.grpc.aio as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from hilum.analyse.credentials import Credentials
from hilum.analyse.inference.answers import (
    LATER,
    InferenceResult,
    KnownAnswer,
    WrongAnswer,
    canary_problem,
    checked_cam,
    checked_logits,
    checked_members,
    explained,
    first_line,
)
from hilum.analyse.inference.shared_memory import Batch, Regions
from hilum.domain import Release
from hilum.errors import Retry
from hilum.observability import telemetry, tracing

_DEAD_STUB: Final = "is not healthy"
_REGION_GONE: Final = "Unable to find shared memory region"
_CHANNEL: Final = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # gRPC would double its pauses up to two minutes; images wait on disk, so look for a restarted
    # Triton each second.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
# it is in the repository and was never loaded, or is unloaded
_NOT_SERVED: Final = ("", "UNAVAILABLE")
_RELOAD_SECONDS: Final = 60.0  # a model of 350 MB loads in a few seconds
_ASK_SECONDS: Final = 5.0  # requests about the server never wait behind a model's batches
log = telemetry.logger("analyse")


class TritonGateway:
    """One channel to one Triton.

    `infer` may run several times at once; the caller decides batch sizes and order.
    `shares_memory`: it is on this machine, so batches go by shared memory, as long as it can map
    ours. `credentials`: for a Triton that Hilum does not run; None: calls are not encrypted.
    """

    def __init__(
        self,
        url: str,
        deadline_seconds: float,
        *,
        shares_memory: bool = False,
        credentials: Credentials | None = None,
    ) -> None:
        secured = credentials.channel() if credentials else None
        options = [*_CHANNEL, *(credentials.options if credentials else ())]
        self._client = triton.InferenceServerClient(url, creds=secured, channel_args=options)
        self._url = url
        self._deadline = deadline_seconds
        self._regions = Regions(self._register) if shares_memory else None
        self._reloading: dict[str, asyncio.Task[None]] = {}
        self._reloaded_at: dict[str, float] = {}

    async def infer(self, release: Release, batch: Batch) -> InferenceResult:
        """Return (B, L) logits and the release's other outputs.

        Input: (B, C, H, W), or (C, H, W) of each image, in the wire dtype. Raises Retry when it may
        work later (a dead stub is reloaded first), WrongAnswer for an invalid response.
        """
        wanted = [triton.InferRequestedOutput(name) for name in _outputs(release)]
        sent_at = asyncio.get_running_loop().time()
        try:
            answer = await self._answer(release, batch, wanted)
        except InferenceServerException as error:
            if _DEAD_STUB in str(error.message()):
                await self._reload_unless_done_since(release, sent_at)
                raise Retry(
                    f"{release.id}: its process in Triton had died; it was loaded again",
                    after_seconds=0.0,
                ) from error
            raise explained(error.status(), str(error.message()), release, self._url) from error
        return InferenceResult(
            checked_logits(answer.as_numpy("logits"), release, len(batch)),
            checked_cam(answer.as_numpy("cam"), release, len(batch)) if release.has_cam else None,
            checked_members(answer.as_numpy("member_logits"), release, len(batch))
            if release.members
            else None,
        )

    async def _answer(self, release: Release, batch: Batch, wanted: list[Any]) -> Any:  # noqa: ANN401 - tritonclient has no types
        """Return Triton's response. Raises InferenceServerException.

        A Triton that has restarted has lost our memory: the request is sent once more without it.
        """
        life = self._regions.life if self._regions else 0
        try:
            async with self._input(batch) as image:
                return await self._ask(release, image, wanted)
        except InferenceServerException as error:
            if self._regions is None or _REGION_GONE not in str(error.message()):
                raise
            self._regions.forget(life)
        return await self._ask(release, _sent(batch), wanted)

    async def _ask(self, release: Release, image: Any, wanted: list[Any]) -> Any:  # noqa: ANN401 - as above
        headers = tracing.request_headers()
        return await self._client.infer(
            release.triton_name,
            [image],
            outputs=wanted,
            client_timeout=self._deadline,
            headers=headers,
        )

    @asynccontextmanager
    async def _input(self, batch: Batch) -> AsyncIterator[Any]:
        """Yield the batch as tritonclient's input, in shared memory where Triton takes it."""
        if self._regions is None:
            yield _sent(batch)
            return
        try:
            life, region = await self._regions.lend(_size_bytes(batch))
        except (InferenceServerException, OSError) as error:
            self._give_up_memory(error)
            yield _sent(batch)
            return
        try:
            region.fill(batch)
            yield _named(batch).set_shared_memory(region.name, _size_bytes(batch))
        finally:
            if self._regions is not None:
                self._regions.give_back(life, region)

    async def _register(self, name: str, key: str, size_bytes: int) -> None:
        await self._client.register_system_shared_memory(
            name, key, size_bytes, client_timeout=_ASK_SECONDS
        )

    def _give_up_memory(self, error: InferenceServerException | OSError) -> None:
        """Stop using shared memory that Triton cannot map, as from another container.

        An outage proves nothing.
        """
        if isinstance(error, OSError) or error.status() not in LATER:
            log.info(
                "no_shared_memory", problem=first_line(str(error)), advice="batches go by gRPC"
            )
            self._regions = None

    async def is_live(self) -> bool:
        """Return whether a server responds at the address, within seconds."""
        try:
            return bool(await self._client.is_server_live(client_timeout=_ASK_SECONDS))
        except InferenceServerException:
            return False

    async def is_loaded(self, release: Release) -> bool:
        """Return Triton's own state of the release; False also when Triton does not respond.

        Triton reports ready for a model whose process has died.
        """
        try:
            return bool(
                await self._client.is_model_ready(release.triton_name, client_timeout=_ASK_SECONDS)
            )
        except InferenceServerException:
            return False

    async def served(self) -> list[str] | None:
        """Return Triton's names of all models that it has loaded; None: it does not respond."""
        try:
            index = await self._client.get_model_repository_index(client_timeout=_ASK_SECONDS)
        except InferenceServerException:
            return None
        return sorted({model.name for model in index.models if model.state not in _NOT_SERVED})

    async def load(self, release: Release) -> None:
        """Load a built release into a Triton in explicit mode. Raises Retry when that fails."""
        with self._explaining(release):
            await self._client.load_model(release.triton_name, client_timeout=_RELOAD_SECONDS)

    async def unload(self, release: Release) -> None:
        """Unload a release from a Triton in explicit mode. Raises Retry when that fails.

        Requests in progress are finished.
        """
        with self._explaining(release):
            await self._client.unload_model(release.triton_name, client_timeout=_RELOAD_SECONDS)

    async def reload(self, release: Release) -> None:
        """Unload and load the release; only one reload of a release runs at a time.

        Triton keeps a dead stub's model as READY, and loading it again changes nothing.
        """
        if release.id not in self._reloading:
            self._reloading[release.id] = asyncio.create_task(self._reload(release))
        # Shielded: one caller's cancellation must not leave the model unloaded.
        await asyncio.shield(self._reloading[release.id])

    async def check_canary(self, release: Release, canary: KnownAnswer) -> str | None:
        """Return the problem, for people; None: the release gives its known result."""
        try:
            inference = await self.infer(release, canary.image)
        except Retry as error:
            return error.detail
        except WrongAnswer as error:
            return str(error)
        return canary_problem(release, inference, canary)

    async def close(self) -> None:
        """Wait for a reload in progress, unregister our memory, and close the channel."""
        await asyncio.gather(*self._reloading.values(), return_exceptions=True)
        with suppress(InferenceServerException):
            for name in self._regions.names if self._regions else ():
                await self._client.unregister_system_shared_memory(
                    name, client_timeout=_ASK_SECONDS
                )
        await self._client.close()

    async def _reload_unless_done_since(self, release: Release, sent_at: float) -> None:
        """Reload the release, once for all requests that the dead process took with it."""
        if self._reloaded_at.get(release.id, float("-inf")) < sent_at:
            await self.reload(release)

    async def _reload(self, release: Release) -> None:
        try:
            log.warning("model_reloading", release=release.id)
            with self._explaining(release):
                await self._client.unload_model(release.triton_name, client_timeout=_RELOAD_SECONDS)
                await self._client.load_model(release.triton_name, client_timeout=_RELOAD_SECONDS)
            telemetry.MODEL_RELOADS.labels(release=release.id).inc()
            self._reloaded_at[release.id] = asyncio.get_running_loop().time()
        finally:
            del self._reloading[release.id]

    @contextmanager
    def _explaining(self, release: Release) -> Iterator[None]:
        try:
            yield
        except InferenceServerException as error:
            raise explained(error.status(), str(error.message()), release, self._url) from error


def _size_bytes(batch: Batch) -> int:
    return len(batch) * int(batch[0].nbytes)


def _named(batch: Batch) -> Any:  # noqa: ANN401 - tritonclient has no types
    return triton.InferInput(
        "image", [len(batch), *batch[0].shape], np_to_triton_dtype(batch[0].dtype)
    )


def _sent(batch: Batch) -> Any:  # noqa: ANN401 - as above
    return _named(batch).set_data_from_numpy(np.stack([*batch]))


def _outputs(release: Release) -> list[str]:
    """Return the names of the outputs to request from Triton."""
    return [
        "logits",
        *(["cam"] if release.has_cam else []),
        *(["member_logits"] if release.members else []),
    ]

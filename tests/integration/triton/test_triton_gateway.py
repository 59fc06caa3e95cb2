"""The gateway against the real tritonserver: what is retried, what is reloaded, what is no answer."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from hilum.analyse.inference.answers import WrongAnswer
from hilum.analyse.inference.gateway import TritonGateway
from hilum.domain import Release
from hilum.errors import Retry
from hilum.models.known_answers import canary
from hilum.models.manifest import catalogue
from hilum.observability.telemetry import MODEL_RELOADS
from hilum.triton.server import EmbeddedTriton
from testing.serving import free_ports
from tests.support.models.releases import TINY_WEIGHTS, Tiny, make_tiny, pictures, tiny_logits
from tests.support.models.triton import (
    RemoteTriton,
    killed_afterwards,
    require_triton,
    stubs,
    with_gateway,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Rig:
    """A running server with the releases tiny, other (the same network, other weights), slow and holey (NaN for a black image)."""

    url: str
    server: EmbeddedTriton
    tiny: Tiny
    releases: dict[str, Release]

    def run(
        self, use: Callable[[TritonGateway], Awaitable[T]], deadline_seconds: float = 30.0
    ) -> T:
        """What `use` gives for a gateway of its own."""
        return with_gateway(self.url, use, deadline_seconds)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    require_triton()
    folder = tmp_path_factory.mktemp("gateway")
    make_tiny(folder, "other", weights=-TINY_WEIGHTS)
    make_tiny(folder, "slow", max_batch=1, delay_channels=64)
    make_tiny(folder, "holey", operator="Log")
    tiny = make_tiny(folder)
    releases = {
        release.name: release for release in catalogue.load_catalogue(tiny.manifests_dir).values()
    }
    loaded = [release.triton_name for name, release in releases.items() if name != "other"]
    with killed_afterwards(
        EmbeddedTriton(tiny.built_dir, tmp_path_factory.mktemp("state"), loaded, 60, 5)
    ) as server:
        yield Rig(server.start(), server, tiny, releases)


def _reloads(release: Release) -> float:
    value: float = MODEL_RELOADS.labels(release=release.id)._value.get()
    return value


def _refusal(
    rig: Rig,
    kind: type[Exception],
    release: Release,
    batch: np.ndarray[Any, Any],
    deadline_seconds: float = 30.0,
) -> str:
    with pytest.raises(kind) as caught:
        rig.run(lambda gateway: gateway.infer(release, batch), deadline_seconds)
    return str(caught.value)


def test_answers_are_those_of_each_request(rig: Rig) -> None:
    batches = [pictures(size, seed=size) for size in (1, 2, 3, 4, 4, 1)]

    async def all_at_once(gateway: TritonGateway) -> list[Any]:
        return await asyncio.gather(*(gateway.infer(rig.tiny.release, batch) for batch in batches))

    for batch, inference in zip(batches, rig.run(all_at_once), strict=True):
        assert inference.logits.dtype == np.float32
        assert inference.cam is None
        assert np.abs(inference.logits - tiny_logits(batch)).max() < 1e-4


def test_the_canary_of_the_loaded_build_passes(rig: Rig) -> None:
    known = canary.read_canary(rig.tiny.release, rig.tiny.built_dir)
    assert rig.run(lambda gateway: gateway.check_canary(rig.tiny.release, known)) is None


def test_the_canary_finds_another_build_behind_the_name(rig: Rig) -> None:
    """The wrong weights under the right name: Triton calls the model READY all the same."""
    known = canary.read_canary(rig.releases["other"], rig.tiny.built_dir)
    verdict = rig.run(lambda gateway: gateway.check_canary(rig.tiny.release, known))
    assert verdict is not None
    assert "another build is loaded or the engine is broken" in verdict


def test_the_canary_finds_what_numpy_2_would_do(rig: Rig) -> None:
    """A constant image is what a stub under numpy 2 would see; its logits are not the canary's."""
    known = canary.read_canary(rig.tiny.release, rig.tiny.built_dir)
    blind = dataclasses.replace(known, image=np.full_like(known.image, known.image.flat[0]))
    verdict = rig.run(lambda gateway: gateway.check_canary(rig.tiny.release, blind))
    assert verdict is not None
    assert "off (tolerance" in verdict


def test_a_dead_stub_is_reloaded_once_for_all_its_requests(rig: Rig) -> None:
    release, before = rig.tiny.release, _reloads(rig.tiny.release)
    assert rig.server.pid is not None
    (stub,) = stubs(rig.server.pid, release.triton_name)
    os.kill(stub, signal.SIGKILL)

    async def use(gateway: TritonGateway) -> list[object]:
        assert await gateway.is_loaded(release), (
            "Triton noticed the death: a reload may no longer be needed"
        )
        lost = await asyncio.gather(
            *(gateway.infer(release, pictures(1)) for _ in range(6)), return_exceptions=True
        )
        again = await gateway.infer(release, pictures(3))
        assert np.abs(again.logits - tiny_logits(pictures(3))).max() < 1e-4
        return list(lost)

    lost = rig.run(use)
    assert all(isinstance(outcome, Retry) for outcome in lost), lost
    assert any("had died; it was loaded again" in str(outcome) for outcome in lost)
    assert _reloads(release) == before + 1
    assert stubs(rig.server.pid, release.triton_name) != [stub]


def test_a_release_that_is_not_loaded_says_what_to_do_and_can_be_loaded(rig: Rig) -> None:
    other = rig.releases["other"]
    message = _refusal(rig, Retry, other, pictures(1))
    assert "other@1 is not loaded in the Triton at" in message
    assert "hilum models build other@1" in message

    async def load(gateway: TritonGateway) -> tuple[bool, bool]:
        before = await gateway.is_loaded(other)
        await gateway.load(other)
        return before, await gateway.is_loaded(other)

    assert rig.run(load) == (False, True)
    (inference,) = [rig.run(lambda gateway: gateway.infer(other, pictures(2)))]
    assert np.abs(inference.logits + tiny_logits(pictures(2))).max() < 1e-4


def test_loading_what_was_never_built_says_what_to_do(rig: Rig) -> None:
    absent = dataclasses.replace(rig.tiny.release, name="absent", triton_name="absent__1")
    with pytest.raises(Retry, match="hilum models build absent@1"):
        rig.run(lambda gateway: gateway.load(absent))


def test_a_passed_deadline_is_tried_again_later(rig: Rig) -> None:
    assert "DEADLINE_EXCEEDED" in _refusal(
        rig, Retry, rig.releases["slow"], pictures(1), deadline_seconds=0.01
    )


def test_nobody_at_the_address_is_tried_again_later(rig: Rig) -> None:
    nowhere = dataclasses.replace(rig, url=f"127.0.0.1:{free_ports(1)[0]}")
    message = _refusal(nowhere, Retry, rig.tiny.release, pictures(1))
    assert nowhere.url in message
    assert "is it running there?" in message
    known = canary.read_canary(rig.tiny.release, rig.tiny.built_dir)
    assert nowhere.url in (
        nowhere.run(lambda gateway: gateway.check_canary(rig.tiny.release, known)) or ""
    )
    assert nowhere.run(lambda gateway: gateway.is_loaded(rig.tiny.release)) is False


def test_logits_that_are_not_finite_name_the_image(rig: Rig) -> None:
    images = pictures(3) // 2 + 1
    images[1] = 0
    assert "logits of image [1] of the batch are not finite" in _refusal(
        rig, WrongAnswer, rig.releases["holey"], images
    )


def test_another_number_of_labels_is_no_answer(rig: Rig) -> None:
    fewer = dataclasses.replace(rig.tiny.release, labels=rig.tiny.release.labels[:2])
    assert "the logits are float32 (2, 3), the release promises float32 (2, 2)" in _refusal(
        rig, WrongAnswer, fewer, pictures(2)
    )


@pytest.mark.parametrize(
    "batch",
    [pictures(5), pictures(1).astype(np.float16), pictures(1)[:, :, :16]],
    ids=["too many", "type", "size"],
)
def test_a_batch_that_breaks_the_contract_is_refused_by_triton(
    rig: Rig, batch: np.ndarray[Any, Any]
) -> None:
    assert "INVALID_ARGUMENT" in _refusal(rig, WrongAnswer, rig.tiny.release, batch)


def test_a_remote_triton_that_loads_nothing_on_request_says_what_to_change(
    rig: Rig, tmp_path: Path
) -> None:
    remote = RemoteTriton(rig.tiny.built_dir, tmp_path, [], mode="none")
    with killed_afterwards(remote):
        stranger = dataclasses.replace(rig, url=remote.start())
        with pytest.raises(Retry, match="start it with --model-control-mode=explicit"):
            stranger.run(lambda gateway: gateway.reload(rig.tiny.release))

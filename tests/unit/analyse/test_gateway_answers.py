"""What the gateway takes for an answer.

A server that speaks Triton's protocol and answers with the arrays of the test.
"""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import np_to_triton_dtype

from hilum.analyse.credentials import read
from hilum.analyse.inference.answers import InferenceResult, WrongAnswer
from hilum.analyse.inference.gateway import TritonGateway
from hilum.domain import Code, Label, Release
from hilum.errors import ConfigurationError
from hilum.settings import Triton
from tests.support.peers.certificates import Authority

Array = np.ndarray[Any, np.dtype[Any]]

LABELS = tuple(Label(key, key, Code(key, "99HILUM", key), "C", 0.5) for key in ("a", "b", "c"))
RELEASE = Release(
    "m",
    "1",
    "a",
    "m__1",
    {},
    LABELS,
    "sigmoid",
    "max",
    "f32",
    "openvino",
    False,
    False,
    None,
    "x",
    "x",
    "x",
    "x",
    "",
)
MAPPED = dataclasses.replace(RELEASE, has_cam=True)
ENSEMBLE = dataclasses.replace(RELEASE, members=("one", "two"))
IMAGES = 2
LOGITS = np.arange(6, dtype=np.float32).reshape(IMAGES, 3)


class Answering(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # tritonclient has no types
    """Gives the same arrays whatever it is asked."""

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays
        self.metadata: dict[str, str] = {}

    async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol's
        self.metadata = dict(context.invocation_metadata())
        tensors = [
            service_pb2.ModelInferResponse.InferOutputTensor(
                name=name, datatype=np_to_triton_dtype(array.dtype), shape=array.shape
            )
            for name, array in self._arrays.items()
        ]
        return service_pb2.ModelInferResponse(
            outputs=tensors,
            raw_output_contents=[array.tobytes() for array in self._arrays.values()],
        )


def inferred(release: Release, **arrays: Array) -> InferenceResult:
    async def scenario() -> InferenceResult:
        server = grpc.aio.server()
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(
            Answering({"logits": LOGITS, **arrays}), server
        )
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        gateway = TritonGateway(f"127.0.0.1:{port}", 30.0)
        try:
            return await gateway.infer(release, np.zeros((IMAGES, 1, 4, 4), np.float16))
        finally:
            await gateway.close()
            await server.stop(None)

    return asyncio.run(scenario())


def test_maps_and_members_as_the_release_promises_them() -> None:
    maps, members = np.ones((IMAGES, 3, 7, 5), np.float16), np.ones((IMAGES, 2, 3), np.float32)
    assert np.array_equal(inferred(MAPPED, cam=maps).cam, maps)
    assert np.array_equal(inferred(ENSEMBLE, member_logits=members).member_logits, members)
    plain = inferred(RELEASE, cam=maps, member_logits=members)
    assert np.array_equal(plain.logits, LOGITS)
    assert (plain.cam, plain.member_logits) == (None, None), "nobody asked for them"


@pytest.mark.parametrize(
    "shape",
    [
        (1, 3, 7, 7),
        (IMAGES, 2, 7, 7),
        (IMAGES, 3, 7),
        (IMAGES, 3, 7, 7, 1),
        (IMAGES, 3, 0, 7),
        (0, 3, 7, 7),
    ],
)
def test_other_maps_are_no_answer(shape: tuple[int, ...]) -> None:
    with pytest.raises(WrongAnswer, match="m@1: the class activation maps are float16"):
        inferred(MAPPED, cam=np.ones(shape, np.float16))


def test_no_maps_are_no_answer() -> None:
    with pytest.raises(WrongAnswer, match="the class activation maps are nothing"):
        inferred(MAPPED)


@pytest.mark.parametrize(
    "shape", [(1, 2, 3), (IMAGES, 1, 3), (IMAGES, 2, 2), (IMAGES, 3), (IMAGES, 2, 3, 1)]
)
def test_other_logits_of_members_are_no_answer(shape: tuple[int, ...]) -> None:
    with pytest.raises(WrongAnswer, match="the members' logits are float32"):
        inferred(ENSEMBLE, member_logits=np.ones(shape, np.float32))


def test_logits_of_members_that_are_not_finite_are_no_answer() -> None:
    members = np.ones((IMAGES, 2, 3), np.float32)
    members[1, 0, 2] = np.nan
    with pytest.raises(WrongAnswer, match="not finite"):
        inferred(ENSEMBLE, member_logits=members)
    with pytest.raises(WrongAnswer, match="the members' logits are nothing"):
        inferred(ENSEMBLE)


def test_a_token_goes_with_each_call_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own, answering = authority.identity("triton", "DNS:triton.test"), Answering({"logits": LOGITS})
    (tmp_path / "token").write_text("of the proxy\n")
    encrypted = {
        "tls": True,
        "ca_file": authority.file,
        "tls_server_name": "triton.test",
        "token_file": tmp_path / "token",
    }

    async def scenario() -> InferenceResult:
        server = grpc.aio.server()
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(answering, server)
        pair = own.key.read_bytes(), own.certificate.read_bytes()
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([pair]))
        await server.start()
        url = f"127.0.0.1:{port}"
        gateway = TritonGateway(url, 30.0, credentials=read(Triton(url=url, **encrypted)))
        try:
            return await gateway.infer(RELEASE, np.zeros((IMAGES, 1, 4, 4), np.float16))
        finally:
            await gateway.close()
            await server.stop(None)

    assert np.array_equal(asyncio.run(scenario()).logits, LOGITS)
    assert answering.metadata["authorization"] == "Bearer of the proxy"
    assert "of the proxy" not in repr(read(Triton(url="triton:1", **encrypted)))


def test_files_that_tls_cannot_begin_with_are_named(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    one, other = authority.identity("one"), authority.identity("other")
    with pytest.raises(ConfigurationError, match=r"one\.pem, .*KEY_VALUES_MISMATCH"):
        read(Triton(url="triton:1", tls=True, certificate_file=one.certificate, key_file=other.key))
    with pytest.raises(ConfigurationError, match=r"gone\.pem: No such file"):
        read(Triton(url="triton:1", tls=True, token_file=tmp_path / "gone.pem"))
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigurationError, match="empty is empty"):
        read(Triton(url="triton:1", tls=True, token_file=tmp_path / "empty"))
    assert read(Triton(url="triton:1")) is None

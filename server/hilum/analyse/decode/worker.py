"""The code of a spawned decode process: a stored object in, a wire tensor a release out.

A tensor is made for each release that is due. Codecs are C code on hostile input. A crash here
costs this process, and the item that caused it is known.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any, Final, NamedTuple

from hilum.analyse.decode.page_cache import drop_pages
from hilum.analyse.decode.slots import Area, Array, ArrayRef, SlotLease, SlotMemory
from hilum.libraries import silence_libraries
from hilum.observability import telemetry
from hilum.process_limits import forbid_core_files, limit_memory


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """An order to decode `path` once and prepare it for each release.

    `input_specs`: the mapping of its InputSpec for each release id. `pixel_limits`: fields of
    PixelLimits that differ from its defaults. A picture with a flag of `refused_flags` is not
    analysed, nor is one with all flags of a row of `refused_together`. `site_words`: of Body Part
    Examined, for the chest and for other parts. `is_decoded_only`: the stored values go back, for a
    device to prepare. `drops_page_cache`: the file's pages are dropped afterwards.
    """

    path: Path
    input_specs: Mapping[str, Mapping[str, Any]]
    maximum_pixels: int
    device: str
    pixel_limits: Mapping[str, float] = field(default_factory=dict)
    refused_flags: tuple[str, ...] = ()
    refused_together: tuple[tuple[str, ...], ...] = ()
    site_words: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    is_decoded_only: bool = False
    drops_page_cache: bool = False

    @property
    def terms(self) -> Terms:
        """All fields but the path."""
        return (
            self.input_specs,
            self.maximum_pixels,
            self.device,
            self.pixel_limits,
            self.refused_flags,
            self.refused_together,
            self.site_words,
            self.is_decoded_only,
            self.drops_page_cache,
        )


Terms = tuple[
    Mapping[str, Mapping[str, Any]],
    int,
    str,
    Mapping[str, float],
    tuple[str, ...],
    tuple[tuple[str, ...], ...],
    tuple[tuple[str, ...], tuple[str, ...]],
    bool,
    bool,
]


class EncodedRequest(NamedTuple):
    """A request in transit: its path, and its pickled terms, which images mostly share."""

    path: str
    terms: bytes


class RequestEncoder:
    """The encoder of requests.

    Terms are pickled only when they differ from those of the request before.
    """

    def __init__(self) -> None:
        self._terms: Terms | None = None
        self._pickled = b""

    def of(self, request: DecodeRequest | SpecCheck) -> EncodedRequest | SpecCheck:
        """Return the request in the form for the decode process."""
        if isinstance(request, SpecCheck):
            return request
        terms = request.terms
        if terms != self._terms:
            self._terms = terms
            self._pickled = pickle.dumps(terms)
        return EncodedRequest(str(request.path), self._pickled)


@dataclass(frozen=True, slots=True)
class SpecCheck:
    """A request to check that the known pictures give the known tensors on a device."""

    input_spec: Mapping[str, Any]
    device: str


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of a check: its problem, or None."""

    problem: str | None


class Ready(NamedTuple):
    """A release's wire tensor (C, H, W), fp16 or uint8, with its origin. Times in seconds."""

    tensor: Array
    view: str
    flags: tuple[str, ...]
    preprocessing_version: str
    decode_seconds: float
    prepare_seconds: float


class NotReady(NamedTuple):
    """The reason why this image gives no tensor for a release, and the finding behind it.

    The reason is one of the closed list.
    """

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Broken:
    """An unforeseen error: its place, without the message, which may quote a header.

    The process ends after it.
    """

    where: str


@dataclass(frozen=True, slots=True)
class ReadError:
    """The file system did not let the file be read: its errno."""

    number: int


_TOGETHER_SECONDS: Final = 0.01  # finished results wait at most so long for the next

Answer = dict[str, Ready | NotReady]


@dataclass(frozen=True, slots=True)
class SpecAccepted:
    """A release that takes the image by its header and pixels; its tensor is still to be made."""

    view: str
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DecodedPicture:
    """Stored values (rows, columns), and the releases that take them so.

    `facts`: a StoredValues without its array.
    """

    array: Array
    facts: Any
    accepted: Mapping[str, SpecAccepted]
    decode_seconds: float


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """An image still to be prepared: one picture, unless releases want different decodings."""

    pictures: tuple[DecodedPicture, ...]
    not_ready: Mapping[str, NotReady]


class SlotResponse(NamedTuple):
    """A result whose arrays are in its request's slot, in the order of `arrays_of`.

    It holds None in their places.
    """

    answer: Answer | DecodedImage
    placed: list[ArrayRef]


RequestBatch = list[tuple[SlotLease, EncodedRequest | SpecCheck]]
"""The requests sent to a process at once, and the slot for each result's arrays."""

DecodeResponse = Answer | DecodedImage | Checked | SlotResponse | ReadError
"""The result of one request to a decode process."""

Prepare = Callable[[DecodeRequest | SpecCheck], Answer | DecodedImage | Checked]


def load() -> Prepare:
    """Return the handler of requests; the heavy imports happen here."""
    import torch  # noqa: PLC0415 - only here: the analyser's light parts and tests import the module itself

    # the pool is the parallelism; more threads would oversubscribe the cores
    torch.set_num_threads(1)
    from hilum.analyse.decode.prepare import answer_request  # noqa: PLC0415 - imports torch

    return answer_request


def serve(connection: Connection, load_codecs: Callable[[], Prepare], maximum_pixels: int) -> None:
    """Serve requests until the analyser closes its end, or dies.

    `maximum_pixels`: see `limit_memory`.
    """
    forbid_core_files()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the supervisor
    silence_libraries()
    slots = _shared_slots(connection)
    gc.disable()
    prepare = load_codecs()
    gc.freeze()  # half a million objects of the imports, which each full collection would visit
    gc.enable()
    limit_memory(maximum_pixels)
    connection.send(os.getpid())
    while True:
        try:
            asked: RequestBatch = pickle.loads(connection.recv_bytes())  # noqa: S301 - from the analyser
        except EOFError:
            return
        try:
            _answer(asked, prepare, connection, slots)
        except Exception as error:  # noqa: BLE001 - the process's edge: multiprocessing would print the message, patient data and all
            connection.send(Broken(telemetry.traceback_without_messages(error)))
            return


def _answer(
    asked: RequestBatch, prepare: Prepare, connection: Connection, slots: SlotMemory
) -> None:
    """Send results in messages of several, in order.

    Each message wakes the analyser, which costs as much as its work on a result.
    """
    done: list[DecodeResponse] = []
    began = time.monotonic()
    for place, (slot, question) in enumerate(asked, 1):
        request = (
            question
            if isinstance(question, SpecCheck)
            else DecodeRequest(Path(question.path), *_terms(question.terms))
        )
        slots.begin(slot)
        try:
            done.append(_said(request, prepare, slots, slot))
        except Exception:
            _send(connection, done)
            raise
        if place == len(asked) or time.monotonic() - began > _TOGETHER_SECONDS:
            _send(connection, done)
            began = time.monotonic()
        if isinstance(request, DecodeRequest) and request.drops_page_cache:
            drop_pages(request.path)


def _said(
    request: DecodeRequest | SpecCheck, prepare: Prepare, slots: SlotMemory, slot: SlotLease
) -> DecodeResponse:
    try:
        answer = prepare(request)
    except OSError as error:
        if error.errno is None:
            raise
        return ReadError(error.errno)
    return answer if isinstance(answer, Checked) else _placed(answer, slots, slot)


def _send(connection: Connection, done: list[DecodeResponse]) -> None:
    """Send the results and forget them.

    Arrays that are too large for a slot may be in the file's pages.
    """
    if done:
        connection.send_bytes(pickle.dumps(done))  # `send` looks each class up in a chain of tables
        done.clear()


def _shared_slots(connection: Connection) -> SlotMemory:
    area: Area = connection.recv()
    return SlotMemory(area, recv_handle(connection))


@lru_cache(8)
def _terms(pickled: bytes) -> Terms:
    terms: Terms = pickle.loads(pickled)  # noqa: S301 - from the analyser
    return terms


def _placed(
    answer: Answer | DecodedImage, slots: SlotMemory, lease: SlotLease
) -> Answer | DecodedImage | SlotResponse:
    """Return the result with its arrays in the request's slot, if they fit."""
    arrays = arrays_of(answer)
    placed = slots.write(lease, arrays) if arrays else None
    return (
        answer
        if placed is None
        else SlotResponse(with_arrays(answer, [_ELSEWHERE] * len(arrays)), placed)
    )


_ELSEWHERE: Final[Any] = None  # an empty array takes ten times as long to pickle


def arrays_of(answer: Answer | DecodedImage) -> list[Array]:
    """Return the large parts of a result, its arrays."""
    if isinstance(answer, DecodedImage):
        return [picture.array for picture in answer.pictures]
    return [item.tensor for item in answer.values() if isinstance(item, Ready)]


def with_arrays(answer: Answer | DecodedImage, arrays: Sequence[Array]) -> Answer | DecodedImage:
    """Return the same result with other arrays, in the order of `arrays_of`."""
    if isinstance(answer, DecodedImage):
        pictures = (
            replace(picture, array=array)
            for picture, array in zip(answer.pictures, arrays, strict=True)
        )
        return replace(answer, pictures=tuple(pictures))
    left = iter(arrays)
    return {
        name: item._replace(tensor=next(left)) if isinstance(item, Ready) else item
        for name, item in answer.items()
    }

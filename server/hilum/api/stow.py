"""STOW-RS (PS3.18 10.5): objects in one multipart request, stored as by C-STORE; the request is the whole study.

Streamed: a part is written while it comes in, and no more than a piece of it is ever in memory.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from enum import Enum, auto
from typing import Annotated, Any, Final, Protocol, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from hilum.api.fields import StudyUid
from hilum.api.parts import Parts, PartsHere
from hilum.api.problems import documented

PREFIX: Final = "/dicom-web"
MEDIA_TYPE: Final = "application/dicom+json"
router = APIRouter(prefix=PREFIX, tags=["Store"])

_PIECE_BYTES: Final = 1 << 20
_PREAMBLE_BYTES: Final = 64 << 10  # text for people whose programs know no multipart; real ones are a line
# Of their own: requests that wait for disk or ledger must not take the threads in which pages and health are answered.
_THREADS: Final = CapacityLimiter(16)
_T = TypeVar("_T")


class Stowed(Protocol):
    """What became of one part. `failure`: a status of PS3.4 B.2.3 that became a Failure Reason (PS3.18 I.2.2), None: it is stored."""

    @property
    def sop_class_uid(self) -> str:
        """Empty: it did not say."""

    @property
    def sop_instance_uid(self) -> str:
        """Empty: it did not say."""

    @property
    def study_instance_uid(self) -> str:
        """Of an image that is stored; else empty."""

    @property
    def failure(self) -> int | None:
        """The reason."""

    @property
    def comment(self) -> str:
        """What the sender should change."""

    @property
    def is_transient(self) -> bool:
        """Whether the same part may be taken later."""


class Part(Protocol):
    """Takes one part. Nothing is raised for what is in it."""

    def write(self, piece: bytes) -> None:
        """The next bytes."""

    def end(self) -> Stowed:
        """There are no more: the object is durable, or refused."""

    def abandon(self) -> None:
        """The request has ended within it."""


class Store(Protocol):
    """Where parts go. All methods block."""

    def refusal(self) -> str | None:
        """Why nothing can be taken now, or None."""

    def begin(self, study_instance_uid: str | None, peer_address: str) -> Part:
        """A new part; it must belong to the study, where one is given."""

    def close(self, stowed: Sequence[Stowed]) -> None:
        """The request is over, and so are its studies: their images are all there."""


def _store(parts: PartsHere) -> Store:
    assert parts.store is not None, "without one there is no such route"
    return parts.store


StoreHere = Annotated[Store, Depends(_store)]
_DOCUMENTED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {MEDIA_TYPE: {}}, "description": "All parts are stored."},
    202: {"content": {MEDIA_TYPE: {}}, "description": "Some parts are stored; the others are listed with their reasons."},
    409: {"content": {MEDIA_TYPE: {}}, "description": "No part is stored; all are listed with their reasons."},
    **documented(400, 408, 415),
}
_BODY: Final = {
    "requestBody": {"required": True, "content": {'multipart/related; type="application/dicom"': {"schema": {"type": "string"}}}}
}


@router.post("/studies", responses=_DOCUMENTED, openapi_extra=_BODY, summary="Store instances (STOW-RS)")
async def store_instances(request: Request, parts: PartsHere, store: StoreHere) -> JSONResponse:
    """Store DICOM objects of any studies. Each study is closed with the request: no quiet period runs."""
    return await _stored(request, parts, store, None)


@router.post("/studies/{study_instance_uid}", responses=_DOCUMENTED, openapi_extra=_BODY, summary="Store instances of a study (STOW-RS)")
async def store_instances_of_study(request: Request, parts: PartsHere, store: StoreHere, study_instance_uid: StudyUid) -> JSONResponse:
    """The same for one study; objects of others are refused."""
    return await _stored(request, parts, store, study_instance_uid)


async def _stored(request: Request, parts: Parts, store: Store, study: str | None) -> JSONResponse:
    try:
        return await _store_parts(request, parts.settings.receive.network_timeout_seconds, store, study)
    except asyncio.CancelledError:  # by the web server at its end; it would log a traceback, and the sender hear nothing
        raise HTTPException(503, "The server stops; send the request again.", {"Retry-After": "10"}) from None


async def _store_parts(request: Request, seconds: float, store: Store, study: str | None) -> JSONResponse:
    boundary = _boundary(request)
    if (reason := await _in_thread(store.refusal)) is not None:
        raise HTTPException(503, reason, {"Retry-After": "10"})
    peer = request.client.host if request.client else ""
    stowed = await _take(_chunks(request.stream(), seconds), boundary, lambda: store.begin(study, peer))
    if not stowed:
        raise HTTPException(400, "The request holds no part.")
    await _in_thread(store.close, stowed)
    return _answer(stowed)


async def _in_thread(step: Callable[..., _T], *arguments: object) -> _T:
    return await run_sync(step, *arguments, limiter=_THREADS)


def _boundary(request: Request) -> bytes:
    """Raises 415 and 400."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    if kind != b"multipart/related" or options.get(b"type", b"application/dicom") != b"application/dicom":
        raise HTTPException(
            415, 'Send multipart/related; type="application/dicom" (PS3.18 10.5.1): neither metadata apart nor a bare object.'
        )
    if not options.get(b"boundary"):
        raise HTTPException(400, "The Content-Type has no boundary.")
    return options[b"boundary"]


async def _chunks(stream: AsyncIterator[bytes], seconds: float) -> AsyncIterator[bytes]:
    """Raises 408 if the next one does not come in time."""
    while True:
        try:
            async with asyncio.timeout(seconds):
                chunk = await anext(stream, None)
        except TimeoutError as error:
            detail = f"Nothing more came for {seconds:g} s (receive.network_timeout_seconds); complete parts before that are stored."
            raise HTTPException(408, detail, {"Connection": "close"}) from error
        if chunk is None:
            return
        yield chunk


async def _take(stream: AsyncIterator[bytes], boundary: bytes, begin: Callable[[], Part]) -> list[Stowed]:
    """All parts, one after the other."""
    part: _OneStepAtATime | None = None
    stowed: list[Stowed] = []
    try:
        events = _Events(boundary)
        async for chunk in stream:
            for event in events.of(chunk):
                if event is _Mark.BEGIN:
                    part = _OneStepAtATime(await _in_thread(begin))
                elif part is not None and event is _Mark.END:
                    stowed.append(await _in_thread(part.end))
                    part = None
                elif part is not None and isinstance(event, bytes):
                    await _in_thread(part.write, event)
        events.require_beginning()
        if not events.is_complete:
            raise HTTPException(400, "The request ends without its closing boundary; what was complete before that is stored.")
    except FormParserError as error:
        raise HTTPException(
            400, f"The request is not a multipart body of this boundary ({error}); complete parts before that are stored."
        ) from error
    except ClientDisconnect as error:
        raise HTTPException(400, "The request was not sent to its end.") from error
    finally:
        if part is not None:
            await _abandon(part)
    return stowed


async def _abandon(part: _OneStepAtATime) -> None:
    """Also when this task is cancelled in it, as all are at the end of the process: then here, before the thread could begin."""
    try:
        await _in_thread(part.abandon)
    except asyncio.CancelledError:
        part.abandon()
        raise


class _OneStepAtATime:
    """A part, for threads: behind a task that is cancelled a step still runs, or has yet to begin."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._lock = threading.Lock()
        self._is_abandoned = False

    def write(self, piece: bytes) -> None:
        """The next bytes."""
        self._do(self._part.write, piece)

    def end(self) -> Stowed:
        """There are no more."""
        return self._do(self._part.end)

    def abandon(self) -> None:
        """After the step that runs; no other one begins. Idempotent."""
        with self._lock:
            if not self._is_abandoned:
                self._is_abandoned = True
                self._part.abandon()

    def _do(self, step: Callable[..., _T], *arguments: object) -> _T:
        with self._lock:
            if self._is_abandoned:
                raise ClientDisconnect  # nobody waits for it
            return step(*arguments)


class _Mark(Enum):
    BEGIN = auto()
    END = auto()


class _Events:
    """Chunks of a body to what they hold: the beginning of a part, pieces of it, its end. Small chunks are gathered.

    What is before the first delimiter is ignored (RFC 2046 5.1.1), of which the parser knows nothing.
    """

    def __init__(self, boundary: bytes) -> None:
        """Raises FormParserError."""
        self._first = re.compile(rb"(?:\A[\r\n]*|\r\n)(--%b)(?=\r\n|--)" % re.escape(boundary))
        self._reach = len(boundary) + 6  # what of a delimiter may lie in chunks before
        self._preamble: bytearray | None = bytearray()
        self._found: list[bytes | _Mark] = []
        self._piece = bytearray()
        self.is_complete = False
        callbacks: dict[str, Callable[..., None]] = {
            "on_part_begin": lambda: self._found.append(_Mark.BEGIN),
            "on_part_data": self._data,
            "on_part_end": self._part_end,
            "on_end": self._end,
        }
        self._parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]  # its types are a TypedDict of the same

    def of(self, chunk: bytes) -> Iterator[bytes | _Mark]:
        """Raises FormParserError."""
        if self._preamble is not None:
            chunk = self._without_preamble(self._preamble, chunk)
        self._parser.write(chunk)
        if len(self._piece) >= _PIECE_BYTES:
            self._flush()
        found, self._found = self._found, []
        return iter(found)

    def require_beginning(self) -> None:
        """At the end of the body. Raises FormParserError."""
        if self._preamble:
            raise FormParserError("no part begins with it")

    def _without_preamble(self, preamble: bytearray, chunk: bytes) -> bytes:
        looked_at = max(0, len(preamble) - self._reach)
        preamble += chunk
        if (found := self._first.search(preamble, looked_at)) is not None:
            self._preamble = None
            return bytes(preamble[found.start(1) :])
        if len(preamble) > _PREAMBLE_BYTES:
            raise FormParserError("no part begins with it in the first 64 KiB")
        return b""

    def _data(self, data: bytes, start: int, end: int) -> None:
        self._piece += memoryview(data)[start:end]

    def _flush(self) -> None:
        if self._piece:
            self._found.append(bytes(self._piece))
            self._piece.clear()

    def _part_end(self) -> None:
        self._flush()
        self._found.append(_Mark.END)

    def _end(self) -> None:
        self.is_complete = True


def _answer(stowed: list[Stowed]) -> JSONResponse:
    """Store Instances Response Module (PS3.18 I.2)."""
    good = [item for item in stowed if item.failure is None]
    named = [item for item in stowed if item.failure is not None and item.sop_instance_uid]
    unnamed = [item for item in stowed if item.failure is not None and not item.sop_instance_uid]
    content: dict[str, Any] = {"00081190": {"vr": "UR"}}
    if good:
        content["00081199"] = _sequence([_reference(item) for item in good])
    if named:
        content["00081198"] = _sequence([_reference(item) | _failure(item) for item in named])
    if unnamed:
        content["0008119A"] = _sequence([_failure(item) for item in unnamed])
    status = _status(stowed)
    return JSONResponse(content, status, media_type=MEDIA_TYPE, headers={"Retry-After": "10"} if status == 503 else None)


def _status(stowed: list[Stowed]) -> int:
    failed = [item for item in stowed if item.failure is not None]
    if len(failed) < len(stowed):
        return 202 if failed else 200
    return 503 if all(item.is_transient for item in failed) else 409


def _sequence(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"vr": "SQ", "Value": items}


def _reference(item: Stowed) -> dict[str, Any]:
    return {"00081150": {"vr": "UI", "Value": [item.sop_class_uid]}, "00081155": {"vr": "UI", "Value": [item.sop_instance_uid]}}


def _failure(item: Stowed) -> dict[str, Any]:
    """The reason, and in words what to change: Error Comment (0000,0902), as C-STORE says it."""
    return {"00081197": {"vr": "US", "Value": [item.failure]}, "00000902": {"vr": "LO", "Value": [item.comment]}}

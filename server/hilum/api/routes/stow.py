"""STOW-RS (PS3.18 10.5): objects in one multipart request, stored as by C-STORE.

The request is the whole study. It is streamed: a part is written while it arrives, and at most one
piece is in memory.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Final, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from hilum.api.dependencies import Dependencies, PartsHere
from hilum.api.fields import StudyUid
from hilum.api.guard import guarded
from hilum.api.problems import documented
from hilum.api.routes.stow_body import STORED, Events, Mark, chunks
from hilum.api.stow_store import Part, Store, Stowed, Visit, VisitedRoute
from hilum.domain import Scope
from hilum.settings import Settings
from hilum.verbs import NoVerb, performs

_TAKES: Final = NoVerb("received objects have their row among the associations, as by C-STORE")
PREFIX: Final = "/dicom-web"
MEDIA_TYPE: Final = "application/dicom+json"
router = APIRouter(
    prefix=PREFIX, tags=["Store"], route_class=VisitedRoute, dependencies=guarded(Scope.OPERATE)
)

# Of their own: requests that wait for disk or ledger must not take the threads in which pages and
# health are answered.
_THREADS: Final = CapacityLimiter(16)
_CODINGS: Final = frozenset(
    {"gzip", "x-gzip", "deflate", "compress", "x-compress", "br", "zstd"}
)  # whose names may be repeated
_MAXIMUM_UNNAMED: Final = (
    100  # parts that are no DICOM files; a program that sends so many sends nothing else
)
_T = TypeVar("_T")


def _store(parts: PartsHere) -> Store:
    assert parts.store is not None, "without one there is no such route"
    return parts.store


StoreHere = Annotated[Store, Depends(_store)]
_DOCUMENTED: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {MEDIA_TYPE: {}}, "description": "All parts are stored."},
    202: {
        "content": {MEDIA_TYPE: {}},
        "description": "Some parts are stored; the others are listed with their reasons.",
    },
    409: {
        "content": {MEDIA_TYPE: {}},
        "description": "No part is stored; all are listed with their reasons.",
    },
    **documented(400, 408, 413, 415),
}
_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {'multipart/related; type="application/dicom"': {"schema": {"type": "string"}}},
    }
}


@router.post(
    "/studies", responses=_DOCUMENTED, openapi_extra=_BODY, summary="Store instances (STOW-RS)"
)
@performs(_TAKES)
async def store_instances(request: Request, parts: PartsHere, store: StoreHere) -> JSONResponse:
    """Store DICOM objects of any studies.

    Each study is closed with the request: no quiet period runs.
    """
    return await _stored(request, parts, store, None)


@router.post(
    "/studies/{study_instance_uid}",
    responses=_DOCUMENTED,
    openapi_extra=_BODY,
    summary="Store instances of a study (STOW-RS)",
)
@performs(_TAKES)
async def store_instances_of_study(
    request: Request, parts: PartsHere, store: StoreHere, study_instance_uid: StudyUid
) -> JSONResponse:
    """The same for one study; objects of others are refused."""
    return await _stored(request, parts, store, study_instance_uid)


async def _stored(
    request: Request, parts: Dependencies, store: Store, study: str | None
) -> JSONResponse:
    try:
        return await _store_parts(request, parts.settings, store, study)
    except (
        asyncio.CancelledError
    ):  # by the web server at its end; it would log a traceback, and the sender hear nothing
        raise HTTPException(
            503, "The server stops; send the request again.", {"Retry-After": "10"}
        ) from None


async def _store_parts(
    request: Request, settings: Settings, store: Store, study: str | None
) -> JSONResponse:
    boundary = _boundary(request)
    visit: Visit = request.state.visit
    if (reason := await _in_thread(visit.refusal)) is not None:
        raise HTTPException(503, reason, {"Retry-After": "10"})
    stream = chunks(request.stream(), settings.receive)
    stowed = await _take(stream, boundary, lambda: visit.begin(study), settings.stow.maximum_parts)
    if not stowed:
        raise HTTPException(400, "The request holds no part.")
    await _in_thread(store.close, stowed)
    return _answer(stowed)


async def _in_thread(step: Callable[..., _T], *arguments: object) -> _T:
    return await run_sync(step, *arguments, limiter=_THREADS)


def _boundary(request: Request) -> bytes:
    """Raises 415 and 400."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    if (
        kind != b"multipart/related"
        or options.get(b"type", b"application/dicom").lower() != b"application/dicom"
    ):
        raise HTTPException(
            415,
            'Send multipart/related; type="application/dicom" (PS3.18 10.5.1): neither metadata'
            " apart nor a bare object.",
        )
    codings = {
        coding.strip().lower()
        for line in request.headers.getlist("content-encoding")
        for coding in line.split(",")
    }
    if codings - {"", "identity"}:
        named = ", ".join(sorted(codings & _CODINGS)) or "this one"
        raise HTTPException(
            415,
            f"Send the body as it is: of Content-Encoding {named} nothing is decoded here.",
            {"Accept-Encoding": "identity"},
        )
    if not options.get(b"boundary"):
        raise HTTPException(400, "The Content-Type has no boundary.")
    return options[b"boundary"]


async def _take(
    stream: AsyncIterator[bytes], boundary: bytes, begin: Callable[[], Part], maximum_parts: int
) -> list[Stowed]:
    """All parts, one after the other."""
    part: _OneStepAtATime | None = None
    stowed: list[Stowed] = []
    try:
        events = Events(boundary)
        async for chunk in stream:
            for event in events.of(chunk):
                if event is Mark.BEGIN:
                    _require_few(stowed, maximum_parts)
                    part = _OneStepAtATime(await _in_thread(begin))
                elif part is not None and event is Mark.END:
                    stowed.append(await _in_thread(part.end))
                    part = None
                elif part is not None and isinstance(event, bytes):
                    await _in_thread(part.write, event)
        events.require_beginning()
        if not events.is_complete:
            raise HTTPException(
                400,
                "The request ends without its closing boundary; what was complete before that is"
                " stored.",
            )
    except FormParserError as error:
        raise HTTPException(
            400,
            f"The request is not a multipart body of this boundary ({error}); complete parts before"
            " that are stored.",
        ) from error
    except ClientDisconnect as error:
        raise HTTPException(400, "The request was not sent to its end.") from error
    finally:
        if part is not None:
            await _abandon(part)
    return stowed


def _require_few(stowed: list[Stowed], maximum_parts: int) -> None:
    """Raises 413 and 400 where one more part is too many.

    An empty one, too, takes two steps of a thread and a place in the answer.
    """
    if len(stowed) >= maximum_parts:
        raise _too_many(
            413,
            f"The request has more than {maximum_parts} parts (stow.maximum_parts): send several"
            " requests",
        )
    if (
        stowed
        and not stowed[-1].sop_instance_uid
        and sum(not item.sop_instance_uid for item in stowed) >= _MAXIMUM_UNNAMED
    ):
        raise _too_many(
            400, f"{_MAXIMUM_UNNAMED} parts of the request are no DICOM files, and it has more"
        )


def _too_many(status: int, detail: str) -> HTTPException:
    return HTTPException(status, f"{detail}; {STORED}", {"Connection": "close"})


async def _abandon(part: _OneStepAtATime) -> None:
    """Also when this task is cancelled in it, as all are at the end of the process.

    Then here, before the thread could begin.
    """
    try:
        await _in_thread(part.abandon)
    except asyncio.CancelledError:
        part.abandon()
        raise


class _OneStepAtATime:
    """A part, for threads: after its task is cancelled, a step may still run or even begin."""

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
                raise ClientDisconnect  # the client has gone
            return step(*arguments)


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
    return JSONResponse(
        content,
        status,
        media_type=MEDIA_TYPE,
        headers={"Retry-After": "10"} if status == 503 else None,
    )


def _status(stowed: list[Stowed]) -> int:
    failed = [item for item in stowed if item.failure is not None]
    if len(failed) < len(stowed):
        return 202 if failed else 200
    return 503 if all(item.is_transient for item in failed) else 409


def _sequence(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"vr": "SQ", "Value": items}


def _reference(item: Stowed) -> dict[str, Any]:
    return {
        "00081150": {"vr": "UI", "Value": [item.sop_class_uid]},
        "00081155": {"vr": "UI", "Value": [item.sop_instance_uid]},
    }


def _failure(item: Stowed) -> dict[str, Any]:
    """Return the reason and the remedy, as C-STORE gives them in Error Comment (0000,0902)."""
    return {
        "00081197": {"vr": "US", "Value": [item.failure]},
        "00000902": {"vr": "LO", "Value": [item.comment]},
    }

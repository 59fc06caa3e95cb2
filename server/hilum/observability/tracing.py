"""OpenTelemetry spans, from the association to the SR that its PACS has accepted.

One trace a study (docs/operate/tracing.md). Off by default.

The ids of a study's trace and of its root follow from its UID. So processes that meet only in the
ledger write into one trace, and nothing is stored for it
(docs/decisions/traces-without-columns.md). A span is written when it has ended, from its two times.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import random
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

Kind = Literal["internal", "server", "client"]
Value = str | int | float | bool
Attributes = Mapping[str, Value | None]
"""Without the prefix `hilum.`; None is left out."""

_SAMPLED: Final = "01"  # the trace flags of W3C Trace Context
_KNOWN_TRACES: Final = 4_096
_SHOWN_IN: Final = 256  # traces in which one association is shown


@dataclass(frozen=True, slots=True)
class Trace:
    """A study's trace: its 128 bits, and the 64 of its root span."""

    id: int
    root: int
    study_instance_uid: str


@dataclass(frozen=True, slots=True)
class SpanParent:
    """A span that has not ended; spans of its work name it as their parent."""

    trace: Trace
    span: int

    @property
    def traceparent(self) -> str:
        """As a request's header carries it (W3C Trace Context 3.2)."""
        return f"00-{self.trace.id:032x}-{self.span:016x}-{_SAMPLED}"


@dataclass(frozen=True, slots=True)
class FinishedSpan:
    """A span as it is written. Times are seconds since the epoch; `error`: why it failed."""

    place: SpanParent
    parent: int | None
    name: str
    began: float
    ended: float
    kind: Kind = "internal"
    attributes: Attributes = field(default_factory=dict)
    error: str | None = None
    links: Sequence[SpanParent] = ()


class Writer(Protocol):
    """Takes spans from any thread, and never waits."""

    def write(self, span: FinishedSpan) -> None:
        """Send it soon, or drop it."""

    def close(self) -> None:
        """Send the remaining spans, for a moment at most."""


class _Process:
    """The state that `begin` has set."""

    writer: Writer | None = None
    key = b""
    share = 0.0


_here: ContextVar[SpanParent | None] = ContextVar("hilum_place", default=None)


def begin(writer: Writer, share: float, namespace: uuid.UUID) -> None:
    """Write spans of this share of studies there.

    `namespace`: the installation's, so that no two of them share a trace.
    """
    close()
    _Process.writer = writer
    _Process.share = share
    _Process.key = namespace.bytes


def close() -> None:
    """Write no more."""
    writer = _Process.writer
    _Process.writer = None
    _sampled.cache_clear()
    if writer is not None:
        writer.close()


def is_on() -> bool:
    """Whether spans are written at all."""
    return _Process.writer is not None


def of_study(study_instance_uid: str) -> Trace | None:
    """Return the trace of a study; None: tracing is off, or the study is not sampled.

    All processes, of all hosts, agree.
    """
    return None if _Process.writer is None else _sampled(study_instance_uid)


@functools.lru_cache(_KNOWN_TRACES)
def _sampled(study_instance_uid: str) -> Trace | None:
    found = hashlib.blake2b(study_instance_uid.encode(), key=_Process.key, digest_size=24).digest()
    if int.from_bytes(found[:8]) >= _Process.share * 2**64:
        return None
    return Trace(
        int.from_bytes(found[:16]) or 1, int.from_bytes(found[16:]) or 1, study_instance_uid
    )


def here() -> SpanParent | None:
    """The span of the work that this task does, if it is traced."""
    return _here.get()


def enter(place: SpanParent | None) -> None:
    """Make the span the parent of the further work of this task."""
    _here.set(place)


def request_headers() -> dict[str, str] | None:
    """Return the context with which another process continues this task's trace."""
    place = _here.get()
    return None if place is None else {"traceparent": place.traceparent}


def write(span: FinishedSpan) -> None:
    """Write a span."""
    if (writer := _Process.writer) is not None:
        writer.write(span)


def new_place(trace: Trace) -> SpanParent:
    """For a span that begins."""
    return SpanParent(trace, random.getrandbits(64) or 1)


def study(
    study_instance_uid: str, began: float, ended: float, attributes: Attributes, *, is_first: bool
) -> None:
    """The root of a study's trace: first image to decision.

    That of a late image hangs below the first one's.
    """
    if (trace := of_study(study_instance_uid)) is not None:
        place = SpanParent(trace, trace.root) if is_first else new_place(trace)
        write(
            FinishedSpan(
                place,
                None if is_first else trace.root,
                "study",
                began,
                ended,
                attributes=attributes,
            )
        )


class Work:
    """A span in progress; its work sets the outcome."""

    def __init__(self) -> None:
        self.said: dict[str, Value | None] = {}
        self.error: str | None = None

    def ends(self, outcome: str, reason: str | None = None, *, is_error: bool = False) -> None:
        """Set the outcome, and the reason of a failure."""
        self.said = {"outcome": outcome, "reason": reason}
        self.error = (reason or outcome) if is_error else None


UNTRACED: Final = Work()


@contextlib.contextmanager
def _traced(place: SpanParent, name: str, kind: Kind, attributes: Attributes) -> Iterator[Work]:
    work = Work()
    began = time.time()
    token = _here.set(place)
    try:
        yield work
    finally:
        _here.reset(token)
        said = {**attributes, **work.said}
        write(
            FinishedSpan(place, place.trace.root, name, began, time.time(), kind, said, work.error)
        )


def work(
    name: str, study_instance_uid: str | None, attributes: Attributes, kind: Kind = "internal"
) -> contextlib.AbstractContextManager[Work]:
    """A stretch of this task's work on a study, below its root."""
    trace = None if study_instance_uid is None else of_study(study_instance_uid)
    return (
        contextlib.nullcontext(UNTRACED)
        if trace is None
        else _traced(new_place(trace), name, kind, attributes)
    )


class AssociationSpan:
    """Shown in the trace of each study of which it has brought something.

    Used from the one thread that takes its objects.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._began = time.time()
        self._span = random.getrandbits(64) or 1
        self._traces: dict[int, Trace] = {}

    def place_in(self, trace: Trace) -> SpanParent | None:
        """Return a link; None: the span is linked from too many already."""
        if trace.id not in self._traces:
            if len(self._traces) >= _SHOWN_IN:
                return None
            self._traces[trace.id] = trace
        return SpanParent(trace, self._span)

    def end(self, attributes: Attributes) -> None:
        """Once."""
        for trace in self._traces.values():
            write(
                FinishedSpan(
                    SpanParent(trace, self._span),
                    trace.root,
                    self._name,
                    self._began,
                    time.time(),
                    "server",
                    attributes,
                )
            )

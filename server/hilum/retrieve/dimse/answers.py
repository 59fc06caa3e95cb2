"""C-FIND: the request, its responses as answers, and where the answer is cut off (PS3.4 C.4.1)."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass
from typing import Any, Final

from pydicom.datadict import dictionary_has_tag, dictionary_keyword, dictionary_VR
from pydicom.dataset import Dataset
from pydicom.errors import InvalidDicomError
from pynetdicom.dimse_primitives import C_FIND
from pynetdicom.dsutils import decode, encode

from hilum.dicom.charset import texts_of
from hilum.retrieve.dimse.association import PacsAssociation
from hilum.retrieve.dimse.contexts import STUDY_ROOT_FIND
from hilum.retrieve.dimse.identifiers import optional_keys, query_identifier
from hilum.retrieve.dimse.request import DimseResponse, PendingRequest, RequestEnd, RequestLimits
from hilum.retrieve.dimse.statuses import (
    CANCELLED,
    OUT_OF_RESOURCES,
    PENDING_WITHOUT_KEYS,
    SUCCESS,
    is_pending,
    meaning_of,
    status_text,
)
from hilum.retrieve.source import Answer, Answers, Query, SourceError
from hilum.settings import DimseSource

# A query may take as long as so many messages: a server may send Pending without end.
_MESSAGES: Final = 10
_MEDIUM_PRIORITY: Final = 0
_CHARACTER_SET: Final = 0x00080005
_CODED: Final = frozenset({"LO", "LT", "PN", "SH", "ST", "UC", "UT"})
_BYTES: Final = frozenset({"OB", "OB or OW", "OD", "OF", "OL", "OV", "OW", "SQ", "UN"})
_NUMBERS: Final = frozenset({"AT", "FD", "FL", "SL", "SS", "SV", "UL", "US", "US or SS", "UV"})
_NO_TEXT: Final = _BYTES | _NUMBERS


@dataclass(frozen=True, slots=True)
class Collected:
    """The answers of one query.

    `was_cancelled`: by us, at one more than the limit. `status`: the final one; None: the source
    ignored the cancel.
    """

    answers: Answers
    was_cancelled: bool
    status: int | None


def find(association: PacsAssociation, settings: DimseSource, query: Query) -> Collected:
    """Return the matches of a query, at most one more than its limit. Raises SourceError."""
    identifier = query_identifier(query, settings.ignores)
    syntax = association.transfer_syntax(STUDY_ROOT_FIND)
    message = C_FIND()
    message.Priority = _MEDIUM_PRIORITY
    message.Identifier = io.BytesIO(encoded(identifier, syntax))
    limits = RequestLimits(settings.timeout_seconds * _MESSAGES, settings.timeout_seconds)
    request = association.request(STUDY_ROOT_FIND, message, limits)
    collector = _Collector(request, syntax, query.limit, settings)
    return collector.run(optional_keys(identifier))


class _Collector:
    """Collects the answers of one request."""

    def __init__(
        self,
        request: PendingRequest,
        syntax: Any,  # noqa: ANN401 - pynetdicom ships no types
        limit: int,
        settings: DimseSource,
    ) -> None:
        self._request = request
        self._syntax = syntax
        self._limit = limit
        self._settings = settings
        self._items: list[Answer] = []
        self._ignores_keys = False
        self._status: int | None = None

    def run(self, optional: tuple[str, ...]) -> Collected:
        """Return them when the request is over. Raises SourceError."""
        with contextlib.closing(self._request.responses()) as responses:
            for response in responses:
                self._take(response)
        is_cut_off = self._is_cut_off()
        ignored = optional if self._ignores_keys else ()
        answers = Answers(self._items, is_cut_off, ignored)
        return Collected(answers, self._request.was_cancelled, self._status)

    def _take(self, response: DimseResponse) -> None:
        if not is_pending(response.status):
            self._status = response.status
            return
        self._ignores_keys |= response.status == PENDING_WITHOUT_KEYS
        if response.identifier and len(self._items) <= self._limit:
            self._items.append(self._decoded(response.identifier))
        if len(self._items) > self._limit:
            self._request.cancel()

    def _is_cut_off(self) -> bool:
        if len(self._items) > self._limit:
            return True
        if self._status is None or self._request.end is not RequestEnd.ANSWERED:
            raise self._unanswered()
        if self._status in (CANCELLED, OUT_OF_RESOURCES):
            return True
        if self._status != SUCCESS:
            raise SourceError(
                f"{self._settings.address} answered a query by {status_text(self._status)}",
                is_final=meaning_of(self._status).is_final,
            )
        return False

    def _unanswered(self) -> UnansweredQuery:
        seconds = self._settings.timeout_seconds
        texts = {
            RequestEnd.SILENT: f"gave no answer within {seconds:g} s (timeout_seconds)",
            RequestEnd.TIMED_OUT: f"did not end its answer within {seconds * _MESSAGES:g} s",
        }
        text = texts.get(self._request.end)
        if text is None:
            ours = self._settings.calling_ae_title
            text = (
                "ended the association during a query; is our AE Title"
                f" {ours} registered there for queries? Its log says why"
            )
        return UnansweredQuery(f"{self._settings.address} {text}")

    def _decoded(self, identifier: bytes) -> Answer:
        try:
            return decoded(identifier, self._syntax)
        except (InvalidDicomError, OSError, ValueError, KeyError, EOFError) as error:
            raise SourceError(
                f"{self._settings.address} sent an answer that cannot be read"
                f" ({type(error).__name__}); ask its vendor"
            ) from error


class UnansweredQuery(SourceError):
    """A query that got no final response: silence, a limit, or an association that ended."""


def encoded(identifier: Dataset, syntax: Any) -> bytes:  # noqa: ANN401 - pynetdicom ships no types
    """Return an identifier in the Transfer Syntax of its context."""
    data = encode(identifier, syntax.is_implicit_VR, syntax.is_little_endian, syntax.is_deflated)
    if not data:
        raise SourceError("an identifier cannot be encoded; correct the keys of the query")
    return bytes(data)


def decoded(identifier: bytes, syntax: Any) -> Answer:  # noqa: ANN401 - the same
    """Return an answer: keyword to text. Values without a text are left out."""
    dataset = decode(
        io.BytesIO(identifier),
        syntax.is_implicit_VR,
        syntax.is_little_endian,
        syntax.is_deflated,
    )
    raw = {int(tag): _bytes_of(dataset.get_item(tag)) for tag in list(dataset.keys())}
    names = raw.get(_CHARACTER_SET, b"")
    found = {
        dictionary_keyword(tag): _text_of(dictionary_VR(tag), value, names)
        for tag, value in raw.items()
        if dictionary_has_tag(tag)
    }
    return {keyword: text for keyword, text in found.items() if text}


def _bytes_of(item: Any) -> bytes:  # noqa: ANN401 - RawDataElement or DataElement
    value = getattr(item, "value", None)
    return value if isinstance(value, bytes) else b""


def _text_of(representation: str, value: bytes, names: bytes) -> str:
    """Return a value as text; empty for a representation that holds none."""
    if representation in _NO_TEXT:
        return ""
    if representation in _CODED:
        text = texts_of([value], names)[0]
    else:
        text = value.decode("ascii", "replace")
    return "\\".join(part.strip(" \0") for part in text.split("\\"))

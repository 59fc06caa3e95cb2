"""A DICOMweb server as destination: STOW-RS, one instance a request (PS3.18 10.5)."""

from __future__ import annotations

import uuid
from typing import Final

from hilum import IMPLEMENTATION_CLASS_UID
from hilum.deliver.class_ladder import ClassLadder, instead
from hilum.deliver.client import Probe
from hilum.deliver.http_answers import HttpSender, place_of, probe_of, status_error
from hilum.deliver.scu.statuses import check_status
from hilum.deliver.stow_answer import Statement, StowAnswerError, statement_on
from hilum.domain import Document
from hilum.errors import Refused, Retry
from hilum.observability import telemetry
from hilum.settings import StowDestination
from hilum.web.answers import HttpAnswer
from hilum.web.client import HttpRequest

log = telemetry.logger("deliver")

_DICOM_JSON: Final = "application/dicom+json"
# Statuses of errors whose body may say which instance failed, and why.
_WITH_STATEMENT: Final = frozenset({400, 409})
_SOP_CLASS_REFUSED: Final = 0x0122
_PROCESSING_FAILURE: Final = 0x0110
# Azure's code, outside of the standard. Our UID stands for these bytes alone.
_THERE_ALREADY: Final = 0xB00E
_WARNINGS: Final = range(0xB000, 0xC000)
_NOT_FOUND: Final = 404
_NO_QUERIES: Final = frozenset({405, 501})


class StowClient:
    """The client to a DICOMweb server: one kept connection, one document at a time."""

    def __init__(self, name: str, destination: StowDestination) -> None:
        self._name = name
        self._address = destination.address
        self._studies = f"{destination.url.rstrip('/')}/studies"
        self._where = place_of(destination.url)
        self._ladder = ClassLadder(destination)
        self._sender = HttpSender(destination)

    def deliver(self, document: Document) -> None:
        """Return when the server has named the instance as stored.

        See `DestinationClient.deliver`.
        """
        if document.sop_class_uid is None:
            raise Refused(
                "not_a_dicom_object", f"{document.kind} is no DICOM object; send it elsewhere"
            )
        lower = next(iter(self._ladder.below(document.sop_class_uid)), None)
        if lower is not None and self._ladder.leaves_out(document.sop_class_uid):
            raise instead(self._where, document.sop_class_uid, lower)
        answer = self._sender.send(store_request(self._studies, document), also=_WITH_STATEMENT)
        try:
            self._check(answer, document)
        except Refused as error:
            if lower is None or error.reason != "sop_class_refused":
                raise
            raise instead(self._where, document.sop_class_uid, lower) from error

    def probe(self, limit_seconds: float | None = None) -> Probe:
        """Ask for a study that no archive has (see `DestinationClient.probe`)."""
        return probe_of(self._name, self._address, lambda: self._asked(limit_seconds))

    def close(self) -> None:
        """Close the connection."""
        self._sender.close()

    def _check(self, answer: HttpAnswer, document: Document) -> None:
        """Return when the answer says that the instance is stored. Raises Retry or Refused."""
        try:
            found = statement_on(str(document.sop_instance_uid), answer.media_type, answer.body)
        except StowAnswerError as error:
            if not answer.is_success:
                raise status_error(answer, self._where) from error
            media_type = answer.media_type or "nothing that says its type"
            raise self._unclear(answer, f"its answer is {media_type}: {error}") from error
        if found.is_failed and not found.is_stored:
            self._check_failure(answer, found)
        elif not answer.is_success and not found.is_stored:
            raise status_error(answer, self._where)
        elif not answer.is_success or not found.is_stored or found.is_failed:
            raise self._unclear(answer, _contradiction(found))
        if found.warning:
            log.info(
                "stored_with_warning",
                destination=self._name,
                sop_instance_uid=document.sop_instance_uid,
                warning=f"0x{found.warning:04X}",
            )

    def _check_failure(self, answer: HttpAnswer, found: Statement) -> None:
        """Return for an instance that is there already. Raises Retry or Refused for others."""
        code = found.failure
        if code == _THERE_ALREADY:
            return
        if code is None:
            raise self._unclear(answer, "it names our instance as failed, without a reason")
        if code == _PROCESSING_FAILURE:
            raise Refused(
                "data_set_refused",
                f"{self._where} answered 0x{code:04X}: it failed to process the instance; see its"
                " log, then requeue the delivery",
            )
        if code in _WARNINGS or code == 0:
            raise self._unclear(answer, f"it names our instance as failed, with 0x{code:04X}")
        check_status(code, self._where)

    def _unclear(self, answer: HttpAnswer, text: str) -> Retry:
        return Retry(
            f"{self._where} answered HTTP {answer.status}, and {text}; so the document is sent"
            " again. Check `url`, and its log"
        )

    def _asked(self, limit_seconds: float | None) -> str:
        """Return the findings of a probe."""
        # No study has this UID, so an answer shows nothing of a patient.
        query = HttpRequest(
            f"{self._studies}?StudyInstanceUID={IMPLEMENTATION_CLASS_UID}&limit=1",
            headers={"Accept": _DICOM_JSON},
        )
        also = _NO_QUERIES | {_NOT_FOUND}
        answer = self._sender.send(query, also, limit_seconds)
        if answer.is_success:
            return "it answers QIDO-RS; the first document shows whether it stores"
        if answer.status in _NO_QUERIES:
            return "it answers no queries; the first document shows whether it stores"
        self._sender.send(HttpRequest(self._studies, "OPTIONS"), limit_seconds=limit_seconds)
        return "it answers OPTIONS and no queries; the first document shows whether it stores"


def store_request(studies: str, document: Document) -> HttpRequest:
    """Return the request that stores a document, with its stored bytes as they are.

    It goes to /studies and not to /studies/{uid}: the object names its study, and a second name
    could only differ from it. The part names no transfer syntax: ours is the default of
    application/dicom (PS3.18 8.7.3), and Orthanc's plug-in 1.7 skips a part that names one.
    """
    boundary = _boundary(document.content)
    head = f"--{boundary}\r\nContent-Type: application/dicom\r\n\r\n"
    return HttpRequest(
        studies,
        "POST",
        {
            "Content-Type": f'multipart/related; type="application/dicom"; boundary={boundary}',
            "Accept": _DICOM_JSON,
        },
        b"".join([head.encode(), document.content, f"\r\n--{boundary}--\r\n".encode()]),
    )


def _boundary(content: bytes) -> str:
    """Return a boundary that the content does not hold (RFC 2046 5.1.1)."""
    while True:
        boundary = uuid.uuid4().hex
        if boundary.encode() not in content:
            return boundary


def _contradiction(found: Statement) -> str:
    if found.is_stored:
        return "it says both that our instance is stored and that it is not"
    others = f", but {found.others} other" if found.others else ""
    return f"it does not name our instance as stored{others}"

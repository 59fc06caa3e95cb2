"""A strict worklist manager of UPS-RS, on pydicom: our own reading of PS3.4 annex CC.

It refuses what the standard forbids: a wrong transition, a wrong Transaction UID, an attribute that
misses before a final state (PS3.4 table CC.2.5-3), an unknown attribute of a change.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydicom.dataset import Dataset
from pydicom.uid import UID

from tests.support.retrieve.web_server import Received, Reply, WebServer, reply

SCHEDULED: Final = "SCHEDULED"
IN_PROGRESS: Final = "IN PROGRESS"
COMPLETED: Final = "COMPLETED"
CANCELED: Final = "CANCELED"
_FINAL: Final = (COMPLETED, CANCELED)
_TYPE: Final = {"Content-Type": "application/dicom+json"}
_CHANGE: Final = {"TransactionUID", "ProcedureStepState"}
_MAY_CHANGE: Final = {
    "TransactionUID",
    "UnifiedProcedureStepPerformedProcedureSequence",
    "ProcedureStepProgressInformationSequence",
}
_FILTERS: Final = {
    "00741000": "ProcedureStepState",
    "00404041": "InputReadinessState",
}
_DATE_TIME: Final = re.compile(r"\d{14}\.\d{6}[+-]\d{4}")


@dataclass
class Held:
    """One item: its attributes, and the Transaction UID that holds it."""

    data: Dataset
    transaction_uid: str = ""

    @property
    def state(self) -> str:
        """Its Procedure Step State."""
        return str(self.data.ProcedureStepState)


@dataclass
class WorklistManager:
    """Items by SOP Instance UID. Serve it with `server`.

    `faults`: asked for each request first; a reply of its own is sent in place of the answer.
    `losing`: the next request of this method and ending is done, and its answer is lost.
    `ignores_search`: it answers a search with all items, and ignores its limits.
    """

    items: dict[str, Held] = field(default_factory=dict)
    faults: Callable[[Received], Reply | None] = lambda _: None
    losing: tuple[str, str] | None = None
    ignores_search: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, data: Dataset) -> str:
        """Schedule an item."""
        self.items[data.SOPInstanceUID] = Held(data)
        return str(data.SOPInstanceUID)

    def end(self, uid: str, state: str) -> None:
        """End an item as its owner."""
        with self.lock:
            self.items[uid].data.ProcedureStepState = state

    def state(self, uid: str) -> str:
        """The state of an item."""
        return self.items[uid].state

    def performed(self, uid: str) -> Dataset:
        """The item of the Performed Procedure Sequence."""
        (found,) = self.items[uid].data.UnifiedProcedureStepPerformedProcedureSequence
        assert isinstance(found, Dataset)
        return found

    def progress(self, uid: str) -> Dataset:
        """The item of the Progress Information Sequence."""
        (found,) = self.items[uid].data.ProcedureStepProgressInformationSequence
        assert isinstance(found, Dataset)
        return found

    def server(self) -> WebServer:
        """A server of it."""
        return WebServer(self._answer)

    def _answer(self, request: Received) -> Reply:
        with self.lock:
            fault = self.faults(request)
            if fault is not None:
                return fault
            answer = self._done(request)
            losing = self.losing
            if losing and request.method == losing[0] and request.path.endswith(losing[1]):
                self.losing = None
                return Reply(b"")
            return answer

    def _done(self, request: Received) -> Reply:
        assert request.path.startswith("/ups/workitems"), request.path
        if request.method == "GET":
            assert request.headers["accept"] == "application/dicom+json"
        rest = request.path.removeprefix("/ups/workitems").strip("/").split("/")
        if rest == [""]:
            return self._search(request)
        held = self.items.get(rest[0])
        if held is None:
            return reply(404)
        if request.method == "GET" and len(rest) == 1:
            return reply(200, json.dumps([held.data.to_json_dict()]).encode(), _TYPE)
        assert request.headers["content-type"] == "application/dicom+json"
        body = Dataset.from_json(request.body.decode())
        if request.method == "PUT" and rest[1:] in (["state"], ["state", "HILUM%20AI"]):
            return self._change(held, body)
        if request.method == "POST" and len(rest) == 1:
            return self._update(held, body, request.query)
        return reply(405)

    def _search(self, request: Received) -> Reply:
        found = list(self.items.values())
        if not self.ignores_search:
            found = [held for held in found if _matches(held.data, request.query)]
            start = int(request.query.get("offset", "0"))
            found = found[start : start + int(request.query["limit"])]
        if not found:
            return reply(204)
        return reply(200, json.dumps([_answer_of(held.data) for held in found]).encode(), _TYPE)

    def _change(self, held: Held, body: Dataset) -> Reply:
        if {element.keyword for element in body} != _CHANGE:
            return _refused(400, "The request is malformed.")
        wanted = str(body.ProcedureStepState)
        transaction = str(body.TransactionUID)
        if wanted not in (IN_PROGRESS, *_FINAL):
            return _refused(400, "C303")
        problem = _problem_of_change(held, wanted, transaction)
        if problem is not None:
            return problem
        if wanted == IN_PROGRESS:
            assert UID(transaction).is_valid
            held.transaction_uid = transaction
        held.data.ProcedureStepState = wanted
        return reply(200)

    def _update(self, held: Held, body: Dataset, query: Mapping[str, str]) -> Reply:
        if held.state != IN_PROGRESS:
            return _inconsistent()
        given = query.get("transaction-uid", "")
        if given != held.transaction_uid or str(body.TransactionUID) != given:
            return _refused(409, "The Transaction UID is incorrect.")
        if unknown := {element.keyword for element in body} - _MAY_CHANGE:
            return _refused(400, f"These may not be changed: {unknown}")
        del body.TransactionUID
        held.data.update(body)
        return reply(200)


def item(
    uid: str = "1.2.840.1",
    study: str | None = "1.2.3",
    code: tuple[str, str] = ("CXR", "99SITE"),
    readiness: str = "READY",
    priority: str = "MEDIUM",
    images: tuple[str, ...] = (),
) -> Dataset:
    """A scheduled item. `study` None: its input names none."""
    data = Dataset()
    data.SOPClassUID = "1.2.840.10008.5.1.4.34.6.1"
    data.SOPInstanceUID = uid
    data.ProcedureStepState = SCHEDULED
    data.InputReadinessState = readiness
    data.ScheduledProcedureStepPriority = priority
    data.ScheduledProcedureStepStartDateTime = "20261127020000"
    data.PatientName = "Doe^Jane"
    data.ScheduledWorkitemCodeSequence = [coded(*code)]
    data.InputInformationSequence = [] if study is None else [input_of(study, images)]
    return data


def input_of(study: str, images: tuple[str, ...] = ()) -> Dataset:
    """An item of Input Information."""
    data = Dataset()
    data.TypeOfInstances = "DICOM"
    data.StudyInstanceUID = study
    data.ReferencedSOPSequence = [_reference(uid) for uid in images]
    return data


def coded(value: str, scheme: str) -> Dataset:
    """A code."""
    data = Dataset()
    data.CodeValue = value
    data.CodingSchemeDesignator = scheme
    data.CodeMeaning = f"the meaning of {value}"
    return data


def _reference(uid: str) -> Dataset:
    data = Dataset()
    data.ReferencedSOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"
    data.ReferencedSOPInstanceUID = uid
    return data


def _matches(data: Dataset, query: Mapping[str, str]) -> bool:
    for tag, keyword in _FILTERS.items():
        if query.get(tag) not in (None, data.get(keyword)):
            return False
    code = data.ScheduledWorkitemCodeSequence[0]
    return (
        query["00404018.00080100"] == code.CodeValue
        and query["00404018.00080102"] == code.CodingSchemeDesignator
    )


def _answer_of(data: Dataset) -> dict[str, Any]:
    """The attributes of a search."""
    wanted = ("00080018", "00741000", "00404041", "00404018", "00741200", "00404005")
    whole = data.to_json_dict()
    return {tag: whole[tag] for tag in wanted}


def _problem_of_change(held: Held, wanted: str, transaction: str) -> Reply | None:
    """Return the refusal of a transition (PS3.4 table CC.1.1-2); None: it may be made."""
    if wanted == held.state and wanted in _FINAL:
        return _refused(409, f"The UPS is already in the requested state of {wanted}.")
    if held.state in _FINAL:
        return _inconsistent()
    if wanted == IN_PROGRESS:
        return None if held.state == SCHEDULED else _inconsistent()
    return _problem_of_end(held, wanted, transaction)


def _problem_of_end(held: Held, wanted: str, transaction: str) -> Reply | None:
    if held.state != IN_PROGRESS:
        return _refused(409, "C310: not in progress.")
    if transaction != held.transaction_uid:
        return _refused(409, "The Transaction UID is incorrect.")
    missing = list(_missing(held.data, wanted))
    return _refused(409, f"C304: missing {missing}") if missing else None


def _missing(data: Dataset, wanted: str) -> Iterator[str]:
    """What PS3.4 table CC.2.5-3 requires before a final state, and is not there."""
    if wanted == CANCELED:
        (progress,) = data.get("ProcedureStepProgressInformationSequence") or [Dataset()]
        if not _DATE_TIME.fullmatch(progress.get("ProcedureStepCancellationDateTime", "")):
            yield "ProcedureStepCancellationDateTime"
        yield from _uncoded(progress, "ProcedureStepDiscontinuationReasonCodeSequence")
        return
    (performed,) = data.get("UnifiedProcedureStepPerformedProcedureSequence") or [Dataset()]
    yield from _uncoded(performed, "PerformedStationNameCodeSequence")
    yield from _uncoded(performed, "PerformedWorkitemCodeSequence")
    for keyword in ("PerformedProcedureStepStartDateTime", "PerformedProcedureStepEndDateTime"):
        if not _DATE_TIME.fullmatch(performed.get(keyword, "")):
            yield keyword
    output = performed.get("OutputInformationSequence") or []
    if not output:
        yield "OutputInformationSequence"
    for each in output:
        places = ("DICOMRetrievalSequence", "WADORSRetrievalSequence")
        if each.TypeOfInstances != "DICOM" or sum(name in each for name in places) != 1:
            yield "a retrieval sequence"
        if not (each.StudyInstanceUID and each.SeriesInstanceUID and each.ReferencedSOPSequence):
            yield "references"


def _uncoded(data: Dataset, keyword: str) -> Iterator[str]:
    found = data.get(keyword) or []
    if not found or not all(
        code.CodeValue and code.CodingSchemeDesignator and code.CodeMeaning for code in found
    ):
        yield keyword


def _inconsistent() -> Reply:
    text = "The submitted request is inconsistent with the current state of the Target Workitem."
    return _refused(409, text)


def _refused(status: int, text: str) -> Reply:
    return reply(status, b"", {"Warning": f"299 test: {text}"})

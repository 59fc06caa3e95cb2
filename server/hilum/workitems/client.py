"""A client of a worklist manager by UPS-RS (PS3.18 11.4 to 11.9): search, get, update, change."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote, urlencode

import orjson

from hilum.domain import Code
from hilum.settings import WorkitemManager
from hilum.web.answers import HttpAnswer
from hilum.web.client import HttpClient, HttpRequest
from hilum.web.limits import TimeLimit
from hilum.web.problems import HttpError
from hilum.workitems import ups
from hilum.workitems.dicom_json import DataSet, NoDataSet, data_sets, element

_MEDIA_TYPE: Final = "application/dicom+json"
_SEARCH_BYTES: Final = 32 << 20
_PAGE: Final = 100
_PAGES: Final = 50
_WHOLE: Final = 4  # times timeout_seconds, for a request
_NO_CONTENT: Final = 204
_GONE: Final = (404, 410)
_LONGEST_RETRY_AFTER_SECONDS: Final = 900.0
_AWAY: Final[Mapping[int, str]] = {
    401: "it wants other credentials: correct user, token_file or oauth_client_id",
    403: "our account may not use its worklist; have it allowed",
    405: "it takes no such request at this address; correct `url`",
    408: "it waited too long for us",
    425: "it does not take requests yet",
    429: "it is asked too often; raise poll_seconds",
    501: "it does not support this request of UPS-RS",
    502: "the server behind its gateway does not answer",
    503: "it is overloaded or down",
    504: "its gateway waited too long for the server",
}
_SEARCH_AWAY: Final[Mapping[int, str]] = {
    400: "it finds the search malformed; see its log",
    404: "it has no work items at this address; correct `url`",
    413: "it finds too many work items",
}
# Phrases of the Warning header (PS3.18 11.6.3, 11.7.3), and their meaning by PS3.4 CC.2.
_MEANINGS: Final[Mapping[str, str]] = {
    "transaction uid is incorrect": "another Transaction UID holds the item (C301)",
    "transaction uid is missing": "it found no Transaction UID (C301)",
    "c301": "another Transaction UID holds the item (C301)",
    "c302": "the item is in progress already (C302)",
    "c303": "an item becomes SCHEDULED by its creation alone (C303)",
    "c304": "it misses attributes for the final state (C304)",
    "c307": "it does not know the item (C307)",
    "c310": "the item is not in progress (C310)",
    "c300": "the item has ended already (C300)",
    "already in the requested state": "the item has ended so already (B304, B306)",
    "inconsistent with the": "the request does not fit the state of the item",
    "not reference a claimed": "no performer has claimed the item",
}


class ManagerAway(Exception):
    """The manager cannot be asked now. `detail` holds the remedy, and no patient data.

    `after_seconds`: it asks us to wait so long.
    """

    def __init__(self, detail: str, after_seconds: float | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.after_seconds = after_seconds


class ItemTrouble(Exception):
    """The manager gives no usable answer about one item; others may fare better."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class RequestRefused(Exception):
    """The manager refuses a request about one item. `detail`: status and meaning."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class UpsClient:
    """Requests to one manager, for one thread. Raises ManagerAway; about one item ItemTrouble.

    `stop`: ends a request.
    """

    def __init__(self, name: str, manager: WorkitemManager, stop: threading.Event) -> None:
        self._name = name
        self._manager = manager
        self._client = HttpClient(manager)
        self._stop = stop
        self._root = f"{manager.url.rstrip('/')}/workitems"

    def close(self) -> None:
        """Close the connection; may be called twice."""
        self._client.close()

    def search(self, code: Code) -> Iterator[DataSet]:
        """Yield the items of this code that may be claimed, as the manager answers.

        A manager may ignore parts of the question, so the caller looks at each.
        """
        seen = set[str]()
        for page in range(_PAGES):
            answer = self._send("GET", f"{self._root}?{_question(code, page * _PAGE)}")
            if answer.status == _NO_CONTENT:
                return
            if not answer.is_success:
                raise self._away(answer, _SEARCH_AWAY)
            try:
                found = data_sets(answer.body)
            except NoDataSet as error:
                advice = "check that `url` is the root of UPS-RS"
                raise ManagerAway(f"{self._name}: {error}; {advice}") from error
            uids = {ups.uid_of(item) for item in found}
            if uids <= seen:  # the end, or a manager that ignores `offset`
                return
            seen |= uids
            yield from found

    def get(self, workitem_uid: str) -> DataSet | None:
        """Return an item; None: the manager does not know it."""
        answer = self._send("GET", f"{self._root}/{workitem_uid}")
        if answer.status in _GONE:
            return None
        if not answer.is_success:
            raise self._trouble(answer)
        try:
            found = data_sets(answer.body)
        except NoDataSet as error:
            raise ItemTrouble(f"{error}") from error
        return found[0] if found else None

    def change(self, workitem_uid: str, state: str, transaction_uid: str) -> None:
        """Change the state of an item (PS3.18 11.7). Raises RequestRefused."""
        title = self._manager.requester_ae_title
        requester = f"/{quote(title, safe='')}" if title else ""
        url = f"{self._root}/{workitem_uid}/state{requester}"
        self._accepted("PUT", url, ups.change_of_state(state, transaction_uid))

    def update(self, workitem_uid: str, transaction_uid: str, changes: DataSet) -> None:
        """Change attributes of an item that is ours (PS3.18 11.6). Raises RequestRefused.

        PS3.18 writes the Transaction UID as `?{transaction-uid}`. Some managers take its value for
        the name of a parameter, others have the name, others read the payload: all get it.
        """
        url = f"{self._root}/{workitem_uid}?{transaction_uid}&transaction-uid={transaction_uid}"
        body = {**element(ups.TRANSACTION_UID, transaction_uid), **changes}
        self._accepted("POST", url, body)

    def _accepted(self, method: str, url: str, body: DataSet) -> None:
        answer = self._send(method, url, orjson.dumps(body))
        if answer.is_success:
            return
        if answer.status in _AWAY or not 400 <= answer.status < 500:
            raise self._trouble(answer)
        raise RequestRefused(f"HTTP {answer.status}{_meaning(answer.warning)}")

    def _send(self, method: str, url: str, body: bytes | None = None) -> HttpAnswer:
        content = {} if body is None else {"Content-Type": _MEDIA_TYPE}
        request = HttpRequest(url, method, {"Accept": _MEDIA_TYPE, **content}, body)
        seconds = _WHOLE * self._manager.timeout_seconds
        limit = TimeLimit(seconds, self._stop, "timeout_seconds allows it")
        try:
            return self._client.exchange(request, limit, _SEARCH_BYTES)
        except HttpError as error:
            raise ManagerAway(f"{self._name}: {error.detail}") from error

    def _trouble(self, answer: HttpAnswer) -> ManagerAway | ItemTrouble:
        """Return the error for a status about one item that says nothing of its state."""
        if answer.status in _AWAY or 300 <= answer.status < 400:
            return self._away(answer, {})
        return ItemTrouble(f"HTTP {answer.status}; see the log of the manager")

    def _away(self, answer: HttpAnswer, also: Mapping[int, str]) -> ManagerAway:
        """Return the error for a status that another item would get, too."""
        status = answer.status
        if 300 <= status < 400:
            advice = "it redirects; give the right address in `url`"
        else:
            failed = (
                "it failed; its log may say why" if status >= 500 else "it refuses; see its log"
            )
            advice = also.get(status) or _AWAY.get(status) or failed
        wait = answer.retry_after
        return ManagerAway(
            f"{self._name}: HTTP {status}: {advice}",
            None if wait is None else min(wait, _LONGEST_RETRY_AFTER_SECONDS),
        )


def _question(code: Code, offset: int) -> str:
    """Return the query of a search (PS3.18 11.9)."""
    wanted = (ups.WORKITEM_CODE, ups.READINESS, ups.STATE, ups.PRIORITY, ups.START)
    question = {
        ups.STATE: ups.SCHEDULED,
        ups.READINESS: ups.READY,
        f"{ups.WORKITEM_CODE}.00080100": code.value,
        f"{ups.WORKITEM_CODE}.00080102": code.scheme,
        "includefield": ",".join(wanted),
        "limit": str(_PAGE),
        "offset": str(offset),
    }
    return urlencode(question, quote_via=quote)


def _meaning(warning: str) -> str:
    """Return a Warning header in our own words; its text may name anything."""
    said = warning.lower()
    return next((f": {words}" for phrase, words in _MEANINGS.items() if phrase in said), "")

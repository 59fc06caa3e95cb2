"""The answer of a FHIR server to a transaction: of each entry a status, and issues.

The texts of an answer may name a patient, so only codes of FHIR's own lists leave this module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

_JSON_TYPES: Final = frozenset({"application/fhir+json", "application/json"})
_SEVERITIES: Final = frozenset({"fatal", "error", "warning", "information"})
_ERRORS: Final = frozenset({"fatal", "error"})
# IssueType (R4), all that may stand in `OperationOutcome.issue.code`.
_ISSUES: Final = frozenset(
    {
        *("invalid", "structure", "required", "value", "invariant"),
        *("security", "login", "unknown", "expired", "forbidden", "suppressed"),
        *("processing", "not-supported", "duplicate", "multiple-matches", "not-found", "deleted"),
        *("too-long", "code-invalid", "extension", "too-costly", "business-rule", "conflict"),
        *("transient", "lock-error", "no-store", "exception", "timeout", "incomplete"),
        *("throttled", "informational"),
    }
)
# Those below `transient`: the same request may succeed later.
_PASSING: Final = frozenset(
    {"transient", "lock-error", "no-store", "exception", "timeout", "incomplete", "throttled"}
)
_STATUS: Final = re.compile(r"([1-5]\d\d)(?!\d)")
_MOST_ISSUES: Final = 5  # in an error text


class FhirAnswerError(Exception):
    """The body is no answer to a transaction; the text says why."""


@dataclass(frozen=True, slots=True)
class Issue:
    """One issue of an OperationOutcome. `code` is empty for one outside FHIR's list."""

    severity: str
    code: str

    @property
    def is_error(self) -> bool:
        """Whether something was not done."""
        return self.severity in _ERRORS

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code in _PASSING


@dataclass(frozen=True, slots=True)
class EntryAnswer:
    """The outcome of one entry. `number`: from 1; 0: the answer is about the whole request."""

    number: int
    kind: str
    status: int
    issues: tuple[Issue, ...] = ()

    @property
    def is_stored(self) -> bool:
        """Whether the server has the resource."""
        return 200 <= self.status < 300 and not any(item.is_error for item in self.issues)

    @property
    def is_passing(self) -> bool:
        """Whether each thing that is wrong may pass by itself."""
        errors = [item for item in self.issues if item.is_error]
        if errors:
            return all(item.is_passing for item in errors)
        return self.status in (408, 425, 429) or self.status >= 500

    @property
    def words(self) -> str:
        """Its status and its issues, without a text of the receiver."""
        return f"entry {self.number} ({self.kind}): {self.status}{in_words(self.issues)}"


def in_words(issues: Sequence[Issue]) -> str:
    """Return the codes of issues; empty where there is none."""
    said = [f"{item.severity} {item.code}".strip() for item in issues if item.is_error]
    said = list(dict.fromkeys(said))[:_MOST_ISSUES]
    return f", OperationOutcome {', '.join(said)}" if said else ""


def kinds_sent(content: bytes) -> tuple[str, ...]:
    """Return the type of each resource in a transaction. Raises FhirAnswerError."""
    sent = _resource(content)
    if sent.get("resourceType") != "Bundle" or sent.get("type") != "transaction":
        raise FhirAnswerError("it is no transaction Bundle")
    return tuple(
        str(_inner(_inner(entry, "resource"), "resourceType", "")) for entry in _entries(sent)
    )


def answers_on(kinds: Sequence[str], media_type: str, body: bytes) -> list[EntryAnswer]:
    """Return the outcome of each entry, in the order of the request (R4 3.1.0.11.2).

    An OperationOutcome with an error is an answer on the whole. Raises FhirAnswerError for
    anything but a statement on each entry.
    """
    found = _resource_of(media_type, body)
    issues = tuple(_issues(found))
    if any(item.is_error for item in issues):
        return [EntryAnswer(0, "Bundle", 200, issues)]
    if found.get("resourceType") != "Bundle" or found.get("type") != "transaction-response":
        raise FhirAnswerError("its body is no transaction-response")
    entries = _entries(found)
    if len(entries) != len(kinds):
        raise FhirAnswerError(f"it answers on {len(entries)} of {len(kinds)} entries")
    pairs = enumerate(zip(entries, kinds, strict=True), 1)
    return [_answer(number, kind, entry) for number, (entry, kind) in pairs]


def issues_of(media_type: str, body: bytes) -> tuple[Issue, ...]:
    """Return the issues of an answer that is an error; () where it names none."""
    try:
        return tuple(_issues(_resource_of(media_type, body)))
    except FhirAnswerError:
        return ()


def capability(media_type: str, body: bytes) -> tuple[str, bool]:
    """Return the version of FHIR, and whether the server says that it takes transactions.

    Raises FhirAnswerError for anything but a CapabilityStatement.
    """
    found = _resource_of(media_type, body)
    version = found.get("fhirVersion")
    if found.get("resourceType") != "CapabilityStatement" or not isinstance(version, str):
        raise FhirAnswerError("its body is no CapabilityStatement")
    if not re.fullmatch(r"[0-9]{1,2}(\.[0-9]{1,3}){0,2}", version):
        raise FhirAnswerError("its CapabilityStatement names no version of FHIR")
    rest = [item for item in _list(found.get("rest")) if _inner(item, "mode") == "server"]
    interactions = [each for item in rest for each in _list(_inner(item, "interaction"))]
    return version, any(_inner(each, "code") == "transaction" for each in interactions)


def _answer(number: int, kind: str, entry: object) -> EntryAnswer:
    response = _inner(entry, "response")
    status = _STATUS.match(str(_inner(response, "status", "")))
    if status is None:
        raise FhirAnswerError(f"it says no status of entry {number}")
    location = _inner(response, "location")
    if isinstance(location, str) and kind not in location.split("/"):
        raise FhirAnswerError(f"it says that entry {number} is another resource than ours")
    outcome = _inner(response, "outcome")
    issues = tuple(_issues(outcome)) if isinstance(outcome, dict) else ()
    return EntryAnswer(number, kind, int(status[1]), issues)


def _resource_of(media_type: str, body: bytes) -> dict[str, Any]:
    if not body:
        raise FhirAnswerError("its body is empty")
    if media_type and media_type not in _JSON_TYPES:
        raise FhirAnswerError("its body is no JSON")
    return _resource(body)


def _resource(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FhirAnswerError("its body is no JSON, or half of one") from error
    if not isinstance(found, dict):
        raise FhirAnswerError("its body is no resource")
    return found


def _issues(outcome: dict[str, Any]) -> Iterator[Issue]:
    if outcome.get("resourceType") != "OperationOutcome":
        return
    for item in _list(outcome.get("issue")):
        severity = _inner(item, "severity")
        code = _inner(item, "code")
        known = code if isinstance(code, str) and code in _ISSUES else ""
        # An issue without a severity that is known may be an error, so it is one.
        is_known = isinstance(severity, str) and severity in _SEVERITIES
        yield Issue(str(severity) if is_known else "error", known)


def _entries(bundle: dict[str, Any]) -> list[object]:
    return _list(bundle.get("entry"))


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _inner(value: object, name: str, otherwise: object = None) -> object:
    """Return a member; `otherwise` where the value is no object."""
    return value.get(name, otherwise) if isinstance(value, dict) else otherwise

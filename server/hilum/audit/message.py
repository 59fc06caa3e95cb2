"""A row of the audit as a message of PS3.15 A.5. Pure.

The Patient as a participant object, which PS3.15 A.5.3 wants beside a study, is left out: no
Patient ID leaves this way, and a collector that may know it has it from the study's UID.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree as Xml

from hilum.domain import Code
from hilum.timestamps import iso
from hilum.verbs import (
    AUDIT_LOG_USED,
    EXPORT,
    IMPORT,
    MEANINGS,
    QUERY,
    Meaning,
    Thing,
    Verb,
    VerbOutcome,
)

Row = Mapping[str, Any]
_OUTCOMES: Final[Mapping[str, str]] = {
    VerbOutcome.BEGUN: "0",
    VerbOutcome.DONE: "0",
    VerbOutcome.REFUSED: "4",
    VerbOutcome.FAILED: "8",
}
"""EventOutcomeIndicator (PS3.15 A.5.1.1): success, minor and serious failure."""
_APPLICATION: Final = Code("110150", "DCM", "Application")
_LAUNCHER: Final = Code("110151", "DCM", "Application Launcher")
_DESTINATION: Final = Code("110152", "DCM", "Destination Role ID")
_SOURCE: Final = Code("110153", "DCM", "Source Role ID")
_STUDY_UID: Final = Code("110180", "DCM", "Study Instance UID")
_URI: Final = Code("12", "RFC-3881", "URI")
_HOST_NAME = "1"
_IP_ADDRESS = "2"
_SYSTEM_OBJECT: Final = "2"
_REPORT = "3"
_SECURITY_RESOURCE = "13"
_QUERY_ROLE = "24"
_RESOURCE = "4"
_FORBIDDEN: Final = re.compile(
    "[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
)  # in XML 1.0, 2.2
_OUR_SCHEME: Final = "99HILUM"
_ASKED_FOR: Final = (Thing.PATIENT, Thing.ACCESSION)


@dataclass(frozen=True, slots=True)
class AuditSource:
    """The reporting system. `site` is the setting site.name."""

    site: str = "Hilum"
    application: str = "hilum"


def message(row: Row, source: AuditSource) -> bytes:
    """The XML document of one row (PS3.15 A.5.1) in one line: rsyslog writes #012 for a break."""
    row = {
        name: _FORBIDDEN.sub("?", value) if isinstance(value, str) else value
        for name, value in row.items()
    }
    meaning = MEANINGS[Verb(row["verb"])]
    root = Xml.Element("AuditMessage")
    _event(root, row, meaning)
    _participants(root, row, meaning, source)
    found = Xml.SubElement(
        root,
        "AuditSourceIdentification",
        AuditEnterpriseSiteID=source.site,
        AuditSourceID=f"{source.application}@{row['host']}",
    )
    Xml.SubElement(found, "AuditSourceTypeCode", {"csd-code": "4"})  # an application server
    _objects(root, row, meaning)
    return b'<?xml version="1.0" encoding="UTF-8"?>' + bytes(Xml.tostring(root, "utf-8"))


def _event(root: Xml.Element, row: Row, meaning: Meaning) -> None:
    event = Xml.SubElement(
        root,
        "EventIdentification",
        EventActionCode=meaning.action,
        EventDateTime=iso(row["at"]),
        EventOutcomeIndicator=_OUTCOMES[row["outcome"]],
    )
    _code(event, "EventID", meaning.event)
    for kind in (*meaning.types, Code(row["verb"], _OUR_SCHEME, meaning.words)):
        _code(event, "EventTypeCode", kind)
    Xml.SubElement(event, "EventOutcomeDescription").text = row["outcome"]


def _participants(root: Xml.Element, row: Row, meaning: Meaning, source: AuditSource) -> None:
    """Return the participants: the requesting person, then the application."""
    theirs, ours = _roles(meaning)
    person = _participant(root, row["actor"], is_requestor=True, role=theirs)
    person.set("AlternativeUserID", row["channel"])
    if row["address"]:
        person.attrib |= {
            "NetworkAccessPointID": row["address"],
            "NetworkAccessPointTypeCode": _IP_ADDRESS,
        }
    application = _participant(
        root, f"{source.application}@{row['host']}", is_requestor=False, role=ours
    )
    application.attrib |= {
        "NetworkAccessPointID": row["host"],
        "NetworkAccessPointTypeCode": _HOST_NAME,
    }


def _roles(meaning: Meaning) -> tuple[Code | None, Code]:
    """Of the person and of the application (PS3.15 A.5.3.1, A.5.3.7, A.5.3.8, A.5.3.11)."""
    roles: Mapping[Code, tuple[Code | None, Code]] = {
        MEANINGS[Verb.START].event: (_LAUNCHER, _APPLICATION),
        QUERY: (_SOURCE, _DESTINATION),
        IMPORT: (_SOURCE, _DESTINATION),
        EXPORT: (_DESTINATION, _SOURCE),
    }
    return roles.get(meaning.event, (None, _APPLICATION))


def _participant(
    root: Xml.Element, user: str, *, is_requestor: bool, role: Code | None
) -> Xml.Element:
    found = Xml.SubElement(
        root, "ActiveParticipant", UserID=user, UserIsRequestor=str(is_requestor).lower()
    )
    if role is not None:
        _code(found, "RoleIDCode", role)
    return found


def _objects(root: Xml.Element, row: Row, meaning: Meaning) -> None:
    if meaning.event == AUDIT_LOG_USED:
        _object(root, row, "urn:hilum:audit", _URI, _SECURITY_RESOURCE, "Security Audit Log")
    if row["study_instance_uid"]:
        _object(root, row, row["study_instance_uid"], _STUDY_UID, _REPORT, "study")
    elif meaning.event == QUERY:
        _query(root, row)
    if row["thing"] and meaning.event != QUERY:
        _object(
            root,
            row,
            row["name"],
            Code(row["thing"], _OUR_SCHEME, row["thing"]),
            _RESOURCE,
            row["thing"],
        )


def _query(root: Xml.Element, row: Row) -> None:
    """Return the query; a digest replaces a patient."""
    asked = f"{row['thing']} {row['name']}" if row["thing"] in _ASKED_FOR else row["verb"]
    found = _identified(root, row["verb"], Code(row["verb"], _OUR_SCHEME, "query"), _QUERY_ROLE)
    Xml.SubElement(found, "ParticipantObjectQuery").text = _base64(asked)
    _details(found, row)


def _object(
    root: Xml.Element, row: Row, name: str, kind: Code, role: str, words: str
) -> Xml.Element:
    found = _identified(root, name, kind, role)
    Xml.SubElement(found, "ParticipantObjectName").text = words
    _details(found, row)
    return found


def _identified(root: Xml.Element, name: str, kind: Code, role: str) -> Xml.Element:
    found = Xml.SubElement(
        root,
        "ParticipantObjectIdentification",
        ParticipantObjectID=name,
        ParticipantObjectTypeCode=_SYSTEM_OBJECT,
        ParticipantObjectTypeCodeRole=role,
    )
    _code(found, "ParticipantObjectIDTypeCode", kind)
    return found


def _details(found: Xml.Element, row: Row) -> None:
    for name in ("deed", "count", "detail"):
        if row[name] is not None:
            Xml.SubElement(
                found, "ParticipantObjectDetail", type=name, value=_base64(str(row[name]))
            )
    # dcm4che's schema wants one, where the standard's allows it.
    described = Xml.SubElement(found, "ParticipantObjectDescription")
    studies = Xml.SubElement(described, "ParticipantObjectContainsStudy")
    if row["study_instance_uid"]:
        Xml.SubElement(studies, "StudyIDs", UID=row["study_instance_uid"])


def _code(parent: Xml.Element, name: str, code: Code) -> None:
    Xml.SubElement(
        parent,
        name,
        {"csd-code": code.value, "codeSystemName": code.scheme, "originalText": code.meaning},
    )


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()

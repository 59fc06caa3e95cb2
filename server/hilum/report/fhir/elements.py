"""Elements of FHIR R4 that several resources have: identifiers, codes, references, moments."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydicom.sr.coding import Code

from hilum.domain import mint_uid
from hilum.report.headers.header import Said, utc_offset
from hilum.report.sources import value_text
from hilum.report.sr import codes

Json = dict[str, Any]

UIDS: Final = "urn:dicom:uid"
"""The system of identifiers that are DICOM UIDs (FHIR R4, ImagingStudy)."""
UCUM: Final = "http://unitsofmeasure.org"
# Code systems by the designator that DICOM has for them (FHIR R4 4.3.0; PS3.16 8).
_SYSTEMS: Final[Mapping[str, str]] = {
    "SCT": "http://snomed.info/sct",
    "DCM": "http://dicom.nema.org/resources/ontology/DCM",
    "LN": "http://loinc.org",
    "UCUM": UCUM,
}
_TABLES: Final = "http://terminology.hl7.org/CodeSystem"
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_DAY: Final = re.compile(r"(\d{4})(\d\d)(\d\d)")
_TIME: Final = re.compile(r"(\d\d)(\d\d)?(\d\d)?(?:\.\d+)?")
_ROOT: Final = "2.25."


def identifier(uid: str) -> Json:
    """Return a DICOM UID as an identifier."""
    return {"system": UIDS, "value": f"urn:oid:{uid}"}


def full_url(kind: str, identity: str) -> str:
    """Return the name of an entry inside its Bundle, the same for the same resource."""
    uid = mint_uid(codes.NAMESPACE, "fhir", kind, identity)
    return uuid.UUID(int=int(uid.removeprefix(_ROOT))).urn


def coding(code: Code) -> Json:
    """Return a code of one of the known systems."""
    system = _SYSTEMS[code.scheme_designator]
    return {"system": system, "code": code.value, "display": code.meaning}


def concept(code: Code) -> Json:
    """Return a code and its words."""
    return {"coding": [coding(code)], "text": code.meaning}


def words_or_concept(code: Code, text: str) -> Json:
    """Return a code; text alone for a code of a private system."""
    if code.scheme_designator not in _SYSTEMS:
        return {"text": text}
    return {"coding": [coding(code)], "text": text}


def from_table(table: str, code: str) -> Json:
    """Return a code of one of HL7's own systems."""
    return {"coding": [{"system": f"{_TABLES}/{table}", "code": code}]}


def line(header: Said, keyword: str) -> str:
    """Return a value of an image's header as one line; empty: it has none.

    FHIR allows no control characters and no empty string (R4 2.24.0.1).
    """
    return _CONTROLS.sub(" ", value_text(header.get(keyword)) or "").strip()


def taken_at(header: Said) -> str:
    """Return the study's date, with its time where the image names a zone; empty: no date.

    A time without a zone is not allowed (R4 2.24.0.1), and guessing one could change the day.
    """
    day = _DAY.fullmatch(line(header, "StudyDate"))
    if day is None:
        return ""
    date = "-".join(day.groups())
    time = _TIME.fullmatch(line(header, "StudyTime"))
    offset = utc_offset(header)
    if time is None or offset is None:
        return date
    hour, minute, second = time.groups("00")
    return f"{date}T{hour}:{minute}:{second}{offset[:3]}:{offset[3:]}"


def given(**values: Any) -> Json:  # noqa: ANN401 - any element
    """Return the values that are not empty: FHIR allows no empty element."""
    return {name: value for name, value in values.items() if value not in ("", None, [], {})}


def references(urls: Iterable[str]) -> list[Json]:
    """Return references to entries of the same Bundle."""
    return [{"reference": url} for url in urls]

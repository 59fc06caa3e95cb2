"""Rows of the audit as messages of PS3.15 A.5, valid by the standard's schema."""

from __future__ import annotations

import base64
import csv
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import pytest

from hilum.audit.export import FORMATS
from hilum.audit.message import AuditSource, message
from hilum.audit.syslog import line
from hilum.verbs import MEANINGS, Thing, Verb, VerbOutcome

SCHEMA = Path(__file__).parents[2] / "support" / "peers" / "audit_message.rnc"
SOURCE = AuditSource('St. "Mary" & <Sons>')
ROW: dict[str, Any] = {
    "id": 7,
    "deed": "0123456789abcdef0123456789abcdef",
    "at": 1795615331.25,
    "actor": "Müller, A. <rad>",
    "channel": "page",
    "address": "10.0.0.7",
    "host": "reading-1",
    "verb": "read_report",
    "study_instance_uid": "1.2.3",
    "thing": None,
    "name": None,
    "count": 2,
    "outcome": "done",
    "detail": None,
}


def every_row() -> Iterator[dict[str, Any]]:
    for verb in Verb:
        yield from ({**ROW, "verb": verb, "outcome": outcome} for outcome in VerbOutcome)
        yield {**ROW, "verb": verb, "study_instance_uid": None, "address": ""}
        yield from (
            {**ROW, "verb": verb, "thing": thing, "name": "1.2.3.4", "detail": "dry run"}
            for thing in Thing
        )
        yield {
            **ROW,
            "verb": verb,
            "study_instance_uid": None,
            "thing": Thing.PATIENT,
            "name": "ab" * 16,
        }


@pytest.mark.skipif(
    shutil.which("jing") is None,
    reason="jing validates RELAX NG: deploy/debian-packages.sh installs it",
)
def test_every_message_is_valid_by_the_schema_of_the_standard(tmp_path: Path) -> None:
    files = []
    for number, row in enumerate(every_row()):
        files.append(file := tmp_path / f"{number}.xml")
        file.write_bytes(message(row, SOURCE))
    done = subprocess.run(
        ["jing", "-c", str(SCHEMA), *map(str, files)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(
    shutil.which("jing") is None,
    reason="jing validates RELAX NG: deploy/debian-packages.sh installs it",
)
def test_the_schema_refuses_what_the_standard_forbids(tmp_path: Path) -> None:
    file = tmp_path / "wrong.xml"
    file.write_bytes(message(ROW, SOURCE).replace(b'EventActionCode="R"', b'EventActionCode="X"'))
    done = subprocess.run(
        ["jing", "-c", str(SCHEMA), str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "EventActionCode" in done.stdout) == (1, True)


def test_every_verb_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Verb)


def test_a_look_at_a_report_is_instances_accessed_by_a_person_from_an_address() -> None:
    root = Xml.fromstring(message({**ROW, "thing": "document", "name": "2.25.9"}, SOURCE))
    event, person = root.find("EventIdentification"), root.find("ActiveParticipant")
    assert event is not None
    assert person is not None
    code = event.find("EventID")
    assert code is not None
    assert (
        code.get("csd-code"),
        event.get("EventActionCode"),
        event.get("EventOutcomeIndicator"),
    ) == ("110103", "R", "0")
    assert event.get("EventDateTime") == "2026-11-25T14:02:11.250Z"
    assert (person.get("UserID"), person.get("UserIsRequestor")) == ("Müller, A. <rad>", "true")
    assert (person.get("NetworkAccessPointID"), person.get("NetworkAccessPointTypeCode")) == (
        "10.0.0.7",
        "2",
    )
    names = [
        item.get("ParticipantObjectID") for item in root.iter("ParticipantObjectIdentification")
    ]
    assert names == ["1.2.3", "2.25.9"]


@pytest.mark.parametrize(
    ("outcome", "indicator", "priority"),
    [("done", "0", 85), ("refused", "4", 84), ("failed", "8", 83)],
)
def test_an_outcome_has_its_indicator_and_its_severity(
    outcome: str, indicator: str, priority: int
) -> None:
    said = line({**ROW, "outcome": outcome}, SOURCE)
    header, _, document = said.partition(b"\xef\xbb\xbf")
    assert header.startswith(f"<{priority}>1 2026-11-25T14:02:11.250Z reading-1 hilum ".encode())
    assert header.endswith(b" DICOM+RFC3881 - ")
    event = Xml.fromstring(document).find("EventIdentification")
    assert event is not None
    assert event.get("EventOutcomeIndicator") == indicator


def test_a_name_with_control_characters_is_one_line_that_is_read_back() -> None:
    said = message({**ROW, "actor": "a\nb\x00c\x1b"}, SOURCE)
    person = Xml.fromstring(said).find("ActiveParticipant")
    assert person is not None
    assert (person.get("UserID"), b"\n" in said) == ("a\nb?c?", False)


def test_who_looked_for_a_patient_asked_a_query_with_a_digest() -> None:
    row = {
        **ROW,
        "verb": "find_study",
        "study_instance_uid": None,
        "thing": "patient",
        "name": "ab" * 16,
    }
    query = Xml.fromstring(message(row, SOURCE)).find(".//ParticipantObjectQuery")
    assert query is not None
    assert base64.b64decode(query.text or "") == b"patient " + b"ab" * 16


def test_json_and_csv_hold_every_column() -> None:
    (said,) = FORMATS["json"]([ROW], SOURCE)
    assert json.loads(said) == {**ROW, "at": "2026-11-25T14:02:11.250Z"}
    names, values = csv.reader(FORMATS["csv"]([ROW], SOURCE))
    assert dict(zip(names, values, strict=True))["actor"] == ROW["actor"]


def test_a_name_is_no_formula_in_a_spreadsheet() -> None:
    _, values = csv.reader(FORMATS["csv"]([{**ROW, "actor": "=1+1"}], SOURCE))
    assert "'=1+1" in values


def test_lines_for_people_fit_80_columns() -> None:
    row = {**ROW, "actor": "maria", "study_instance_uid": "1." + "2" * 62}
    assert max(map(len, FORMATS["text"]([row], SOURCE))) <= 80

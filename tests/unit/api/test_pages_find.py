"""Studies by Accession Number, Patient ID and Study Date, by page and REST.

Only where the settings say so, each look in the audit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pydicom import Dataset
from pydicom.filebase import DicomBytesIO
from pydicom.filewriter import write_dataset
from pydicom.uid import ExplicitVRLittleEndian

from hilum.domain import Priority, Scope
from hilum.services.identifiers import LedgerIdentifiers
from hilum.store.audit.log import AuditFilter
from hilum.store.queries.views import LedgerViews
from tests.support.ledger.street import RELEASE
from tests.support.reports.html import Strict
from tests.support.server.api_client import TOKEN, Rig, open_rig

SHOWING = {"show_identifiers": True}
PATIENT, ACCESSION, DATE = "PID-<4711>", "ACC-0815", "20261120"
ONE, OTHER = "1.2.3", "1.2.4"
FIND = "/api/v1/studies/find"


def header_of(**said: str) -> bytes:
    header = Dataset()
    header.SpecificCharacterSet = "ISO_IR 192"
    for name, value in said.items():
        setattr(header, name, value)
    stream = DicomBytesIO()
    stream.is_implicit_VR, stream.is_little_endian = False, True
    write_dataset(stream, header)
    return bytes(stream.getvalue())


def receive(rig: Rig, study: str, number: int = 1, **said: str) -> None:
    arrival = rig.street._arrival(study, number, Priority.LIVE, "CR1", RELEASE)
    image = dataclasses.replace(
        arrival.instance, header=header_of(**said), transfer_syntax_uid=ExplicitVRLittleEndian
    )
    rig.street.ledger.record([dataclasses.replace(arrival, instance=image)])


def fill(rig: Rig) -> None:
    receive(
        rig,
        ONE,
        PatientID=PATIENT,
        AccessionNumber=ACCESSION,
        StudyDate=DATE,
        IssuerOfPatientID="ST_MARY",
    )
    receive(rig, OTHER, PatientID=PATIENT, AccessionNumber="ACC-0816", StudyDate="20261121")


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with open_rig(tmp_path, api=SHOWING) as opened:
        fill(opened)
        yield opened


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """For tests that only search."""
    with open_rig(tmp_path_factory.mktemp("find"), api=SHOWING) as opened:
        fill(opened)
        yield opened


@pytest.fixture
def hiding(tmp_path: Path) -> Iterator[Rig]:
    with open_rig(tmp_path) as opened:
        fill(opened)
        yield opened


def found_by_page(rig: Rig, **fields: str) -> list[str]:
    response = rig.client.post("/find", data=fields)
    assert response.status_code == 200, response.text
    page = Strict(response.text)
    assert page.problems == []
    return [
        str(item["href"]).removeprefix("/studies/")
        for item in page.attributes("a")
        if "data-open" in item
    ]


def found_by_rest(rig: Rig, **query: str) -> list[str]:
    response = rig.client.post(FIND, json=query)
    assert response.status_code == 200, response.text
    return [study["study_instance_uid"] for study in response.json()["studies"]]


def rows(rig: Rig, verb: str) -> list[dict[str, Any]]:
    rig.audit.looks.flush()
    return [row for row in rig.audit.all(AuditFilter()) if row["verb"] == verb]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"accession_number": ACCESSION}, [ONE]),
        ({"patient_id": PATIENT}, [OTHER, ONE]),
        ({"patient_id": PATIENT, "accession_number": ACCESSION}, [ONE]),
        ({"study_date_from": "2026-11-21"}, [OTHER]),
        ({"study_date_to": "2026-11-20"}, [ONE]),
        ({"study_date_from": "20261120", "study_date_to": "20261121"}, [OTHER, ONE]),
        (
            {"patient_id": PATIENT, "study_date_from": "2026-11-20", "study_date_to": "2026-11-20"},
            [ONE],
        ),
        ({"patient_id": "PID"}, []),
        ({"patient_id": "PID-*"}, []),
    ],
)
def test_page_and_rest_find_the_same(
    shared: Rig, query: dict[str, str], expected: list[str]
) -> None:
    assert found_by_page(shared, **query) == expected
    assert found_by_rest(shared, **query) == expected


def test_what_a_browser_leaves_empty_is_not_asked_for(rig: Rig) -> None:
    assert found_by_page(
        rig, accession_number=f" {ACCESSION} ", patient_id="", study_date_from="", study_date_to=""
    ) == [ONE]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "name at least one of accession_number"),
        ({"study_date_from": "20.11.2026"}, "no date: write it like 2026-11-20"),
        ({"study_date_from": "2026-02-30"}, "no date: write it like 2026-11-20"),
        (
            {"study_date_from": "2026-11-21", "study_date_to": "2026-11-20"},
            "lies after study_date_to",
        ),
        ({"patient_id": "x" * 65}, "at most 64 characters"),
        ({"patient_id": "a\\b"}, "no backslash"),
    ],
)
def test_bad_input_says_what_is_wrong_and_repeats_nothing(
    rig: Rig, fields: dict[str, str], said: str
) -> None:
    for response in (rig.client.post("/find", data=fields), rig.client.post(FIND, json=fields)):
        assert (response.status_code, said in response.text) == (422, True), response.text
        assert not [
            value for value in fields.values() if value in response.text and value not in said
        ]
    assert [row["outcome"] for row in rows(rig, "find_study")] == ["refused", "refused"]


def test_a_search_without_a_hit_says_how_to_ask(rig: Rig) -> None:
    words = " ".join(Strict(rig.client.post("/find", data={"patient_id": "PID-*"}).text).words)
    assert "No studies found" in words
    assert "* and ? stand for themselves" in words
    assert "Associations" in words


def test_each_search_is_a_row_that_holds_a_digest(rig: Rig) -> None:
    found_by_page(rig, patient_id=PATIENT, accession_number=ACCESSION, study_date_from="2026-11-20")
    (row,) = rows(rig, "find_study")
    digest = rig.audit.digest(PATIENT)
    assert (row["outcome"], row["channel"], row["count"]) == ("done", "page", 1)
    assert (row["thing"], row["name"]) == ("patient", digest)
    assert row["detail"] == f"accession {rig.audit.digest(ACCESSION)}; by study date"
    assert not [value for value in (PATIENT, ACCESSION, "2026-11-20", DATE) if value in str(row)]


def test_identifiers_are_shown_and_the_look_says_so(rig: Rig) -> None:
    for address, verb in (("/", "list_studies"), (f"/studies/{ONE}", "read_study")):
        words = " ".join(Strict(rig.client.get(address).text).words)
        assert not [
            value for value in (PATIENT, "ST_MARY", ACCESSION, "2026-11-20") if value not in words
        ]
        assert rows(rig, verb)[-1]["detail"] == "identifiers were shown"
    (study,) = rig.client.post(FIND, json={"accession_number": ACCESSION}).json()["studies"]
    assert study["identifiers"] == {
        "patient_id": PATIENT,
        "issuer": "ST_MARY",
        "accession_number": ACCESSION,
        "study_date": "2026-11-20",
    }


def test_what_a_header_says_stays_text(rig: Rig) -> None:
    for response in (rig.client.get("/"), rig.client.post("/find", data={"patient_id": PATIENT})):
        assert PATIENT not in response.text
        assert "PID-&lt;4711&gt;" in response.text


def test_a_header_that_cannot_be_read_shows_nothing(rig: Rig) -> None:
    rig.street.receive("1.2.5", 1)
    assert rig.client.get("/").status_code == 200
    assert rig.client.get("/studies/1.2.5").status_code == 200


def test_unless_the_settings_say_so_nothing_is_shown_or_searched(hiding: Rig) -> None:
    for response in (
        hiding.client.get("/"),
        hiding.client.get(f"/studies/{ONE}"),
        hiding.client.get("/find"),
        hiding.client.post("/find", data={"patient_id": PATIENT}),
        hiding.client.post(FIND, json={"patient_id": PATIENT}),
    ):
        assert not [value for value in ("4711", "ST_MARY", ACCESSION) if value in response.text]
    assert 'name="patient_id"' not in hiding.client.get("/").text
    response = hiding.client.post(FIND, json={"patient_id": PATIENT})
    assert (response.status_code, "api.show_identifiers" in response.text) == (403, True)
    assert {row["outcome"] for row in rows(hiding, "find_study")} == {"refused"}
    assert rows(hiding, "list_studies")[0]["detail"] is None


def test_the_form_is_posted_so_that_no_address_holds_an_identifier(rig: Rig) -> None:
    for address in ("/", "/find"):
        page = Strict(rig.client.get(address).text)
        (form,) = (found for found in page.attributes("form") if found.get("action") == "/find")
        assert (form["method"], form["autocomplete"]) == ("post", "off")
    assert rig.client.get("/find", params={"patient_id": PATIENT}).status_code == 422
    assert rig.client.get("/", params={"patient_id": PATIENT}).status_code == 422
    assert PATIENT not in rig.client.get("/metrics").text


def test_a_search_needs_a_token_and_no_page_of_another_site_makes_one(tmp_path: Path) -> None:
    with open_rig(tmp_path, token=TOKEN, api=SHOWING) as rig:
        for address, kind in (("/find", "data"), (FIND, "json")):
            body = {kind: {"patient_id": PATIENT}}
            assert rig.client.post(address, **body).status_code == 401
            headers = {"Authorization": f"Bearer {TOKEN}", "Sec-Fetch-Site": "cross-site"}
            assert rig.client.post(address, **body, headers=headers).status_code == 403


def test_a_token_that_may_only_read_may_search(rig: Rig) -> None:
    headers = {"Authorization": f"Bearer {rig.tokens.create('reader', Scope.READ, 1)}"}
    assert rig.client.post(FIND, json={"patient_id": PATIENT}, headers=headers).status_code == 200
    assert (
        rig.client.post("/find", data={"patient_id": PATIENT}, headers=headers).status_code == 200
    )


def test_a_search_goes_on_where_it_ended_and_names_no_study_twice(rig: Rig) -> None:
    for number in (2, 3):
        receive(rig, ONE, number, PatientID=PATIENT)
        receive(rig, OTHER, number, PatientID=PATIENT)
    pages, cursor = [], None
    while cursor is not None or not pages:
        query = {"limit": 1} | ({"cursor": cursor} if cursor else {})
        page = rig.client.post(FIND, json={"patient_id": PATIENT}, params=query).json()
        pages.append([study["study_instance_uid"] for study in page["studies"]])
        cursor = page["next_cursor"]
    assert [uid for found in pages for uid in found] == [OTHER, ONE]


def test_a_search_that_takes_long_ends_and_says_how_far_it_came(tmp_path: Path) -> None:
    (tmp_path / "of").mkdir()
    with open_rig(tmp_path / "of", api=SHOWING) as filled:
        fill(filled)
        url = f"sqlite:///{tmp_path / 'of' / 'ledger.sqlite'}"
        with closing(LedgerViews(url, filled.clock)) as views:
            hasty = LedgerIdentifiers(views, seconds=0.0)
            with open_rig(tmp_path, url=url, api=SHOWING, identifiers=hasty) as rig:
                page = Strict(rig.client.post("/find", data={"accession_number": ACCESSION}).text)
                assert "Searched so far: images received since" in " ".join(page.words)
                (cursor,) = (
                    item["value"]
                    for item in page.attributes("input")
                    if item.get("name") == "cursor"
                )
                again = Strict(
                    rig.client.post(
                        "/find", data={"accession_number": ACCESSION, "cursor": str(cursor)}
                    ).text
                )
                assert "1 study found further back" in " ".join(again.words)
                assert (
                    rig.client.post(
                        "/find", data={"accession_number": ACCESSION, "cursor": "x"}
                    ).status_code
                    == 422
                )


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("received_from=2026-11-20", {ONE, OTHER}),
        ("received_from=2026-11-21", set()),
        ("received_to=2026-11-19", set()),
        ("received_from=2026-11-20&received_to=2026-11-20", {ONE, OTHER}),
        ("received_from=&received_to=", {ONE, OTHER}),
    ],
)
def test_the_day_of_reception_needs_no_identifiers(
    hiding: Rig, query: str, expected: set[str]
) -> None:
    page = Strict(hiding.client.get(f"/?{query}").text)
    assert {
        str(item["href"]).removeprefix("/studies/")
        for item in page.attributes("a")
        if "data-open" in item
    } == expected


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("received_from=yesterday", "no date: write it like 2026-11-20"),
        ("received_from=0001-01-01", "give a year from 1970"),
        ("received_to=9999-12-31", "give a year from 1970"),
        ("received_from=2026-11-21&received_to=2026-11-20", "lies after received_to"),
        ("q=a%00", "give a Study or SOP Instance UID"),
        (f"q={'x' * 65}", "give a Study or SOP Instance UID"),
    ],
)
def test_a_filter_that_means_nothing_says_what_to_give(hiding: Rig, query: str, said: str) -> None:
    response = hiding.client.get(f"/?{query}")
    assert (response.status_code, said in response.text) == (422, True)

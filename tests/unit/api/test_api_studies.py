"""REST: studies and documents."""

from __future__ import annotations

import dataclasses

import pytest

from hilum.api.answers.studies import CodeAnswer, FindingAnswer, SourceImageAnswer
from hilum.api.fields import ResponseModel
from hilum.domain import Advance, Code, Finding, ReadingState, SourceImage
from tests.support.ledger.street import RELEASE, SR_BYTES
from tests.support.server.api_client import Rig


def test_a_study_from_the_door_to_the_pacs(rig: Rig) -> None:
    rig.street.walk("1.2.3", 1, 2)
    found = rig.get("/api/v1/studies/1.2.3")
    assert found["state"] == "closed"
    assert "not verified by a physician" in found["disclaimer"]
    assert found["received_last"] == "2026-11-20T08:30:00.000Z"
    assert found["timing"]["first_delivered"] == "2026-11-20T08:30:10.500Z"
    assert found["timing"]["last_image_to_delivered_seconds"] == pytest.approx(10.5)
    (result,) = found["results"]
    assert (result["release"], result["is_trained"], result["supersedes_id"]) == (
        RELEASE,
        False,
        None,
    )
    (finding,) = result["findings"]
    assert finding["code"] == {"value": "60046008", "scheme": "SCT", "meaning": "Pleural effusion"}
    assert (finding["score"], finding["probability"], finding["decision"]) == (
        0.62,
        None,
        "undecided",
    )
    assert result["documents"][0]["deliveries"][0]["state"] == "delivered"


def test_timings_say_moments_as_moments(rig: Rig) -> None:
    rig.street.receive("1.2.3", 1)
    timings = {
        "started_at": rig.clock.now,
        "decode_seconds": 0.25,
        "batch_size": 4,
        "finished_at": rig.clock.now,
    }
    (job,) = rig.street.claim("analyse")
    rig.street.ledger.advance(
        "analyse", [(job.lease, Advance(ReadingState.ANALYSED, {"timings": timings}))]
    )
    found = rig.get("/api/v1/studies/1.2.3")
    said = {
        "started_at": "2026-11-20T08:30:00.000Z",
        "decode_seconds": 0.25,
        "batch_size": 4,
        "finished_at": "2026-11-20T08:30:00.000Z",
    }
    assert found["images"][0]["readings"][0]["timings"] == said


def test_answers_hold_no_patient_data_that_the_ledger_keeps(rig: Rig) -> None:
    rig.street.walk("1.2.3", 1)
    for path in (
        "/api/v1/studies",
        "/api/v1/studies/1.2.3",
        "/api/v1/studies/1.2.3/documents",
        "/api/v1/queues",
        "/metrics",
    ):
        assert "DOE" not in rig.client.get(path).text


def test_why_an_image_has_no_number(rig: Rig) -> None:
    rig.street.receive("1.2.3", 1)
    rig.street.read(ReadingState.NOT_ANALYSED, "lateral_not_supported")
    (image,) = rig.get("/api/v1/studies/1.2.3")["images"]
    assert (image["readings"][0]["state"], image["readings"][0]["reason"]) == (
        "not_analysed",
        "lateral_not_supported",
    )


def test_paging_through_the_list(rig: Rig) -> None:
    for number in range(5):
        rig.street.receive(f"1.2.{number}", 1)
        rig.clock.now += 1
    seen, cursor = [], {}
    for _ in range(3):
        page = rig.get("/api/v1/studies", limit=2, **cursor)
        seen += [item["study_instance_uid"] for item in page["studies"]]
        cursor = {"cursor": page["next_cursor"]}
    assert seen == ["1.2.4", "1.2.3", "1.2.2", "1.2.1", "1.2.0"]
    assert page["next_cursor"] is None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"state": "closed"}, ["1.2.1"]),
        ({"state": "due"}, ["1.2.2"]),
        ({"release": RELEASE}, ["1.2.1"]),
        ({"outcome": "partial"}, []),
        ({"calling_ae_title": "CR1"}, ["1.2.2", "1.2.1"]),
        ({"received_since": "2026-11-20T08:30:05Z"}, ["1.2.2"]),
        ({"received_since": "2026-11-20T09:30:05+01:00"}, ["1.2.2"]),
        ({"received_until": "2026-11-20T08:30:05.000Z", "order": "oldest"}, ["1.2.1"]),
    ],
)
def test_filters(rig: Rig, query: dict[str, str], expected: list[str]) -> None:
    rig.street.walk("1.2.1", 1)
    rig.street.receive("1.2.2", 1)
    assert [
        item["study_instance_uid"] for item in rig.get("/api/v1/studies", **query)["studies"]
    ] == expected


def test_who_follows_meets_a_late_result_without_asking_for_everything(rig: Rig) -> None:
    rig.street.walk("1.2.1", 1)
    rig.street.receive("1.2.2", 1)
    page = rig.get("/api/v1/studies", order="changed")
    assert [item["study_instance_uid"] for item in page["studies"]] == ["1.2.1", "1.2.2"]
    rig.street.read()
    rig.street.assemble()
    page = rig.get("/api/v1/studies", order="changed", cursor=page["next_cursor"])
    assert [(item["id"], item["state"], len(item["results"])) for item in page["studies"]] == [
        (2, "closed", 1)
    ]
    cursor = page["next_cursor"]
    assert rig.get("/api/v1/studies", order="changed", cursor=cursor) == {
        "studies": [],
        "next_cursor": cursor,
    }


@pytest.mark.parametrize(
    "query",
    [
        {"state": "due"},
        {"received_since": "2026-11-20T08:30:05Z"},
        {"cursor": "WyJjaGFuZ2VzIiwxLDMsMV0"},
    ],
)
def test_who_follows_chooses_among_what_comes(rig: Rig, query: dict[str, str]) -> None:
    found = rig.get("/api/v1/studies", 422, order="changed", **query)
    assert found["errors"][0]["place"] == ("query.cursor" if "cursor" in query else "query.order")


def test_documents_are_the_bytes_that_were_sent(rig: Rig) -> None:
    rig.street.walk("1.2.3", 1)
    sr, as_json = rig.get("/api/v1/studies/1.2.3/documents")["documents"]
    assert sr["size_bytes"] == len(SR_BYTES)
    for key in (sr["id"], sr["sop_instance_uid"]):
        response = rig.client.get(f"/api/v1/documents/{key}")
        assert (response.content, response.headers["content-type"]) == (
            SR_BYTES,
            "application/dicom",
        )
        assert (
            response.headers["content-disposition"]
            == f'inline; filename="{sr["sop_instance_uid"]}.dcm"'
        )
    response = rig.client.get(f"/api/v1/documents/{as_json['id']}")
    assert (response.json(), response.headers["content-type"]) == (
        {"outcome": "analysed"},
        "application/json",
    )


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/studies/1.9",
        "/api/v1/studies/1.9/documents",
        "/api/v1/documents/9",
        "/api/v1/documents/1.9",
    ],
)
def test_what_is_not_there_is_404_with_advice(rig: Rig, path: str) -> None:
    found = rig.get(path, 404)
    assert (found["title"], found["status"]) == ("Not Found", 404)
    assert "/api/v1/" in found["detail"]


@pytest.mark.parametrize(
    ("source", "answer"),
    [(Finding, FindingAnswer), (SourceImage, SourceImageAnswer), (Code, CodeAnswer)],
)
def test_no_field_of_a_result_is_dropped_on_the_way_out(
    source: type, answer: type[ResponseModel]
) -> None:
    assert {item.name for item in dataclasses.fields(source)} == set(answer.model_fields)


def test_a_uid_with_leading_zeros_is_found(rig: Rig) -> None:
    rig.street.receive("1.2.007", 1)
    assert rig.get("/api/v1/studies/1.2.007")["study_instance_uid"] == "1.2.007"

"""REST for people who step in.

Complete a study, pause a destination, erase a patient; and back-pressure on what makes work.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hilum.domain import Advance, DeliveryState, ReadingState
from tests.support.server.api_client import Rig, open_rig

PATIENT = "PID-4711-OZ"


def test_a_study_is_completed_before_its_quiet_period_ends(rig: Rig) -> None:
    rig.street.receive("1.2.3", 1)
    rig.street.read()
    assert rig.street.claim("assemble") == []
    response = rig.client.post("/api/v1/studies/1.2.3/complete")
    assert (response.status_code, response.json()) == (
        200,
        {"state": "due", "ended_readings": 0, "waits_for": 0},
    )
    (job,) = rig.street.claim("assemble")
    assert job.study.quiet_until <= rig.clock.now  # type: ignore[union-attr]
    assert rig.client.post("/api/v1/studies/1.2.3/complete").json()["state"] == "leased"
    assert rig.client.post("/api/v1/studies/1.9.9/complete").status_code == 404


def test_open_readings_are_waited_for_unless_told_otherwise(rig: Rig) -> None:
    rig.street.receive("1.2.3", 1)
    (held,) = rig.street.jobs_of("analyse")
    rig.street.receive("1.2.3", 2, 3)
    assert rig.client.post("/api/v1/studies/1.2.3/complete").json() == {
        "state": "due",
        "ended_readings": 0,
        "waits_for": 3,
    }
    assert rig.street.claim("assemble") == []
    answer = rig.client.post(
        "/api/v1/studies/1.2.3/complete", json={"without_waiting": True}
    ).json()
    assert answer == {"state": "due", "ended_readings": 2, "waits_for": 1}, (
        "what is in work is waited for"
    )
    assert rig.street.claim("assemble") == []
    rig.street.ledger.advance(
        "analyse", [(held.lease, Advance(ReadingState.ANALYSED, {"logits": [0.5]}))]
    )
    assert len(rig.street.claim("assemble")) == 1
    readings = [image["readings"][0] for image in rig.get("/api/v1/studies/1.2.3")["images"]]
    assert [item["reason"] for item in readings] == [None, "not_waited_for", "not_waited_for"]


def test_completing_a_closed_study_changes_nothing(rig: Rig) -> None:
    rig.street.walk("1.2.3", 1)
    before = rig.get("/api/v1/studies/1.2.3")
    assert before.pop("history") == []
    answer = rig.client.post(
        "/api/v1/studies/1.2.3/complete", json={"without_waiting": True}
    ).json()
    assert answer == {"state": "closed", "ended_readings": 0, "waits_for": 0}
    after = rig.get("/api/v1/studies/1.2.3")
    assert [item["verb"] for item in after.pop("history")] == ["complete"]
    assert after == before


def destination(rig: Rig, name: str = "pacs") -> dict[str, object]:
    return next(
        item for item in rig.get("/api/v1/destinations")["destinations"] if item["name"] == name
    )


def test_a_destination_is_paused_before_it_was_ever_used_and_readiness_shows_it(rig: Rig) -> None:
    assert (destination(rig)["is_configured"], destination(rig)["is_paused"]) == (True, False)
    response = rig.client.post("/api/v1/destinations/pacs/pause")
    assert (response.status_code, response.json()["is_paused"]) == (200, True)
    assert not rig.street.ledger.acquire_destination("pacs", "dispatcher-1", 60)
    failed = [
        check
        for check in rig.get("/health/ready", 503, role="deliver")["roles"][0]["checks"]
        if not check["ok"]
    ]
    assert "destination pacs" in {check["name"] for check in failed}
    assert 'hilum_destination_paused{destination="pacs"} 1.0' in rig.client.get("/metrics").text
    assert rig.client.post("/api/v1/destinations/pacs/resume").json()["is_paused"] is False
    assert rig.street.ledger.acquire_destination("pacs", "dispatcher-1", 60)
    for verb in ("pause", "resume"):
        assert rig.client.post(f"/api/v1/destinations/pcas/{verb}").status_code == 404


def test_a_destination_says_what_waits_and_what_is_dead(rig: Rig) -> None:
    for study in ("1.2.3", "1.2.4"):
        rig.street.receive(study, 1)
    rig.street.read()
    rig.street.assemble()
    rig.street.destinations = ("pacs", "gone")
    rig.street.report()
    jobs = {(job.destination, job.lease.row_id): job for job in rig.street.claim("deliver")}  # type: ignore[union-attr]
    first, second = (job for key, job in sorted(jobs.items()) if key[0] == "pacs")
    rig.street.ledger.advance(
        "deliver", [(first.lease, Advance(DeliveryState.DEAD, {"reason": "sop_class_refused"}))]
    )
    rig.street.ledger.retry("deliver", second.lease, "PACS@10.0.0.1:104 refused the connection", 60)
    rig.clock.now += 1
    found = destination(rig)
    assert (found["waiting"], found["dead"], found["detail"]) == (
        1,
        {"sop_class_refused": 1},
        "PACS@10.0.0.1:104 refused the connection",
    )
    assert (destination(rig, "gone")["is_configured"], destination(rig, "gone")["leased"]) == (
        False,
        2,
    )


def test_what_waits_for_a_destination_that_is_gone_is_given_up_and_not_due_again(rig: Rig) -> None:
    rig.street.destinations = ("pacs", "gone")
    rig.street.receive("1.2.3", 1)
    rig.street.read()
    rig.street.assemble()
    rig.street.report()
    response = rig.client.post("/api/v1/requeue", json={"stage": "deliver", "destination": "gone"})
    assert (
        response.status_code,
        "/api/v1/destinations/{name}/forget" in response.json()["detail"],
    ) == (404, True)
    assert rig.client.post("/api/v1/destinations/pacs/forget").status_code == 409
    response = rig.client.post("/api/v1/destinations/gone/forget")
    assert (response.status_code, response.json()) == (200, {"cancelled": 1, "in_work": 0})
    assert rig.client.post("/api/v1/destinations/gone/forget").status_code == 404
    assert (destination(rig)["due"], 'destination="other"' in rig.client.get("/metrics").text) == (
        1,
        False,
    )
    assert rig.client.post(
        "/api/v1/commitments/forget", json={"calling_ae_title": "CR1"}
    ).json() == {"forgotten": 0}


def test_dead_letters_of_one_reason_go_again_together(rig: Rig) -> None:
    for study in ("1.2.3", "1.2.4", "1.2.5"):
        rig.street.receive(study, 1)
    rig.street.read()
    rig.street.assemble()
    rig.street.report()
    reasons = ("sop_class_refused", "sop_class_refused", "data_set_refused")
    for job, reason in zip(rig.street.claim("deliver"), reasons, strict=True):
        rig.street.ledger.advance(
            "deliver", [(job.lease, Advance(DeliveryState.DEAD, {"reason": reason}))]
        )
    order = {"stage": "deliver", "reason": "sop_class_refused"}
    assert rig.client.post("/api/v1/requeue", json=order).json() == {"requeued": 2}
    assert destination(rig)["dead"] == {"data_set_refused": 1}
    response = rig.client.post("/api/v1/requeue", json={**order, "reason": "sop_clas_refused"})
    (error,) = response.json()["errors"]
    assert (response.status_code, error["place"], "sop_class_refused" in error["detail"]) == (
        422,
        "body.reason",
        True,
    )
    assert "sop_clas_refused" not in response.text
    assert (
        rig.client.post(
            "/api/v1/requeue", json={"stage": "analyse", "reason": "sop_class_refused"}
        ).status_code
        == 422
    )


@pytest.mark.parametrize(
    "order",
    [
        {},
        {"patient_id": ""},
        {"patient_id": "  "},
        {"patient_id": "x" * 65},
        {"patient_id": "1", "name": "A"},
        {"patient_id": "xxx", "study_instance_uid": "1.2.3"},
        {"study_instance_uid": "xxx"},
        {"study_instance_uid": "1.2.3", "issuer_of_patient_id": "xxx"},
    ],
)
def test_a_vague_erasure_is_refused_and_not_repeated_back(rig: Rig, order: dict[str, str]) -> None:
    response = rig.client.post("/api/v1/erase", json=order)
    assert response.status_code == 422
    assert "xxx" not in response.text


def test_erasure_answers_with_numbers_only(rig: Rig, capfd: pytest.CaptureFixture[str]) -> None:
    assert rig.client.post("/api/v1/erase", json={"patient_id": PATIENT}).status_code == 503, (
        "no archive on this host"
    )
    (rig.folder / "archive" / "locks").mkdir(parents=True)
    rig.street.walk("1.2.3", 1)
    for order in (
        {"patient_id": PATIENT, "is_dry_run": True},
        {"patient_id": PATIENT, "issuer_of_patient_id": "NORTH"},
    ):
        response = rig.client.post("/api/v1/erase", json=order)
        assert response.status_code == 200, response.text
        assert response.json() | {"is_complete": None, "is_rewritten": None} == {
            **dict.fromkeys(
                (
                    "studies",
                    "images",
                    "documents",
                    "quarantined",
                    "unreadable",
                    "arriving",
                    "files_left",
                ),
                0,
            ),
            "delivered": {},
            "tried": {},
            "is_complete": None,
            "is_rewritten": None,
        }
        assert PATIENT not in response.text
    assert PATIENT not in rig.client.get("/metrics").text
    assert PATIENT not in "".join(capfd.readouterr())


def test_one_study_is_erased(rig: Rig) -> None:
    (rig.folder / "archive" / "locks").mkdir(parents=True)
    for study in ("1.2.3", "1.2.4"):
        rig.street.walk(study, 1)
    counted = rig.client.post(
        "/api/v1/erase", json={"study_instance_uid": "1.2.3", "is_dry_run": True}
    ).json()
    assert (counted["studies"], counted["images"], counted["delivered"]) == (1, 1, {"pacs": 1})
    response = rig.client.post("/api/v1/erase", json={"study_instance_uid": "1.2.3"})
    assert (response.status_code, response.json()["studies"]) == (200, 1)
    assert "1.2.3" not in response.text
    assert rig.client.get("/api/v1/studies/1.2.3").status_code == 404
    assert rig.client.get("/api/v1/studies/1.2.4").status_code == 200


def test_erasure_waits_for_a_token_and_for_our_own_page(tmp_path: Path) -> None:
    with open_rig(tmp_path, token="secret") as rig:
        assert rig.client.post("/api/v1/erase", json={"patient_id": PATIENT}).status_code == 401
    (tmp_path / "other").mkdir()
    with open_rig(tmp_path / "other") as rig:
        headers = {"Origin": "http://evil.example"}
        assert (
            rig.client.post(
                "/api/v1/erase", json={"patient_id": PATIENT}, headers=headers
            ).status_code
            == 403
        )


def test_new_work_waits_while_the_disk_is_nearly_full_and_deliveries_go_on(tmp_path: Path) -> None:
    with open_rig(tmp_path, reserve_bytes=1 << 60) as rig:
        response = rig.client.post("/api/v1/requeue", json={"stage": "analyse", "all": True})
        assert (response.status_code, response.headers["Retry-After"]) == (503, "60")
        assert "disk" in response.json()["detail"]
        assert (
            rig.client.post("/api/v1/requeue", json={"stage": "deliver", "all": True}).status_code
            == 200
        )

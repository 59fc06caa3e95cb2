"""The notice of a result: it names documents, and neither a patient nor a finding."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest
from pydicom.dataset import Dataset

from hilum.domain import ImageReason, ReadingState, ReportJob
from hilum.report import HeatMap, build_documents
from testing.phantoms.phantom import make_study
from tests.support.reports.results import (
    CONTEXT,
    LABELS,
    instance_of,
    make_release,
    reading_of,
    report_job,
    report_of,
    results_of,
    study_job,
)

RELEASE = make_release()
PATIENT = {
    "PatientName": "Miller^Ann",
    "PatientID": "MRN-77",
    "AccessionNumber": "ACC-77",
    "PatientBirthDate": "19500102",
    "InstitutionName": "St Elsewhere",
}


def image() -> Dataset:
    (made,) = make_study(5, views=("PA",), rows=16, columns=16, overrides=PATIENT)
    return made


def built(job: ReportJob, kind: str = "notice", heat_map: HeatMap | None = None) -> bytes:
    (document,) = build_documents(job, RELEASE, CONTEXT, (kind,), heat_map)
    return document.content


def content_of(job: ReportJob, heat_map: HeatMap | None = None) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(built(job, heat_map=heat_map))
    return made


def not_analysed() -> ReportJob:
    """A study whose only header cannot be read."""
    item = instance_of(image(), header=b"\x40\x00\x75\x02OB\x02\x00\x01\x20")
    reason = ImageReason.CONSTANT_IMAGE.value
    state = ReadingState.NOT_ANALYSED
    reading = reading_of(item, RELEASE, state=state, logits=None, reason=reason)
    (result,) = results_of(study_job([item], [reading]), RELEASE)
    return report_job([item], result)


def test_it_names_the_result_and_its_documents() -> None:
    job = report_of([image()], RELEASE)
    result = json.loads(built(job, "json"))
    content = content_of(job)
    assert list(content) == ["type", "schema", "timestamp", "data"]
    assert content["type"] == "result.reported"
    assert content["schema"] == "hilum/notice/1.0"
    assert content["timestamp"] == result["created_at"]
    data = content["data"]
    same = ("result_uid", "revision", "supersedes", "outcome", "reason", "reason_text")
    assert {name: data[name] for name in same} == {name: result[name] for name in same}
    assert data["structured_report"] == result["structured_report"]
    study = job.result.study_instance_uid
    assert data["study_instance_uid"] == study
    assert (data["release"], data["is_trained"]) == ("densenet121@2", True)
    assert data["paths"] == {
        "documents": f"/api/v1/studies/{study}/documents",
        "page": f"/studies/{study}",
    }


def test_no_patient_and_no_finding_is_in_it() -> None:
    job = report_of([image()], RELEASE)
    shown = HeatMap("1.2", "1.2.3", "1.2.4", finding_keys=(LABELS[0].key,))
    text = built(job, heat_map=shown).decode()
    assert all(value.encode() not in text.encode() for value in PATIENT.values())
    assert all(label.key not in text and label.text not in text for label in LABELS)
    assert not re.search(r"score|probabilit|logit|decision", text)
    assert len(text) < 20_000


def test_a_heat_map_is_named_by_its_uids() -> None:
    job = report_of([image()], RELEASE)
    shown = HeatMap("1.2", "1.2.3", "1.2.4", finding_keys=("pneumonia",))
    uids = {"sop_instance_uid": "1.2.3", "series_instance_uid": "1.2.4"}
    assert content_of(job, shown)["data"]["heat_map"] == uids
    assert content_of(job, HeatMap(left_out="too small"))["data"]["heat_map"] is None
    assert content_of(job)["data"]["heat_map"] is None


def test_a_study_that_was_not_analysed_has_one_with_the_reason() -> None:
    data = content_of(not_analysed())["data"]
    assert (data["outcome"], data["reason"]) == ("not_analysed", "constant_image")
    assert data["reason_text"]
    assert data["structured_report"] is None


def test_a_revision_names_the_result_that_it_replaces() -> None:
    first = report_of([image()], RELEASE)
    (before,) = build_documents(first, RELEASE, CONTEXT, ("json",))
    job = report_job(first.instances, first.result, {"json": before})
    assert content_of(job)["data"]["supersedes"] == json.loads(before.content)["result_uid"]


@pytest.mark.parametrize("uid", ["1.2/../../erase?x=1#y", '1.2"}', "1.2\r\nX-Evil: 1", "ä"])
def test_a_hostile_study_uid_stays_a_text(uid: str) -> None:
    job = report_of([image()], RELEASE)
    hostile = dataclasses.replace(
        job, result=dataclasses.replace(job.result, study_instance_uid=uid)
    )
    data = content_of(hostile)["data"]
    assert data["study_instance_uid"] == uid
    assert re.fullmatch(r"/studies/[A-Za-z0-9._~%-]+", data["paths"]["page"])

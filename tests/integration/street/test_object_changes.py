"""Objects that change after they were sent, routes, and files without a network, on a whole server.

The reports follow.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydicom
import pytest

from hilum.deliver.send import send
from testing.phantoms import phantom
from testing.serving import Hilum
from tests.support.models.releases import Tiny
from tests.support.objects.notes import key_objects
from tests.support.reports.sr_gate import assert_clean
from tests.support.server.installation import (
    START_SECONDS,
    detail,
    hilum_with,
    save_all,
    send_to,
    small_study,
    wait_for,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def inbox(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the server watches."""
    return tmp_path_factory.mktemp("inbox")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, inbox: Path, tiny: Tiny) -> Iterator[Hilum]:
    folder = tmp_path_factory.mktemp("changes")
    destinations = {
        name: {"kind": "folder", "path": str(folder / name), "documents": ["sr", "json"]}
        for name in ("clinical", "research", "never")
    }
    routes = {
        "routes.HILUM": {"destinations": ["clinical"]},
        "routes.STUDY": {
            "destinations": ["research"],
            "priority": "reanalysis",
            "quiet_seconds": 0.2,
        },
    }
    watch = {"watch.scanner": {"path": str(inbox), "settle_seconds": 0.5, "priority": "live"}}
    receive = {"ae_titles": ["HILUM", "STUDY"]}
    with hilum_with(
        folder,
        tiny,
        destinations,
        quiet_seconds=3.0,
        receive=receive,
        **routes,
        **watch,
    ) as running:
        running.wait_until_ready(START_SECONDS)
        yield running


def wait_for_results(server: Hilum, study_uid: str, count: int) -> list[dict[str, Any]]:
    """So many results, oldest first, the last one delivered."""

    def is_there() -> bool:
        results = detail(server, study_uid).get("results", [])
        sent = (
            [one["state"] for document in results[0]["documents"] for one in document["deliveries"]]
            if results
            else []
        )
        return (
            len(results) == count
            and bool(sent)
            and set(sent) <= {"delivered", "cancelled", "withheld"}
        )

    wait_for(is_there, what=f"{count} results")
    return list(reversed(detail(server, study_uid)["results"]))


def report_of(
    server: Hilum, result: dict[str, Any], name: str = "clinical"
) -> tuple[Path, pydicom.Dataset]:
    (uid,) = [item["sop_instance_uid"] for item in result["documents"] if item["kind"] == "sr"]
    file = server.folder / name / f"{uid}.dcm"
    return file, pydicom.dcmread(file)


def predecessor(report: pydicom.Dataset) -> str:
    (item,) = (
        report.PredecessorDocumentsSequence[0].ReferencedSeriesSequence[0].ReferencedSOPSequence
    )
    return str(item.ReferencedSOPInstanceUID)


def evidence(report: pydicom.Dataset) -> set[str]:
    studies = [
        *report.get("CurrentRequestedProcedureEvidenceSequence", []),
        *report.get("PertinentOtherEvidenceSequence", []),
    ]
    series = [item for study in studies for item in study.ReferencedSeriesSequence]
    return {
        str(item.ReferencedSOPInstanceUID) for one in series for item in one.ReferencedSOPSequence
    }


def test_a_rejection_note_changes_the_report_and_the_next_withdraws_it(
    server: Hilum, tmp_path: Path
) -> None:
    first, second = small_study(seed=301)
    sources = save_all(tmp_path / "images", [first, second])
    assert send_to(server, sources).is_ok
    (result,) = wait_for_results(server, first.StudyInstanceUID, 1)
    _, old = report_of(server, result)
    assert {first.SOPInstanceUID, second.SOPInstanceUID} <= evidence(old)

    assert send_to(server, save_all(tmp_path / "note", [key_objects([second], "113001")])).is_ok
    changed = wait_for_results(server, first.StudyInstanceUID, 2)[-1]
    file, new = report_of(server, changed)
    assert predecessor(new) == old.SOPInstanceUID
    assert second.SOPInstanceUID not in evidence(new)
    assert first.SOPInstanceUID in evidence(new)
    assert changed["outcome"] == "analysed"
    assert_clean(file, sources[:1], ("dciodvfy", "dsrdump"))

    assert send_to(server, save_all(tmp_path / "last", [key_objects([first], "113037")])).is_ok
    withdrawn = wait_for_results(server, first.StudyInstanceUID, 3)[-1]
    assert (withdrawn["outcome"], withdrawn["reason"], withdrawn["findings"]) == (
        "not_analysed",
        "rejected",
        [],
    )
    file, last = report_of(server, withdrawn)
    assert predecessor(last) == new.SOPInstanceUID
    assert "ejected" in "".join(walk_texts(last))
    assert_clean(file, sources, ("dciodvfy", "dsrdump"))
    document = next(
        json.loads(path.read_text())
        for path in (server.folder / "clinical").glob("*.json")
        if is_of(path, withdrawn)
    )
    assert (document["reason"], document["study"]["patient_id"]) == ("rejected", first.PatientID)
    assert [
        image["removal_reason"] for image in detail(server, first.StudyInstanceUID)["images"]
    ] == [
        "rejected_for_patient_safety_reasons",
        "rejected_for_quality_reasons",
    ]


def is_of(path: Path, result: dict[str, Any]) -> bool:
    document = json.loads(path.read_text())
    return bool(
        document["revision"] == result["revision"] and document["reason"] == result["reason"]
    )


def walk_texts(item: pydicom.Dataset) -> Iterator[str]:
    if "TextValue" in item:
        yield str(item.TextValue)
    for child in item.get("ContentSequence", []):
        yield from walk_texts(child)


def test_a_report_that_comes_back_is_acknowledged_and_discarded(
    server: Hilum, tmp_path: Path
) -> None:
    images = small_study(seed=302, views=("PA",))
    send_to(server, save_all(tmp_path, images))
    (result,) = wait_for_results(server, images[0].StudyInstanceUID, 1)
    file, _ = report_of(server, result)
    assert send([file], "127.0.0.1", server.dicom_port, "HILUM", "ARCHIVE").is_ok
    wait_for(
        lambda: any(
            item["own_documents"]
            for item in server.get("/api/v1/associations").json()["associations"]
        ),
        what="the row",
    )
    counted = 'hilum_instances_received_total{outcome="own_document"} 1.0'
    wait_for(lambda: counted in server.get("/metrics").text, what="the metric")
    assert len(detail(server, images[0].StudyInstanceUID)["images"]) == 1


def test_a_conflict_that_is_replaced_is_read_and_reported_again(
    server: Hilum, tmp_path: Path
) -> None:
    (image,) = small_study(seed=303, views=("PA",))
    send_to(server, save_all(tmp_path / "first", [image]))
    (old,) = wait_for_results(server, image.StudyInstanceUID, 1)
    (other,) = small_study(seed=304, views=("PA",))
    image.PixelData = other.PixelData
    assert send_to(server, save_all(tmp_path / "other", [image])).is_ok

    def held() -> list[dict[str, Any]]:
        conflicts = server.get("/api/v1/conflicts").json()["conflicts"]
        return [
            item
            for item in conflicts
            if item["sop_instance_uid"] == image.SOPInstanceUID and item["state"] == "held"
        ]

    wait_for(held, what="the conflict")
    answer = server.post(f"/api/v1/conflicts/{held()[0]['id']}/replace")
    assert (answer.status_code, answer.json()["state"]) == (200, "replaced")
    new = wait_for_results(server, image.StudyInstanceUID, 2)[-1]
    assert [item["logit"] for item in new["findings"]] != [
        item["logit"] for item in old["findings"]
    ]
    assert predecessor(report_of(server, new)[1]) == report_of(server, old)[1].SOPInstanceUID


def test_the_called_ae_title_decides_where_documents_go(server: Hilum, tmp_path: Path) -> None:
    images = small_study(seed=305, views=("PA",))
    assert send(
        save_all(tmp_path, images), "127.0.0.1", server.dicom_port, "STUDY", "MODALITY"
    ).is_ok
    (result,) = wait_for_results(server, images[0].StudyInstanceUID, 1)
    assert {
        one["destination"] for document in result["documents"] for one in document["deliveries"]
    } == {"research"}
    report_of(server, result, "research")
    assert detail(server, images[0].StudyInstanceUID)["priority"] == "reanalysis"
    assert not (server.folder / "never").exists()


def test_files_that_are_ingested_and_files_of_a_watched_folder_are_read(
    server: Hilum, inbox: Path, tmp_path: Path
) -> None:
    studies = [
        (small_study(seed=306), tmp_path / "study"),
        (small_study(seed=307), inbox / "study"),
    ]
    for images, folder in studies:
        folder.mkdir()
        for number, image in enumerate(images):
            phantom.save(image, folder / f"{number}.dcm")
    (inbox / "letter.txt").write_text("Dear colleague")
    assert (
        subprocess.run(
            server.command("ingest", str(tmp_path / "study")), timeout=120, check=False
        ).returncode
        == 0
    )
    for images, _ in studies:
        (result,) = wait_for_results(server, images[0].StudyInstanceUID, 1)
        assert result["outcome"] == "analysed"
    wait_for((inbox / "refused/letter.txt.txt").exists, what="the reason")
    wait_for(
        lambda: (
            sorted(file.name for file in (inbox / "taken/study").glob("*")) == ["0.dcm", "1.dcm"]
        ),
        what="what was taken",
    )
    assert "Dear" not in server.log.read_text()

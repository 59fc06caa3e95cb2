"""The whole street: C-STORE in, a model in a real tritonserver, report, JSON and page out.

One server for all tests here.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import imagecodecs
import pydicom
import pytest
from pydicom.uid import (
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEGBaseline8Bit,
    JPEGLSLossless,
)

from testing.phantoms import phantom
from testing.serving import Hilum
from tests.support.machine.processes import children_of
from tests.support.machine.waiting import has_ended
from tests.support.models.releases import make_tiny
from tests.support.models.triton import command_of
from tests.support.peers.peers import Orthanc
from tests.support.reports.html import Strict
from tests.support.reports.sr_gate import assert_clean
from tests.support.server.installation import (
    START_SECONDS,
    detail,
    hilum_with,
    kill,
    loaded_libraries,
    processes,
    save_all,
    send_to,
    small_study,
    wait_for,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def orthanc() -> Iterator[Orthanc]:
    with Orthanc() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, orthanc: Orthanc) -> Iterator[Hilum]:
    folder = tmp_path_factory.mktemp("street")
    destinations = {
        "pacs": {
            "kind": "dicom",
            "host": "127.0.0.1",
            "port": orthanc.dicom_port,
            "ae_title": orthanc.ae_title,
        },
        "folder": {"kind": "folder", "path": str(folder / "out"), "documents": ["sr", "json"]},
    }
    tiny = make_tiny(folder / "tiny")
    with hilum_with(folder, tiny, destinations) as running:
        running.wait_until_ready(START_SECONDS)
        yield running


def all_delivered(server: Hilum, study_uid: str, results: int = 1) -> bool:
    """The study is closed, with so many results, the last reported, and nothing left to send."""
    study = detail(server, study_uid)
    found = study.get("results", [])
    deliveries = [
        one
        for result in found
        for document in result["documents"]
        for one in document["deliveries"]
    ]
    is_sent = all(one["state"] in ("delivered", "cancelled", "withheld") for one in deliveries)
    return (
        study.get("state") == "closed"
        and len(found) == results
        and all(result["state"] in ("reported", "superseded") for result in found)
        and is_sent
    )


def reports(server: Hilum, study_uid: str) -> list[pydicom.Dataset]:
    found = [pydicom.dcmread(file) for file in sorted((server.folder / "out").glob("*.dcm"))]
    return [item for item in found if item.StudyInstanceUID == study_uid]


@pytest.mark.parametrize("modality", ["DX", "CR", "SC"])
def test_a_study_becomes_a_clean_report_in_the_pacs(
    server: Hilum, orthanc: Orthanc, tmp_path: Path, modality: str
) -> None:
    images = phantom.make_study(
        seed=ord(modality[0]), modality=modality, views=("PA", "LATERAL"), rows=256, columns=256
    )
    sources = save_all(tmp_path, images)
    study_uid = images[0].StudyInstanceUID
    assert send_to(server, sources).is_ok
    wait_for(lambda: all_delivered(server, study_uid), what="delivered")
    found = detail(server, study_uid)
    readings = {image["sop_instance_uid"]: image["readings"][0] for image in found["images"]}
    assert readings[images[0].SOPInstanceUID]["state"] == "analysed"
    assert readings[images[1].SOPInstanceUID]["reason"] == "lateral_not_supported"
    (report,) = reports(server, study_uid)
    (stored,) = orthanc.find(report.SOPInstanceUID)
    assert pydicom.dcmread(io.BytesIO(orthanc.file(stored))) == report
    assert_clean(
        server.folder / "out" / f"{report.SOPInstanceUID}.dcm",
        sources[:1],
        ("dciodvfy", "dcentvfy", "dsrdump"),
    )


def test_json_and_rest_and_report_say_the_same(server: Hilum, tmp_path: Path) -> None:
    images = small_study(seed=77, views=("PA",))
    study_uid = images[0].StudyInstanceUID
    send_to(server, save_all(tmp_path, images))
    wait_for(lambda: all_delivered(server, study_uid), what="delivered")
    result = detail(server, study_uid)["results"][0]
    (file,) = [file for file in (server.folder / "out").glob("*.json") if study_uid in file.name]
    document = json.loads(file.read_text())
    assert {item["key"]: item["logit"] for item in document["findings"]} == {
        item["key"]: item["logit"] for item in result["findings"]
    }
    assert document["study"]["study_instance_uid"] == study_uid
    (report,) = reports(server, study_uid)
    numbers = [float(value.NumericValue) for value in _numbers(report)]
    for item in result["findings"]:
        assert any(number == pytest.approx(item["score"], rel=1e-4) for number in numbers), item[
            "key"
        ]


def _numbers(item: pydicom.Dataset) -> Iterator[pydicom.Dataset]:
    yield from item.get("MeasuredValueSequence", [])
    for child in item.get("ContentSequence", []):
        yield from _numbers(child)


@pytest.mark.parametrize(
    "syntax",
    [ExplicitVRLittleEndian, ImplicitVRLittleEndian, JPEGBaseline8Bit],
    ids=lambda uid: uid.name,
)
def test_transfer_syntaxes_that_are_read(server: Hilum, tmp_path: Path, syntax: str) -> None:
    bits = 8 if syntax == JPEGBaseline8Bit else 12
    images = phantom.make_study(
        seed=len(syntax),
        views=("PA",),
        rows=128,
        columns=128,
        bits=bits,
        transfer_syntax_uid=syntax,
    )
    send_to(server, save_all(tmp_path, images))
    wait_for(lambda: all_delivered(server, images[0].StudyInstanceUID), what=str(syntax))


def test_what_cannot_be_read_ends_with_a_reason_and_without_a_report(
    server: Hilum, tmp_path: Path
) -> None:
    truncated, foreign = small_study(501, ("PA",)), small_study(502, ("PA",))
    truncated[0].PixelData = truncated[0].PixelData[:1000]
    foreign[0].file_meta.TransferSyntaxUID = JPEGLSLossless
    foreign[0].PixelData = pydicom.encaps.encapsulate([b"\xff\xd8 no codestream \xff\xd9"])
    foreign[0]["PixelData"].VR, foreign[0]["PixelData"].is_undefined_length = "OB", True
    for images, reason in ((truncated, "truncated_pixel_data"), (foreign, "undecodable")):
        study_uid = images[0].StudyInstanceUID
        assert send_to(server, save_all(tmp_path / study_uid, images)).is_ok
        wait_for(lambda uid=study_uid: all_delivered(server, uid), what=reason)
        found = detail(server, study_uid)
        assert found["images"][0]["readings"][0]["reason"] == reason
        assert found["results"][0]["outcome"] == "not_analysed"
        assert [document["kind"] for document in found["results"][0]["documents"]] == ["json"]


def test_a_late_image_supersedes(server: Hilum, tmp_path: Path) -> None:
    first, second = small_study(seed=88)
    send_to(server, save_all(tmp_path / "first", [first]))
    wait_for(lambda: all_delivered(server, first.StudyInstanceUID), what="first report")
    (old,) = reports(server, first.StudyInstanceUID)
    send_to(server, save_all(tmp_path / "second", [second]))
    wait_for(lambda: all_delivered(server, first.StudyInstanceUID, results=2), what="second report")
    (new,) = [
        item
        for item in reports(server, first.StudyInstanceUID)
        if item.SOPInstanceUID != old.SOPInstanceUID
    ]
    predecessor = (
        new.PredecessorDocumentsSequence[0].ReferencedSeriesSequence[0].ReferencedSOPSequence[0]
    )
    assert predecessor.ReferencedSOPInstanceUID == old.SOPInstanceUID
    assert new.SeriesInstanceUID == old.SeriesInstanceUID
    results = sorted(
        detail(server, first.StudyInstanceUID)["results"], key=lambda item: item["revision"]
    )
    assert [(item["revision"], item["is_current"]) for item in results] == [(1, False), (2, True)]


def test_a_late_lateral_gives_no_second_report_of_the_same_findings(
    server: Hilum, tmp_path: Path
) -> None:
    frontal, lateral = small_study(seed=89, views=("PA", "LATERAL"))
    send_to(server, save_all(tmp_path / "first", [frontal]))
    wait_for(lambda: all_delivered(server, frontal.StudyInstanceUID), what="report")
    send_to(server, save_all(tmp_path / "second", [lateral]))
    wait_for(
        lambda: len(detail(server, frontal.StudyInstanceUID)["images"]) == 2, what="the lateral"
    )
    wait_for(
        lambda: detail(server, frontal.StudyInstanceUID)["state"] == "closed",
        what="the study to close again",
    )
    assert len(detail(server, frontal.StudyInstanceUID)["results"]) == 1
    assert len(reports(server, frontal.StudyInstanceUID)) == 1


def test_the_same_image_again_changes_nothing(server: Hilum, tmp_path: Path) -> None:
    images = small_study(seed=99, views=("PA",))
    paths = save_all(tmp_path, images)
    send_to(server, paths)
    wait_for(lambda: all_delivered(server, images[0].StudyInstanceUID), what="report")
    assert send_to(server, paths).is_ok
    again = small_study(seed=100, views=("PA",))
    send_to(server, save_all(tmp_path / "again", again))
    wait_for(lambda: all_delivered(server, again[0].StudyInstanceUID), what="a later study")
    assert detail(server, images[0].StudyInstanceUID)["revision"] == 1
    assert len(reports(server, images[0].StudyInstanceUID)) == 1


def test_a_listener_never_loads_torch(server: Hilum) -> None:
    (listener,), (analyser,) = processes(server, "listener"), processes(server, "analyser")
    assert "libtorch" not in loaded_libraries(listener)
    assert "numpy" not in loaded_libraries(
        processes(server, "api")[0]
    ) or "libtorch" not in loaded_libraries(processes(server, "api")[0])
    assert any("libtorch" in loaded_libraries(pid) for pid in children_of(analyser)), (
        "the control: decode processes do load it"
    )


def test_metrics_of_all_processes_in_one_scrape(server: Hilum, tmp_path: Path) -> None:
    images = small_study(seed=102, views=("PA",))
    send_to(server, save_all(tmp_path, images))
    wait_for(lambda: all_delivered(server, images[0].StudyInstanceUID), what="report")
    for name in (
        "hilum_instances_received_total",
        "hilum_stage_seconds_bucket",
        "hilum_infer_seconds_bucket",
        "hilum_last_image_to_accepted_seconds_bucket",
        "hilum_queue_items{",
    ):
        wait_for(
            lambda name=name: f"\n{name}" in server.get("/metrics").text, what=name
        )  # counted when its row has been written


def test_from_the_modality_to_the_page(server: Hilum, tmp_path: Path) -> None:
    images = small_study(seed=103, views=("PA",))
    study, image = images[0].StudyInstanceUID, images[0].SOPInstanceUID
    assert send_to(server, save_all(tmp_path, images)).is_ok
    wait_for(lambda: "delivered" in server.get(f"/studies/{study}").text, what="delivered")
    for address in ("/", f"/studies/{study}", "/associations"):
        answer = server.get(address)
        assert (answer.status_code, Strict(answer.text).problems) == (200, [])
        assert str(images[0].PatientName) not in answer.text
        assert images[0].PatientID not in answer.text
    picture = server.get(f"/studies/{study}/images/{image}.png")
    assert imagecodecs.png_decode(picture.content).shape == (128, 128)
    assert len(painters(server)) == 1
    a_web_process_that_dies_takes_its_painter_along(server)


def painters(server: Hilum) -> list[int]:
    """Painting processes of the web process."""
    (web,) = processes(server, "api")
    return [pid for pid in children_of(web) if "hilum.api.pages.render_worker" in command_of(pid)]


def a_web_process_that_dies_takes_its_painter_along(server: Hilum) -> None:
    (painter,), web = painters(server), processes(server, "api")
    kill(web)
    wait_for(lambda: has_ended(painter), what="the painter's end")
    server.wait_until_ready(START_SECONDS)
    assert painters(server) == []

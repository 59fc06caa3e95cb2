"""Heat maps through the whole server.

A real DenseNet in Triton, the picture and the report in a folder, linked and clean.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pydicom
import pytest

from hilum.models.manifest.catalogue import load_catalogue
from testing.phantoms import phantom
from testing.serving import Hilum
from tests.support.models.releases import MANIFESTS, Tiny, build_cached
from tests.support.reports import sr_gate
from tests.support.reports.validators import complaints, output_of
from tests.support.server.installation import (
    START_SECONDS,
    detail,
    hilum_with,
    save_all,
    send_to,
    wait_for,
)

pytestmark = pytest.mark.slow
RELEASE = "densenet121_untrained@1"
PAGES = ("sheet", "pdf", "text_sr")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hilum]:
    folder = tmp_path_factory.mktemp("heat")
    destinations = {
        "out": {
            "kind": "folder",
            "path": str(folder / "out"),
            "documents": ["sr", "json", "heatmap"],
            "accept_untrained": True,
        },
        "plain": {
            "kind": "folder",
            "path": str(folder / "plain"),
            "documents": ["sr"],
            "accept_untrained": True,
        },
        "pages": {
            "kind": "folder",
            "path": str(folder / "pages"),
            "documents": ["sheet", "pdf", "text_sr"],
            "accept_untrained": True,
        },
        "clinic": {
            "kind": "folder",
            "path": str(folder / "clinic"),
            "documents": ["sr", "heatmap"],
        },
    }
    densenet = Tiny(load_catalogue(MANIFESTS)[RELEASE], MANIFESTS, build_cached(RELEASE))
    with hilum_with(folder, densenet, destinations, quiet_seconds=2.0) as running:
        running.wait_until_ready(START_SECONDS)
        yield running


def is_done(server: Hilum, study_uid: str) -> bool:
    results = detail(server, study_uid).get("results", [])
    deliveries = [
        item
        for result in results
        for document in result["documents"]
        for item in document["deliveries"]
    ]
    return bool(deliveries) and all(
        item["state"] in ("delivered", "cancelled", "withheld") for item in deliveries
    )


def out(server: Hilum, study_uid: str, kind: str, folder: str = "out") -> list[Path]:
    documents = [
        item
        for result in detail(server, study_uid)["results"]
        for item in result["documents"]
        if item["kind"] == kind
    ]
    return [server.folder / folder / f"{item['sop_instance_uid']}.dcm" for item in documents]


def test_picture_and_report_reach_the_folder_linked_and_clean(
    server: Hilum, tmp_path: Path
) -> None:
    images = phantom.make_study(
        seed=41, modality="CR", views=("PA", "LATERAL"), rows=600, columns=500
    )
    sources, study_uid = save_all(tmp_path, images), images[0].StudyInstanceUID
    assert send_to(server, sources).is_ok
    wait_for(lambda: is_done(server, study_uid), what="delivered")
    ((report,), (picture,)) = (out(server, study_uid, kind) for kind in ("sr", "heatmap"))
    sr_gate.assert_clean(report, [sources[0], picture], sr_gate.FAST)
    shown = [
        item for item in sr_gate.walk(pydicom.dcmread(report)) if sr_gate.name_of(item) == "130401"
    ]
    assert {item.ReferencedSOPSequence[0].ReferencedSOPInstanceUID for item in shown} == {
        picture.stem
    }
    assert len(shown) == 3
    dataset = pydicom.dcmread(picture)
    assert "untrained" in dataset.SeriesDescription
    assert [item.ReferencedSOPInstanceUID for item in dataset.SourceImageSequence] == [
        images[0].SOPInstanceUID
    ]
    colours = dataset.pixel_array.astype(int)
    assert (colours.max(-1) - colours.min(-1)).max() > 60, "there is colour on the sheet"


def text_of(document: Path) -> str:
    """The words of an encapsulated PDF, as poppler finds them, in one line."""
    written = pydicom.dcmread(document)
    pdf = document.with_suffix(".pdf")
    pdf.write_bytes(written.EncapsulatedDocument[: written.EncapsulatedDocumentLength])
    return " ".join(output_of("poppler-utils", "pdftotext", str(pdf), "-").split())


def test_the_result_goes_out_as_a_page_with_its_heat_maps(server: Hilum, tmp_path: Path) -> None:
    images = phantom.make_study(seed=45, modality="CR", views=("PA",), rows=300, columns=250)
    study_uid = images[0].StudyInstanceUID
    send_to(server, save_all(tmp_path, images))
    wait_for(lambda: is_done(server, study_uid), what="delivered")
    (sheet,), (pdf,), (text,) = (out(server, study_uid, kind, "pages") for kind in PAGES)
    (result,) = detail(server, study_uid)["results"]
    said = text_of(pdf)
    assert all(finding["text"] in said for finding in result["findings"])
    assert "Class activation maps of Image 1 of 1, PA" in said
    assert pydicom.dcmread(sheet).SeriesDescription.startswith("AI result, not for diagnosis")
    assert pydicom.dcmread(text).SOPClassUID == pydicom.uid.BasicTextSRStorage
    assert [complaints("dciodvfy", item) for item in (sheet, pdf, text)] == [[], [], []]


def test_each_destination_gets_what_it_asks_for(server: Hilum, tmp_path: Path) -> None:
    images = phantom.make_study(
        seed=42, modality="DX", views=("PA",), rows=300, columns=300, photometric="MONOCHROME1"
    )
    study_uid = images[0].StudyInstanceUID
    send_to(server, save_all(tmp_path, images))
    wait_for(lambda: is_done(server, study_uid), what="delivered")
    ((report,), (picture,)) = (out(server, study_uid, kind, "plain") for kind in ("sr", "heatmap"))
    assert report.exists()
    assert not picture.exists()
    assert not (server.folder / "clinic").exists(), "untrained weights go nowhere by default"
    (document,) = [
        item
        for item in detail(server, study_uid)["results"][0]["documents"]
        if item["kind"] == "heatmap"
    ]
    states = {
        item["destination"]: (item["state"], item["reason"]) for item in document["deliveries"]
    }
    assert states == {"out": ("delivered", None), "clinic": ("withheld", "untrained_weights")}


def test_rest_serves_the_bytes_that_were_sent(server: Hilum, tmp_path: Path) -> None:
    images = phantom.make_study(seed=43, modality="CR", views=("PA",), rows=200, columns=300)
    study_uid = images[0].StudyInstanceUID
    send_to(server, save_all(tmp_path, images))
    wait_for(lambda: is_done(server, study_uid), what="delivered")
    (picture,) = out(server, study_uid, "heatmap")
    answer = server.get(f"/api/v1/documents/{picture.stem}")
    assert answer.headers["content-type"] == "application/dicom"
    assert answer.content == picture.read_bytes()
    (result,) = detail(server, study_uid)["results"]
    (plain,) = [file for file in (server.folder / "out").glob("*.json") if study_uid in file.name]
    said = json.loads(plain.read_text())["heat_map"]
    best = sorted(result["findings"], key=lambda item: -item["score"])[:3]
    assert said["sop_instance_uid"] == picture.stem
    assert said["findings"] == [item["key"] for item in best]


def test_pixels_that_left_cost_the_heat_map_and_not_the_report(
    server: Hilum, tmp_path: Path
) -> None:
    images = phantom.make_study(seed=44, modality="CR", views=("PA",), rows=200, columns=200)
    study_uid = images[0].StudyInstanceUID
    archive = server.folder / "state" / "archive"
    before = set(archive.rglob("*.dcm"))
    send_to(server, save_all(tmp_path, images))
    wait_for(lambda: _is_analysed(server, study_uid), what="analysed")
    for file in set(archive.rglob("*.dcm")) - before:
        file.unlink()
    wait_for(lambda: is_done(server, study_uid), what="delivered")
    (result,) = detail(server, study_uid)["results"]
    assert {item["kind"] for item in result["documents"]} == {"sr", "json", *PAGES}
    (sheet,) = out(server, study_uid, "pdf", "pages")
    assert "gone from the archive" in text_of(sheet)
    assert result["detail"] == "heat map left out: The stored object is gone from the archive."
    (report,) = out(server, study_uid, "sr")
    comments = [
        item.TextValue
        for item in sr_gate.walk(pydicom.dcmread(report))
        if sr_gate.name_of(item) == "121106"
    ]
    assert "No heat map: The stored object is gone from the archive." in comments


def _is_analysed(server: Hilum, study_uid: str) -> bool:
    images = detail(server, study_uid).get("images", [])
    return bool(images) and all(
        reading["state"] == "analysed" for image in images for reading in image["readings"]
    )

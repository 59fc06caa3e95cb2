"""STOW-RS against a whole server.

Dicomweb-client, raw multipart bodies that are wrong in every way, and what a request promises.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import httpx
import pydicom
import pytest
from dicomweb_client.api import DICOMwebClient

from testing.phantoms.phantom import make_instance, make_study
from testing.serving import Hilum
from tests.support.ledger.database import rows_of
from tests.support.machine.waiting import wait_for
from tests.support.models.releases import Tiny, make_tiny
from tests.support.peers.stow import RELATED, archived, body, encoded, failures, post
from tests.support.server.installation import START_SECONDS, hilum_with, is_up, processes
from tests.support.server.listening import data_set_of

QUIET_SECONDS = 600.0  # so that nothing but the end of a request can close a study


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny) -> Iterator[Hilum]:
    folder = tmp_path_factory.mktemp("stow")
    with hilum_with(folder, tiny, {}, quiet_seconds=QUIET_SECONDS) as running:
        running.wait_until_ready(START_SECONDS)
        yield running


def test_dicomweb_client_stores_a_study_which_is_closed_with_the_request(
    server: Hilum, tmp_path: Path
) -> None:
    drawn = make_study(seed=31, views=("PA", "AP"), rows=128, columns=128)
    study = [
        pydicom.dcmread(BytesIO(encoded(image))) for image in drawn
    ]  # as files are: with preamble and prefix
    answer = DICOMwebClient(f"{server.api}/dicom-web", headers=server.headers).store_instances(
        study
    )
    assert len(answer.ReferencedSOPSequence) == 2
    assert "FailedSOPSequence" not in answer
    uid = str(study[0].StudyInstanceUID)
    found = wait_for(
        lambda: rows_of(
            server.folder / "state", "SELECT outcome FROM result WHERE study_instance_uid = ?", uid
        ),
        what="the result",
    )
    assert [row["outcome"] for row in found] == ["analysed"]
    for image in study:
        (tmp_path / "sent.dcm").write_bytes(encoded(image))
        assert archived(server, image.SOPInstanceUID) == data_set_of(tmp_path / "sent.dcm")
    (row,) = rows_of(
        server.folder / "state",
        "SELECT calling_ae_title, called_ae_title, peer_address FROM study WHERE"
        " study_instance_uid = ?",
        uid,
    )
    assert row == {
        "calling_ae_title": "STOW_RS",
        "called_ae_title": "HILUM",
        "peer_address": "127.0.0.1",
    }
    again = DICOMwebClient(f"{server.api}/dicom-web", headers=server.headers).store_instances(
        study, study_instance_uid=uid
    )
    assert len(again.ReferencedSOPSequence) == 2, "the same bytes again are success, once"
    assert (
        len(
            rows_of(
                server.folder / "state", "SELECT 1 FROM instance WHERE study_instance_uid = ?", uid
            )
        )
        == 2
    )


def test_good_parts_are_stored_beside_bad_ones_which_are_named_with_a_reason(server: Hilum) -> None:
    good, ct, other = (make_instance(seed, rows=64, columns=64) for seed in (41, 42, 43))
    ct.SOPClassUID = ct.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.2"
    uid, wrong = str(other.SOPInstanceUID), f"{str(other.SOPInstanceUID)[:-2]}99"
    lying = encoded(other).replace(
        uid.encode(), wrong.encode(), 1
    )  # in the File Meta Information only
    answer = post(server, body(encoded(good), encoded(ct), b"no DICOM at all", lying))
    assert answer.status_code == 202
    assert answer.headers["content-type"] == "application/dicom+json"
    assert failures(answer) == {str(ct.SOPInstanceUID): 0x0122, wrong: 0xA900}
    assert answer.json()["0008119A"]["Value"][0]["00081197"]["Value"] == [0xC000]
    assert [item["00081155"]["Value"][0] for item in answer.json()["00081199"]["Value"]] == [
        good.SOPInstanceUID
    ]
    assert (
        pydicom.Dataset.from_json(answer.json()).ReferencedSOPSequence[0].ReferencedSOPClassUID
        == good.SOPClassUID
    )
    wait_for(
        lambda: rows_of(
            server.folder / "state",
            "SELECT 1 FROM instance WHERE sop_instance_uid = ?",
            good.SOPInstanceUID,
        ),
        what="the row",
    )


def test_an_object_of_another_study_is_refused_where_the_address_names_one(server: Hilum) -> None:
    image = make_instance(44, rows=64, columns=64)
    answer = post(server, body(encoded(image)), "/studies/1.2.3")
    assert (answer.status_code, failures(answer)) == (409, {str(image.SOPInstanceUID): 0xA900})
    assert (
        rows_of(
            server.folder / "state",
            "SELECT 1 FROM instance WHERE sop_instance_uid = ?",
            image.SOPInstanceUID,
        )
        == []
    )


def test_an_object_that_ends_in_its_header_is_refused_and_leaves_nothing(server: Hilum) -> None:
    image = make_instance(45, rows=64, columns=64)
    answer = post(server, body(encoded(image)[:700]))
    assert answer.status_code == 409
    assert (
        rows_of(
            server.folder / "state",
            "SELECT 1 FROM instance WHERE sop_instance_uid = ?",
            image.SOPInstanceUID,
        )
        == []
    )


WRONG = {
    "another media type": (b"{}", "application/json", 415, "multipart/related"),
    "metadata and bulk data apart": (
        b"",
        'multipart/related; type="application/dicom+json"; boundary=B',
        415,
        "multipart/related",
    ),
    "no boundary": (b"", 'multipart/related; type="application/dicom"', 400, "no boundary"),
    "no part": (b"--B--\r\n", RELATED.format("B"), 400, ""),
    "another boundary": (
        body(b"x", boundary="C"),
        RELATED.format("B"),
        400,
        "not a multipart body",
    ),
    "line feeds only": (b"--B\n\nx\n--B--\n", RELATED.format("B"), 400, "not a multipart body"),
    "no end": (b"--B\r\n\r\nhalf a part", RELATED.format("B"), 400, "without its closing boundary"),
    "an empty body": (b"", RELATED.format("B"), 400, "without its closing boundary"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_request_is_said_so(server: Hilum, name: str) -> None:
    content, kind, status, said = WRONG[name]
    answer = post(server, content, kind=kind)
    assert answer.status_code == status, answer.text
    assert said in answer.json()["detail"]


def test_complete_parts_before_a_broken_end_are_stored(server: Hilum) -> None:
    image = make_instance(46, rows=64, columns=64)
    answer = post(server, body(encoded(image), b"x")[:-20])
    assert answer.status_code == 400
    wait_for(
        lambda: rows_of(
            server.folder / "state",
            "SELECT 1 FROM instance WHERE sop_instance_uid = ?",
            image.SOPInstanceUID,
        ),
        what="the row",
    )


@pytest.mark.parametrize("boundary", ["B", '"with spaces = and ;"', "x" * 70])
def test_boundaries_may_be_quoted_and_long_and_parts_may_lack_headers(
    server: Hilum, boundary: str
) -> None:
    seed = 50 + len(boundary)
    image = make_instance(seed, rows=64, columns=64)
    answer = post(
        server,
        body(encoded(image), boundary=boundary.strip('"'), header=""),
        kind=RELATED.format(boundary),
    )
    assert answer.status_code == 200, answer.text


def test_other_pixels_under_a_known_uid_are_a_conflict_and_the_first_stay(server: Hilum) -> None:
    image = make_instance(49, rows=64, columns=64)
    first = encoded(image)
    image.PixelData = bytes(len(image.PixelData))
    for content in (first, encoded(image)):
        assert post(server, body(content)).status_code == 200, (
            "a failure would make the sender try for ever"
        )
    uid = str(image.SOPInstanceUID)
    wait_for(
        lambda: rows_of(
            server.folder / "state", "SELECT 1 FROM conflict WHERE sop_instance_uid = ?", uid
        ),
        what="the conflict",
    )
    assert first.endswith(archived(server, uid))


def test_what_was_answered_with_success_survives_kill_9_of_the_web_process(server: Hilum) -> None:
    answered: dict[str, bytes] = {}
    is_over = threading.Event()

    def store() -> None:
        for seed in range(100, 10_000):
            if is_over.is_set():
                return
            image = make_instance(seed, rows=64, columns=64)
            with contextlib.suppress(httpx.TransportError):
                if post(server, body(encoded(image))).status_code == 200:
                    answered[str(image.SOPInstanceUID)] = encoded(image)

    sender = threading.Thread(target=store)
    sender.start()
    for _ in range(2):
        before = len(answered)
        wait_for(lambda known=before: len(answered) > known + 5, what="a few answers")
        (pid,) = wait_for(
            lambda: processes(server, "api"), what="the web process"
        )  # which has answered, so it is not the one before
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: is_up(server), what="the web process")
    is_over.set()
    sender.join()
    wait_for(
        lambda: (
            answered.keys()
            <= {
                row["sop_instance_uid"]
                for row in rows_of(server.folder / "state", "SELECT * FROM instance")
            }
        ),
        what="all rows",
    )
    assert all(content.endswith(archived(server, uid)) for uid, content in answered.items())


def test_a_large_object_in_small_pieces_takes_little_memory(server: Hilum) -> None:
    image = make_instance(47, rows=64, columns=64)
    image.Rows, image.Columns = 5000, 5000
    image.PixelData = bytes(50_000_000)
    content = body(encoded(image))
    before = peak_kib(server)
    pieces = (content[start : start + 60_000] for start in range(0, len(content), 60_000))
    answer = server.post(
        "/dicom-web/studies", content=pieces, headers={"Content-Type": RELATED.format("B")}
    )
    assert answer.status_code == 200, answer.text
    assert peak_kib(server) - before < 25_000, "half of the object was never in memory"


def peak_kib(server: Hilum) -> int:
    """Of the web process."""
    (pid,) = processes(server, "api")
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def test_a_nearly_full_disk_is_said_before_anything_is_taken(tmp_path: Path) -> None:
    with hilum_with(
        tmp_path / "hilum",
        make_tiny(tmp_path / "tiny"),
        {},
        role="api",
        receive={"reserve_bytes": 1 << 60},
    ) as full:
        wait_for(lambda: is_up(full), what="the web process")
        answer = post(full, body(encoded(make_instance(48, rows=32, columns=32))))
        assert answer.status_code == 503
        assert "Retry-After" in answer.headers
        assert "MiB of disk are free" in answer.json()["detail"]

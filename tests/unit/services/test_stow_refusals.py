"""Refusals of STOW-RS: whatever is refused is a row that says what the sender should change.

What is taken has none of its own.
"""

from __future__ import annotations

import dataclasses
import socket
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydicom.dataset import Dataset
from structlog.testing import capture_logs

from hilum.domain import Instance, Priority
from hilum.store.intake.received import Arrival
from hilum.store.ledger import Ledger
from testing.phantoms.phantom import make_instance
from tests.support.ledger.database import rows_of
from tests.support.machine.disks import dead_disk
from tests.support.machine.waiting import wait_for
from tests.support.objects.notes import key_objects
from tests.support.peers.stow import HEADERS, begin, encoded, everything, served

IMAGE = encoded(make_instance(70, rows=64, columns=64))
COMPUTED_TOMOGRAPHY = IMAGE.replace(
    b"1.2.840.10008.5.1.4.1.1.1.1\0", b"1.2.840.10008.5.1.4.1.1.2\0\0\0"
)
JSON = {**HEADERS, "Content-Type": "application/json"}


def without_study() -> bytes:
    image = make_instance(72, rows=64, columns=64)
    image.StudyInstanceUID = "0.0"
    return encoded(image)


NO_STUDY = without_study()


def body(*parts: bytes) -> bytes:
    return b"".join(b"--B\r\n\r\n" + part + b"\r\n" for part in parts) + b"--B--\r\n"


def post(
    port: int, content: bytes, *, headers: dict[str, str] = HEADERS, path: str = "/studies"
) -> int:
    answer = httpx.post(
        f"http://127.0.0.1:{port}/dicom-web{path}", content=content, headers=headers, timeout=60
    )
    return answer.status_code


def only_row(folder: Path) -> dict[str, Any]:
    (row,) = wait_for(
        lambda: rows_of(folder, "SELECT * FROM association ORDER BY id"), what="the row"
    )
    assert (row["calling_ae_title"], row["called_ae_title"], row["peer_address"]) == (
        "STOW_RS",
        "HILUM",
        "127.0.0.1",
    )
    assert row["started_at"] <= row["ended_at"]
    return row


# Content, headers, path; the status; outcome, reason, stored, refused; in the advice.
REFUSED: dict[
    str, tuple[tuple[bytes, dict[str, str], str], int, tuple[str, str, int, int], str]
] = {
    "another media type": (
        (b"{}", JSON, "/studies"),
        415,
        ("rejected", "http_415", 0, 0),
        "STOW-RS answered 415: Send multipart/related",
    ),
    "compressed": (
        (b"x", {**HEADERS, "Content-Encoding": "gzip"}, "/studies"),
        415,
        ("rejected", "http_415", 0, 0),
        "of Content-Encoding gzip nothing is decoded here",
    ),
    "a study that is none": (
        (body(IMAGE), HEADERS, "/studies/abc"),
        422,
        ("rejected", "http_422", 0, 0),
        "not that of a study",
    ),
    "another site's page": (
        (b"", {**HEADERS, "Origin": "http://evil"}, "/studies"),
        403,
        ("rejected", "http_403", 0, 0),
        "another site",
    ),
    "no multipart": (
        (b"x", HEADERS, "/studies"),
        400,
        ("aborted", "http_400", 0, 0),
        "not a multipart body",
    ),
    "no end": (
        (body(IMAGE, b"x")[:-9], HEADERS, "/studies"),
        400,
        ("aborted", "http_400", 1, 0),
        "without its closing boundary",
    ),
    "no end behind a bad part": (
        (body(b"x", IMAGE)[:-9], HEADERS, "/studies"),
        400,
        ("aborted", "http_400", 0, 1),
        "0xC000",
    ),
    "a bad part": (
        (body(IMAGE, b"no DICOM"), HEADERS, "/studies"),
        202,
        ("released", "0xC000", 1, 1),
        "1 part(s) of a STOW-RS request refused",
    ),
    "no good part": (
        (body(b"x", b"y"), HEADERS, "/studies"),
        409,
        ("released", "0xC000", 0, 2),
        "2 part(s) of a STOW-RS request refused",
    ),
    "a study of zeros": (
        (body(NO_STUDY), HEADERS, "/studies"),
        409,
        ("released", "0xC000", 0, 1),
        "Study Instance UID (0020,000D) is all zeros",
    ),
    "another study's": (
        (body(IMAGE), HEADERS, "/studies/1.2"),
        409,
        ("released", "0xA900", 0, 1),
        "differs from the address's",
    ),
    "another class": (
        (body(COMPUTED_TOMOGRAPHY), HEADERS, "/studies"),
        409,
        ("released", "0x0122", 0, 1),
        "SOP Class",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_that_is_refused_is_a_row(tmp_path: Path, name: str) -> None:
    (content, headers, path), status, said, advice = REFUSED[name]
    with served(tmp_path, threading.Event(), 60.0) as (port, _):
        assert post(port, content, headers=headers, path=path) == status
        row = only_row(tmp_path)
    assert (row["outcome"], row["reason"], row["stored"], row["refused"]) == said
    assert advice in row["advice"]


def test_while_nothing_can_be_taken_the_row_says_why(tmp_path: Path) -> None:
    with served(tmp_path, threading.Event(), 60.0) as (port, archive), dead_disk(archive.root):
        assert post(port, body(IMAGE)) == 503
        row = only_row(tmp_path)
    assert (row["outcome"], row["reason"]) == ("rejected", "archive_not_available")
    assert "mount it again" in row["advice"]


def test_a_sender_without_the_token_is_found(tmp_path: Path) -> None:
    with served(tmp_path, threading.Event(), 60.0) as (port, _):
        assert post(port, body(IMAGE), headers={**HEADERS, "Authorization": "Bearer wrong"}) == 401
        assert only_row(tmp_path)["reason"] == "http_401"
        assert post(port, body(IMAGE), headers=HEADERS) == 200
    assert len(rows_of(tmp_path, "SELECT * FROM association ORDER BY id")) == 1, (
        "the end of the process has written what was to be written"
    )


def test_many_requests_without_the_token_are_one_row_and_one_line_of_the_log(
    tmp_path: Path,
) -> None:
    with capture_logs() as logs, served(tmp_path, threading.Event(), 60.0) as (port, _):
        assert {post(port, body(IMAGE), headers={}) for _ in range(100)} == {401}
    found = rows_of(tmp_path, "SELECT * FROM association ORDER BY id")
    assert sum(row["count"] for row in found) == 100
    assert len(found) <= 2, "one, or two where a minute ended"
    assert 1 <= len([line for line in logs if line["event"] == "associations_refused"]) <= 2


def test_a_sender_that_stalls_is_found(tmp_path: Path) -> None:
    with (
        capture_logs() as logs,
        served(tmp_path, threading.Event(), 1.0) as (port, _),
        begin(port) as sender,
    ):
        assert everything(sender).startswith(b"HTTP/1.1 408 ")
        row = only_row(tmp_path)
    assert [line["reasons"] for line in logs if line["event"] == "associations_refused"] == [
        {"http_408": 1}
    ]
    assert (row["outcome"], row["reason"]) == ("aborted", "http_408")
    assert "receive.network_timeout_seconds" in row["advice"]


def test_a_sender_that_goes_away_is_found(tmp_path: Path) -> None:
    with served(tmp_path, threading.Event(), 60.0) as (port, _):
        begin(port).close()
        assert only_row(tmp_path)["outcome"] == "aborted"


def test_what_is_taken_has_no_row_of_its_own_and_nothing_is_kept_of_what_was_sent(
    tmp_path: Path,
) -> None:
    image = make_instance(71, rows=64, columns=64)
    image.PatientName, image.PatientID = "SECRET^NAME", "SECRET-ID"
    content = encoded(image)
    with served(tmp_path, threading.Event(), 60.0) as (port, _):
        assert (
            post(
                port,
                body(content),
                headers={
                    **HEADERS,
                    "Content-Type": 'Multipart/Related; type="Application/DICOM"; boundary=B',
                },
            )
            == 200
        )
        assert post(port, body(content), path="/studies/1.2") == 409
        assert post(port, content) == 400
    assert [
        row["outcome"] for row in rows_of(tmp_path, "SELECT * FROM association ORDER BY id")
    ] == ["released", "aborted"]
    assert "SECRET" not in str(rows_of(tmp_path, "SELECT * FROM association ORDER BY id"))


def test_what_a_parser_quotes_is_a_text_that_every_database_takes(tmp_path: Path) -> None:
    with served(tmp_path, threading.Event(), 60.0) as (port, _):
        assert post(port, b"--B\r\nA\0\xff: x\r\n\r\nx\r\n--B--\r\n") == 400
        advice = only_row(tmp_path)["advice"]
    assert advice.isprintable()
    assert len(advice) < 500


def test_a_note_without_effect_is_a_row_although_all_was_taken(tmp_path: Path) -> None:
    image = make_instance(73, rows=64, columns=64)
    image.StudyInstanceUID = "1.2.3"
    with (
        served(tmp_path, threading.Event(), 60.0) as (port, _),
        closing(Ledger(f"sqlite:///{tmp_path / 'ledger.sqlite'}")) as ledger,
    ):
        of_modality = dataclasses.replace(instance_of(image), calling_ae_title="MODALITY")
        ledger.record([Arrival(of_modality, Priority.LIVE, (), 10.0, 60.0)])
        assert post(port, body(encoded(key_objects([image], "113001")))) == 200
        row = only_row(tmp_path)
    assert (row["outcome"], row["reason"], row["stored"]) == (
        "released",
        "rejection_note_not_permitted",
        1,
    )
    assert "hilum images notes" in row["advice"]


def instance_of(image: Dataset) -> Instance:
    names = (
        image.SOPInstanceUID,
        image.SOPClassUID,
        image.StudyInstanceUID,
        image.SeriesInstanceUID,
    )
    return Instance(
        *names, "1.2.840.10008.1.2.1", "ab/cd/1.dcm", 1, "digest", "pixels", 0.0, "STOW_RS", "HILUM"
    )


def test_a_million_empty_parts_are_one_small_answer_one_row_and_a_short_log(tmp_path: Path) -> None:
    content = b"--B\r\n\r\n\r\n" * 1_000_000 + b"--B--\r\n"
    with capture_logs() as logs, served(tmp_path, threading.Event(), 60.0) as (port, _):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as sender:
            answer = refused_in_the_middle(sender, content)
        row = only_row(tmp_path)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert len(answer) < 4096
    assert (row["outcome"], row["reason"], row["stored"], row["refused"]) == (
        "aborted",
        "http_400",
        0,
        100,
    )
    assert "100 parts of the request are no DICOM files" in row["advice"]
    assert [line["event"] for line in logs if line["event"].startswith("refus")] == [
        "refused"
    ] * 20 + ["refusals_not_logged"]


def refused_in_the_middle(sender: socket.socket, content: bytes) -> bytes:
    """The answer, which may come before all is sent."""
    given = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    head = f"POST /dicom-web/studies HTTP/1.1\r\nHost: 127.0.0.1\r\n{given}"
    answer = b""
    with suppress(ConnectionError):
        sender.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content[:200_000])
        while piece := sender.recv(65536):
            answer += piece
    return answer


def test_parts_that_say_what_they_are_are_bounded_too(tmp_path: Path) -> None:
    with served(tmp_path, threading.Event(), 60.0, maximum_parts=3) as (port, _):
        assert post(port, body(*[COMPUTED_TOMOGRAPHY] * 3)) == 409
        assert post(port, body(*[COMPUTED_TOMOGRAPHY] * 4)) == 413
    assert [
        row["reason"] for row in rows_of(tmp_path, "SELECT * FROM association ORDER BY id")
    ] == ["0x0122", "http_413"]

"""STOW-RS to a real Orthanc: the same bytes arrive, with a password, and never twice."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
from pydicom.uid import SecondaryCaptureImageStorage

from hilum.deliver import open_client, probe_destination
from hilum.deliver.stow import store_request
from hilum.domain import Document
from hilum.errors import Retry
from hilum.report import build_documents
from hilum.settings import StowDestination
from testing.phantoms.phantom import make_study
from tests.support.peers.archives import archived_image, orthanc_archive, require_dicomweb
from tests.support.peers.certificates import Authority, authority
from tests.support.peers.peers import Orthanc
from tests.support.peers.tls_proxy import TlsProxy
from tests.support.reports.results import CONTEXT, make_release, report_of

__all__ = ["authority"]
PASSWORD = "s3cret"


@pytest.fixture(scope="module")
def orthanc() -> Iterator[Orthanc]:
    require_dicomweb()
    with orthanc_archive(
        dicomweb=True, AuthenticationEnabled=True, RegisteredUsers={"hilum": PASSWORD}
    ) as running:
        yield running


@pytest.fixture(scope="module")
def report() -> Document:
    release = make_release()
    job = report_of(make_study(1, views=("PA",), rows=32, columns=32), release)
    return build_documents(job, release, CONTEXT, ("sr",))[0]


@pytest.fixture
def picture() -> Document:
    uid = "1.2.826.0.1.7.1.1"
    sop_class = str(SecondaryCaptureImageStorage)
    content = archived_image(
        "1.2.826.0.1.7", "1.2.826.0.1.7.1", uid, sop_class_uid=sop_class, modality="OT"
    )
    return Document("heatmap", "application/dicom", content, sop_class, uid)


def destination(orthanc: Orthanc, folder: Path, password: str = PASSWORD) -> StowDestination:
    file = folder / "password"
    file.write_text(password + "\n", encoding="utf-8")
    values: dict[str, Any] = {
        "url": f"http://127.0.0.1:{orthanc.http_port}/dicom-web/",
        "user": "hilum",
        "password_file": file,
    }
    return StowDestination.model_validate(values)


def held(orthanc: Orthanc) -> list[bytes]:
    """The files that it keeps, read past its HTTP, which asks for the password."""
    folder = orthanc.folder / "storage"
    return [file.read_bytes() for file in folder.rglob("*") if file.is_file() and _is_dicom(file)]


def _is_dicom(file: Path) -> bool:
    return file.read_bytes()[128:132] == b"DICM"


def test_each_object_arrives_byte_for_byte_and_once(
    orthanc: Orthanc, report: Document, picture: Document, tmp_path: Path
) -> None:
    client = open_client("archive", destination(orthanc, tmp_path))
    try:
        for document in (report, picture, report):
            client.deliver(document)
    finally:
        client.close()

    assert sorted(held(orthanc)) == sorted([report.content, picture.content])


def test_a_wrong_password_is_an_outage_that_a_probe_shows(
    orthanc: Orthanc, report: Document, tmp_path: Path
) -> None:
    wrong = destination(orthanc, tmp_path, "guess")
    client = open_client("archive", wrong)
    try:
        with pytest.raises(Retry, match="HTTP 401") as caught:
            client.deliver(report)
    finally:
        client.close()

    assert caught.value.is_outage
    assert "HTTP 401" in probe_destination("archive", wrong).detail
    assert probe_destination("archive", destination(orthanc, tmp_path)).is_ok


def test_a_proxy_that_asks_for_our_certificate_gets_it(
    orthanc: Orthanc,
    authority: Authority,
    report: Document,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    own = authority.identity("proxy", "IP:127.0.0.1")
    ours = authority.identity("hilum", "DNS:hilum.test")
    with TlsProxy(own, authority.file, orthanc.http_port) as proxy:
        stranger = destination(orthanc, tmp_path).model_copy(
            update={"url": f"{proxy.url}/dicom-web", "ca_file": authority.file}
        )
        files = {"certificate_file": ours.certificate, "key_file": ours.key}
        with (
            contextlib.closing(open_client("archive", stranger)) as client,
            pytest.raises(Retry, match="certificate_file") as caught,
        ):
            client.deliver(report)
        with contextlib.closing(
            open_client("archive", stranger.model_copy(update=files))
        ) as client:
            client.deliver(report)

    assert caught.value.is_outage
    assert report.content in held(orthanc)


def test_the_request_is_read_by_another_reader_of_multipart(report: Document) -> None:
    request = store_request("http://127.0.0.1/studies", report)

    head = f"Content-Type: {request.headers['Content-Type']}\r\nMIME-Version: 1.0\r\n\r\n"
    (part,) = message_from_bytes(head.encode() + (request.body or b"")).get_payload()

    assert part.get_content_type() == "application/dicom"  # type: ignore[union-attr]

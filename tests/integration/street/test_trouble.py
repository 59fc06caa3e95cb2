"""Trouble around the street, with its ledger on a real PostgreSQL.

A PACS that is down or refuses, Tritons that are absent or die.

One server for all tests here. It starts where no Triton is yet.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, text
from tritonclient.grpc import InferenceServerClient

from hilum.deliver.send import SendReport, send
from testing.serving import Hilum
from tests.support.ledger.postgres import fresh_database
from tests.support.models.releases import Tiny
from tests.support.models.triton import RemoteTriton, killed_afterwards
from tests.support.peers.peers import StoreScp
from tests.support.peers.raw_scu import RawScu
from tests.support.server.decoding import reading_of
from tests.support.server.installation import (
    START_SECONDS,
    Receiver,
    hilum_with,
    receiver_section,
    save_all,
    send_to,
    small_study,
    wait_for,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ledger_url(postgres_url: str) -> str:
    return fresh_database(postgres_url)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny) -> Iterator[list[RemoteTriton]]:
    """Two Tritons that are not started yet."""
    made = [
        RemoteTriton(tiny.built_dir, tmp_path_factory.mktemp("triton"), [tiny.release.triton_name])
        for _ in range(2)
    ]
    with killed_afterwards(made[0]), killed_afterwards(made[1]):
        yield made


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory,
    tiny: Tiny,
    ledger_url: str,
    refuser: StoreScp,
    down_port: int,
    pair: list[RemoteTriton],
) -> Iterator[Hilum]:
    folder = tmp_path_factory.mktemp("trouble")
    destinations = {
        "down": receiver_section(down_port),
        "refuser": {
            "kind": "dicom",
            "host": "127.0.0.1",
            "port": refuser.port,
            "ae_title": "REFUSER",
        },
        "aside": {"kind": "folder", "path": str(folder / "aside")},
    }
    sections: dict[str, Any] = {
        "triton": {"urls": [triton.url for triton in pair]},
        "analyse": {"canary_seconds": 1.0, "decode_processes": 1},
        "receive": {"ae_titles": ["HILUM", "READ"]},
        "routes.HILUM": {"destinations": ["down", "refuser"]},
        "routes.READ": {
            "destinations": ["aside"]
        },  # so that the PACS that are in trouble get one study
    }
    with hilum_with(folder, tiny, destinations, ledger={"url": ledger_url}, **sections) as running:
        wait_for(lambda: _ready(running, "receive"), START_SECONDS, "the listener")
        yield running


@pytest.fixture
def reading(server: Hilum, pair: list[RemoteTriton]) -> Hilum:
    """The server, with both Tritons in use."""
    for triton in pair:
        if triton.pid is None:
            triton.start()
    server.wait_until_ready(START_SECONDS)
    wait_for(lambda: "is out" not in server.get("/health/ready?role=analyse").text, what="both")
    return server


def deliveries(server: Hilum, study_uid: str) -> dict[str, dict[str, Any]]:
    found = server.get(f"/api/v1/studies/{study_uid}").json()
    documents = [
        document
        for result in found.get("results", [])
        for document in result["documents"]
        if document["kind"] == "sr"
    ]
    return {one["destination"]: one for document in documents for one in document["deliveries"]}


def send_to_read(server: Hilum, paths: Sequence[Path]) -> SendReport:
    """For tests that ask nothing of a PACS."""
    return send(paths, "127.0.0.1", server.dicom_port, "READ", "MODALITY")


def test_absent_tritons_do_not_take_the_listener_away(
    server: Hilum, pair: list[RemoteTriton], tmp_path: Path
) -> None:
    images = small_study(32, views=("PA",))
    assert send_to_read(server, save_all(tmp_path, images)).is_ok
    assert not _ready(server, "analyse")
    problem = server.get("/health/ready?role=analyse").text
    for triton in pair:
        wait_for(
            lambda triton=triton: triton.url in server.get("/health/ready?role=analyse").text,
            what=f"the reason in {problem}",
        )
    with RawScu(server.dicom_port) as modality:
        assert modality.echo() == 0
    waiting = wait_for(lambda: reading_of(server, images[0]), what="its row")
    assert (waiting["state"], waiting["attempts"]) == ("due", 0), (
        "it waits, and nobody tries in vain"
    )
    pair[0].start()
    wait_for(
        lambda: reading_of(server, images[0])["state"] == "analysed",
        what="the image, once a Triton is there",
    )
    wait_for(lambda: _ready(server, "analyse"), what="readiness")


def test_a_model_that_is_not_ours_is_named_by_readiness_until_it_is_gone(
    reading: Hilum, pair: list[RemoteTriton], tiny: Tiny, request: pytest.FixtureRequest
) -> None:
    embedded = tiny.built_dir / "embedded"
    theirs = embedded / "theirs"
    request.addfinalizer(lambda: shutil.rmtree(theirs))  # others read this tree, too
    shutil.copytree(embedded / tiny.release.triton_name, theirs)
    config = embedded / "theirs/config.pbtxt"
    config.write_text(config.read_text().replace(tiny.release.triton_name, "theirs"))
    said = f"Triton {pair[0].url} has loaded models that are not ours: theirs"
    with InferenceServerClient(pair[0].url) as client:
        client.load_model("theirs")
        wait_for(lambda: said in reading.get("/health/ready?role=analyse").text, what="its name")
        assert _ready(reading, "analyse"), "what is ours is served"
        client.unload_model("theirs")
    wait_for(lambda: said not in reading.get("/health/ready?role=analyse").text, what="its end")


def test_one_of_two_tritons_dies_under_load_and_comes_back(
    reading: Hilum, pair: list[RemoteTriton], tmp_path: Path
) -> None:
    """Every image is read at the first try that counts; the one that was away reads again."""
    server, studies = reading, [small_study(seed) for seed in range(50, 57)]
    before = [_answered(server, triton) for triton in pair]
    for number, images in enumerate(studies):
        assert send_to_read(server, save_all(tmp_path / f"study{number}", images)).is_ok
        if number == 2:
            assert pair[0].pid is not None
            os.kill(pair[0].pid, signal.SIGKILL)
            wait_for(
                lambda: (
                    f"Triton {pair[0].url} is out" in server.get("/health/ready?role=analyse").text
                ),
                what="its name",
            )
            assert _ready(server, "analyse")
        if number == 4:
            pair[0].start()
            wait_for(
                lambda: "is out" not in server.get("/health/ready?role=analyse").text,
                what="its return",
            )
    for image in (image for images in studies for image in images):
        wait_for(
            lambda image=image: reading_of(server, image).get("state") == "analysed",
            what="a reading",
        )
    answered = [
        _answered(server, triton) - known for triton, known in zip(pair, before, strict=True)
    ]
    assert min(answered) > 0, answered


def test_a_pacs_that_is_down_and_one_that_refuses(
    reading: Hilum, tmp_path: Path, down_port: int, ledger_url: str
) -> None:
    server, images = reading, small_study(31)
    study_uid = images[0].StudyInstanceUID
    assert send_to(server, save_all(tmp_path, images)).is_ok
    wait_for(
        lambda: deliveries(server, study_uid).get("refuser", {}).get("state") == "dead",
        what="the refusal",
    )
    refused = deliveries(server, study_uid)["refuser"]
    assert refused["reason"] == "sop_class_refused"
    assert "Comprehensive 3D SR" in refused["detail"]
    wait_for(
        lambda: deliveries(server, study_uid)["down"]["detail"],
        what="a first try at the PACS that is down",
    )
    waiting = deliveries(server, study_uid)["down"]
    assert waiting["state"] in ("due", "leased"), "an outage makes no dead letter"
    with Receiver(down_port) as pacs:
        wait_for(
            lambda: study_uid in pacs.arrivals.by_study, what="the report, once the PACS is up"
        )
        wait_for(
            lambda: deliveries(server, study_uid)["down"]["state"] == "delivered", what="its row"
        )
    with create_engine(ledger_url).connect() as connection:
        counted = text("SELECT count(*) FROM instance WHERE study_instance_uid = :uid")
        assert connection.execute(counted, {"uid": study_uid}).scalar_one() == 2, (
            "the ledger really is PostgreSQL"
        )
    answer = server.post("/api/v1/requeue", json={"stage": "deliver", "destination": "refuser"})
    assert (answer.status_code, answer.json()["requeued"]) == (200, 1)


def _answered(server: Hilum, triton: RemoteTriton) -> float:
    """Requests that this endpoint has answered, by the server's own metrics."""
    line = f'hilum_triton_requests_total{{endpoint="{triton.url}",outcome="answered"}} '
    return sum(
        float(found.removeprefix(line))
        for found in server.get("/metrics").text.splitlines()
        if found.startswith(line)
    )


def _ready(server: Hilum, role: str) -> bool:
    try:
        return server.get(f"/health/ready?role={role}").status_code == 200
    except httpx.TransportError:
        return False

"""The peer of `make load-peer` from end to end, and the phases that every compared system goes through."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

import numpy as np
import pydicom
import pytest
import torch

from hilum.models.networks.densenet import DenseNet121
from load_tests.load.mix import Mix, Part
from load_tests.peer import network, phases, preparation
from load_tests.peer.orthanc import AE_TITLE
from load_tests.peer.peer_system import PeerEnded, PeerSystem
from load_tests.peer.report import scores_in
from testing.accounting import Accountant
from testing.network.peer_address import Peer
from testing.network.receiver import Receiver
from testing.network.storage_scu import SUCCESS, StorageScu
from testing.peers import StoreScp
from testing.phantoms import phantom
from testing.phantoms.encoded import encode, fresh_uid
from testing.serving import free_ports
from tests.support.peers.answering_peer import AnsweringPeer, answering
from tests.support.peers.peers import require_program
from tests.support.reports.sr_gate import FAST, assert_clean

LABELS = [
    {"key": "edema", "code": ["19242006", "SCT", "Pulmonary edema"]},
    {"key": "pneumothorax", "code": ["36118008", "SCT", "Pneumothorax"]},
]


@pytest.fixture
def material(tmp_path: Path) -> Path:
    """Any weights will do: what is tested is the way from images to a report."""
    folder = tmp_path / "material"
    folder.mkdir()
    (folder / "labels.json").write_text(json.dumps(LABELS))
    torch.manual_seed(1)
    torch.save(DenseNet121(1, len(LABELS), 224, 224).state_dict(), folder / "weights.pt")
    return folder


def study() -> list[pydicom.Dataset]:
    """Two frontal images under UIDs as the generator makes them."""
    images, source = phantom.make_study(views=("PA", "AP"), rows=256, columns=256), random.Random(1)
    study_uid = fresh_uid(source)
    for image in images:
        image.StudyInstanceUID, image.SeriesInstanceUID, image.SOPInstanceUID = (
            study_uid,
            fresh_uid(source),
            fresh_uid(source),
        )
        image.file_meta.MediaStorageSOPInstanceUID = image.SOPInstanceUID
    return images


def store(port: int, images: list[pydicom.Dataset]) -> None:
    kinds = [(str(image.SOPClassUID), str(image.file_meta.TransferSyntaxUID)) for image in images]
    with StorageScu(Peer(AE_TITLE, "127.0.0.1", port), "LOADGEN", kinds) as association:
        for image in images:
            sent = encode(image).fresh(
                image.StudyInstanceUID, image.SeriesInstanceUID, image.SOPInstanceUID
            )
            assert association.store(sent) == SUCCESS


def received(folder: Path, seconds: float = 60) -> Path:
    deadline = time.monotonic() + seconds
    while not (found := [path for path in folder.iterdir() if path.stat().st_size]):
        assert time.monotonic() < deadline, "no report"
        time.sleep(0.2)
    size = 0
    while size < (size := found[0].stat().st_size):  # storescp writes it where it will lie
        time.sleep(0.5)
    return found[0]


def test_the_plain_peer_reports_what_its_network_says(tmp_path: Path, material: Path):
    require_program("Orthanc", "orthanc")
    require_program("storescp", "dcmtk")
    images = study()
    with StoreScp(tmp_path / "pacs") as pacs:
        where = (int(pacs.settings["port"]), "STORESCP")
        with PeerSystem(tmp_path / "peer", "plain", material, "f32", where) as peer:
            store(peer.dicom_port, images)
            report = received(tmp_path / "pacs" / "received")
    assert_clean(
        report,
        [phantom.save(image, tmp_path / f"{number}.dcm") for number, image in enumerate(images)],
        FAST,
    )
    batch = np.stack([preparation.plain(image) for image in images])
    expected = network.in_torch(material / "weights.pt", len(LABELS))(batch).max(axis=0)
    assert scores_in(pydicom.dcmread(report)) == pytest.approx(
        {"edema": expected[0], "pneumothorax": expected[1]}, abs=1e-4
    )


def test_a_peer_that_cannot_start_says_why(tmp_path: Path, material: Path):
    require_program("Orthanc", "orthanc")
    (material / "labels.json").unlink()
    with pytest.raises(PeerEnded, match=r"labels\.json"):
        PeerSystem(tmp_path / "peer", "plain", material, "f32", (1, "NOBODY")).__enter__()


@pytest.fixture
def mix(tmp_path: Path) -> Path:
    small = tuple(
        encode(image) for image in phantom.make_study(views=("PA", "AP"), rows=16, columns=16)
    )
    Mix((Part(1.0, "LOADGEN", (small,)),)).save(tmp_path)
    return tmp_path


def test_every_phase_of_a_comparison(mix: Path):
    """Against a stand-in in this process, which answers soon after the second image."""
    port, report_port = free_ports(2)
    with (
        Receiver(report_port) as receiver,
        answering(AnsweringPeer(report_port), port),
        Accountant(os.getpid()) as accountant,
    ):
        with phases.Offering(Peer("FAKE", "127.0.0.1", port), mix, receiver, 2) as offering:
            phases.warm_up(offering, 2)
            assert offering.reported() == 2
            idle = phases.idle(offering, 2, 0.0)
            assert len(idle) == 2
            assert min(idle) > 0
            found = phases.saturate(offering, accountant, 3, 1.0)
            assert offering.reported() == offering.accepted() >= 2 + 2 + found.studies
        assert offering.generator_cpu_seconds > 0
    assert 0 < found.studies_per_second <= found.studies, (
        "of a window of a second, or longer where the machine is busy"
    )
    assert sum(found.cpu_seconds_per_study.values()) > 0
    assert offering.repeated == 0


def test_a_refusal_breaks_the_comparison(mix: Path):
    port, report_port = free_ports(2)
    with (
        Receiver(report_port) as receiver,
        answering(AnsweringPeer(report_port, status=0xA700), port),
        phases.Offering(Peer("FAKE", "127.0.0.1", port), mix, receiver, 1) as offering,
        pytest.raises(phases.RunBroken, match="0xA700"),
    ):
        phases.warm_up(offering, 1)

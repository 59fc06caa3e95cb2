"""Studies with pixels, findings, heat maps and troubles of every kind on a real ledger, and a server in a thread that shows them."""

from __future__ import annotations

import dataclasses
import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage

from hilum.api.serve import serve_api
from hilum.domain import (
    Advance,
    AssociationRecord,
    Code,
    Decision,
    DeliveryState,
    Document,
    Finding,
    NewDocument,
    Outcome,
    ReadingState,
    ReportJob,
    Result,
    ResultState,
    StudyJob,
)
from hilum.processes.sockets import bind
from testing.phantoms import phantom
from tests.support.campaigns.seeded import seed_gallery
from tests.support.ledger.street import SR_BYTES, SR_CLASS, Street
from tests.support.peers.peers import free_port
from tests.support.server.api_client import Rig

ROOT = "1.2.826.0.1.3680043.8.498"
TRAINED, UNTRAINED, FAILED, DEAD, COLLECTING, LATERAL = (
    f"{ROOT}.4711{number}.20261120" for number in range(6)
)
HOSTILE = "<script>alert(1)"
LABELS = (
    ("effusion", "Pleural effusion", "60046008", 2.2),
    ("cardiomegaly", "Cardiomegaly", "8186001", 0.9),
    ("atelectasis", "Atelectasis", "46621007", 0.1),
    ("pneumothorax", "Pneumothorax", "36118008", -3.1),
    ("nodule", "Nodule", "27925004", -1.2),
)


class Gallery(Street):
    """A street whose results, documents and files are what a test wants to look at."""

    is_trained = True
    has_heat_map = True

    def _result(self, job: StudyJob, outcome: Outcome) -> Result:
        usual = super()._result(job, outcome)
        uids = tuple(item.sop_instance_uid for item in job.instances)
        findings = tuple(self._finding(*label, uids) for label in LABELS) if usual.findings else ()
        identifiers = {**usual.identifiers, "heatmap": f"{usual.identifiers['sr']}.7"}
        return dataclasses.replace(
            usual, findings=findings, is_trained=self.is_trained, identifiers=identifiers
        )

    def _finding(
        self, key: str, text: str, code: str, logit: float, uids: tuple[str, ...]
    ) -> Finding:
        score = float(1 / (1 + np.exp(-logit)))
        decision = Decision.PRESENT if score >= 0.5 else Decision.ABSENT
        return Finding(
            key,
            text,
            Code(code, "SCT", text),
            logit,
            score,
            None,
            0.5,
            decision if self.is_trained else Decision.UNDECIDED,
            uids,
        )

    def report(self) -> None:
        """SR, JSON and, where wanted, a heat map."""
        for job in self.claim("report"):
            assert isinstance(job, ReportJob)
            uid = job.result.identifiers["sr"]
            documents = [
                NewDocument(
                    Document("sr", "application/dicom", SR_BYTES, SR_CLASS, uid, f"{uid}.0"),
                    self.destinations,
                ),
                NewDocument(Document("json", "application/json", b"{}"), ()),
            ]
            if self.has_heat_map:
                picture = Document(
                    "heatmap",
                    "application/dicom",
                    heat_map(),
                    SecondaryCaptureImageStorage,
                    f"{uid}.7",
                    f"{uid}.8",
                )
                documents.append(NewDocument(picture, self.destinations))
            self.ledger.advance(
                "report", [(job.lease, Advance(ResultState.REPORTED, documents=documents))]
            )


def heat_map(side: int = 256) -> bytes:
    """A colour Secondary Capture, as the heat maps are."""
    y, x = np.mgrid[0:side, 0:side] / side
    heat = np.exp(-((x - 0.65) ** 2 + (y - 0.6) ** 2) * 12)
    pixels = (
        (np.stack([heat, 0.35 + 0.3 * np.sin(6 * x), 0.5 * (1 - heat)], axis=-1) * 255)
        .clip(0, 255)
        .astype(np.uint8)
    )
    dataset = Dataset()
    dataset.SOPClassUID, dataset.SOPInstanceUID, dataset.Modality = (
        SecondaryCaptureImageStorage,
        f"{ROOT}.7",
        "OT",
    )
    dataset.Rows, dataset.Columns, dataset.SamplesPerPixel, dataset.PlanarConfiguration = (
        side,
        side,
        3,
        0,
    )
    dataset.PhotometricInterpretation = "RGB"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = (
        8,
        8,
        7,
        0,
    )
    dataset.PixelData = pixels.tobytes()
    dataset["PixelData"].VR = "OB"
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    buffer = io.BytesIO()
    dataset.save_as(buffer, enforce_file_format=True)
    return buffer.getvalue()


def fill(rig: Rig) -> None:
    """One study of each kind, oldest first, and associations with a refusal and a hostile AE Title."""
    street = Gallery(rig.street.ledger, rig.clock)
    street.walk(TRAINED, 1, 2)
    rig.clock.now += 400
    street.is_trained, street.has_heat_map = False, False
    street.walk(UNTRAINED, 1)
    rig.clock.now += 60
    street.receive(FAILED, 1, calling_ae_title=HOSTILE[:16])
    street.read(ReadingState.FAILED, "worker_crashed")
    street.assemble(Outcome.NOT_ANALYSED)
    street.report()
    street.deliver()
    street.receive(DEAD, 1)
    street.read()
    street.assemble()
    street.report()
    dead = Advance(
        DeliveryState.DEAD,
        {"reason": "refused_0122", "detail": "PACS answered 0x0122: SOP Class not supported"},
    )
    street.ledger.advance("deliver", [(job.lease, dead) for job in street.claim("deliver")])
    street.receive(LATERAL, 1)
    street.read(ReadingState.NOT_ANALYSED, "lateral_not_supported")
    street.assemble(Outcome.NOT_ANALYSED)
    street.report()
    street.deliver()
    rig.clock.now += 30
    street.receive(COLLECTING, 1, 2)
    rig.clock.now += 3
    save_pixels(rig.folder, TRAINED, 2)
    save_pixels(rig.folder, UNTRAINED, 1)
    note_associations(rig)
    seed_gallery(rig.street.ledger.url, rig.clock)
    beat(rig)


def save_pixels(folder: Path, study: str, count: int) -> None:
    """Files where the rows of this study say that they lie."""
    for number, image in enumerate(
        phantom.make_study(seed=7, views=("PA", "AP")[:count], rows=640, columns=512), start=1
    ):
        path = folder / "archive" / "studies" / f"{study}.{number}.dcm"
        path.parent.mkdir(parents=True, exist_ok=True)
        phantom.save(image, path)


def note_associations(rig: Rig) -> None:
    """One that went well, one that was rejected, one from somebody hostile."""
    now = rig.clock.now
    for record in (
        AssociationRecord(
            now - 90, now - 89, "10.0.0.7", "CR1", "HILUM", "released", None, 2, 0, None
        ),
        AssociationRecord(
            now - 60,
            now - 60,
            "10.0.0.8",
            "CR2",
            "HILUMX",
            "rejected",
            "called_ae_title",
            0,
            0,
            "Send to Called AE Title HILUM.",
        ),
        AssociationRecord(
            now - 5,
            now - 4,
            "10.0.0.9",
            HOSTILE[:16],
            "HILUM",
            "aborted",
            "<b>reason",
            0,
            3,
            "<img src=x onerror=alert(1)>",
        ),
    ):
        rig.street.ledger.record_associations([record])


def beat(rig: Rig) -> None:
    """Listener and dispatcher are well, the analyser waits for its model."""
    rig.street.beat("listener-1", "listener")
    rig.street.beat("dispatcher-1", "dispatcher")
    rig.street.beat(
        "analyser-1",
        "analyser",
        is_ready=False,
        detail="the first canary inference has not finished",
    )


@contextmanager
def served(rig: Rig) -> Iterator[str]:
    """The rig's application on a real port; its address."""
    port, stop = free_port(), threading.Event()
    server = threading.Thread(
        target=serve_api, args=(rig.client.app, bind("api", "127.0.0.1", port), stop)
    )
    server.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stop.set()
        server.join(30)

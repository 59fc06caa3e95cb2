"""One worker process of the peer.

Fetches a study from Orthanc, reads its images as one batch, and stores the report in the PACS.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import torch
import urllib3
from pydicom.dataset import Dataset
from pydicom.uid import Comprehensive3DSRStorage, ExplicitVRLittleEndian
from pynetdicom import AE, evt
from pynetdicom.association import Association

from load_tests.peer import network, preparation, report
from load_tests.peer.orthanc import AE_TITLE
from testing.network.sender import without_delay


class ReportRefused(Exception):
    """The PACS did not take the report."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What a worker needs to know. `material` holds weights.pt and model.onnx."""

    variant: str
    labels: tuple[report.Label, ...]
    material: Path
    orthanc: str
    pacs: tuple[str, int, str]
    threads: int
    precision: str


@dataclass
class Worker:
    """What a worker keeps from study to study."""

    charge: Charge
    prepare: Callable[[Dataset], Any]
    run: network.Network
    http: urllib3.PoolManager
    association: Association | None = None

    def analyse(self, study: str) -> None:
        """Read and report one study, by its Orthanc identifier. Raises ReportRefused."""
        images = [self._fetch(instance) for instance in self._instances(study)]
        scores = self.run(np.stack([self.prepare(image) for image in images]))
        self._store(report.build(images, self.charge.labels, scores.max(axis=0).tolist()))

    def _instances(self, study: str) -> list[str]:
        content: list[dict[str, Any]] = self.http.request(
            "GET", f"{self.charge.orthanc}/studies/{study}/instances"
        ).json()
        return [item["ID"] for item in content]

    def _fetch(self, instance: str) -> Dataset:
        return pydicom.dcmread(
            BytesIO(
                self.http.request("GET", f"{self.charge.orthanc}/instances/{instance}/file").data
            )
        )

    def _store(self, document: Dataset) -> None:
        if self.association is None or not self.association.is_established:
            self.association = _associate(*self.charge.pacs)
        status = self.association.send_c_store(document).get("Status")
        if status != 0x0000:
            raise ReportRefused(f"status {status}")


def start(charge: Charge, ready: Barrier) -> None:
    """Initialiser of the process: load everything, then wait for the others."""
    global _worker  # noqa: PLW0603 - a pool's task sees its process's state only so
    torch.set_num_threads(charge.threads)
    prepare, run = _VARIANTS[charge.variant](charge)
    run(np.zeros((2, 1, preparation.SIZE, preparation.SIZE), np.float32))
    _worker = Worker(charge, prepare, run, urllib3.PoolManager())
    ready.wait()


def analyse(study: str) -> None:
    """A pool's task."""
    assert _worker is not None
    _worker.analyse(study)


def _plain(charge: Charge) -> tuple[Callable[[Dataset], Any], network.Network]:
    return preparation.plain, network.in_torch(charge.material / "weights.pt", len(charge.labels))


def _informed(charge: Charge) -> tuple[Callable[[Dataset], Any], network.Network]:
    return preparation.informed, network.in_openvino(
        charge.material / "model.onnx", charge.threads, charge.precision
    )


_VARIANTS = {"plain": _plain, "informed": _informed}
VARIANTS = tuple(_VARIANTS)
_worker: Worker | None = None


def _associate(host: str, port: int, ae_title: str) -> Association:
    ae = AE(AE_TITLE)
    ae.add_requested_context(Comprehensive3DSRStorage, ExplicitVRLittleEndian)
    association = ae.associate(
        host, port, ae_title=ae_title, evt_handlers=[(evt.EVT_CONN_OPEN, without_delay)]
    )
    if not association.is_established:
        raise ReportRefused("no association")
    return association

"""Rejection notes as an image manager makes them (IHE IOCM), with highdicom, and our own report as a PACS sends it back."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from io import BytesIO

import highdicom as hd
from pydicom import dcmread, dcmwrite
from pydicom.dataset import Dataset
from pydicom.sr.coding import Code
from pydicom.uid import ExplicitVRLittleEndian, generate_uid

from hilum.receive.headers.file_meta import decode
from hilum.report import HeatMapSources, build_report
from hilum.report.documents import structured_report
from hilum.report.sources import Extracts
from tests.support.reports.results import CONTEXT, make_release, report_of

KOS = "1.2.840.10008.5.1.4.1.1.88.59"
TITLES = {
    "113000": "Of Interest",
    "113001": "Rejected for Quality Reasons",
    "113037": "Rejected for Patient Safety Reasons",
    "113038": "Incorrect Modality Worklist Entry",
    "113039": "Data Retention Policy Expired",
}


def key_objects(images: Sequence[Dataset], title: str) -> Dataset:
    """A Key Object Selection document with this title (DCM) that names the images."""
    content = hd.ko.KeyObjectSelection(
        document_title=Code(title, "DCM", TITLES[title]), referenced_objects=list(images)
    )
    return hd.ko.KeyObjectSelectionDocument(
        evidence=list(images),
        content=content,
        series_instance_uid=generate_uid(),
        series_number=99,
        sop_instance_uid=generate_uid(),
        instance_number=1,
        manufacturer="Archive",
        transfer_syntax_uid=ExplicitVRLittleEndian,
    )


def own_report(images: Sequence[Dataset], serial: str) -> Dataset:
    """The structured report that the installation with this serial number makes of these images."""
    job, context = (
        report_of(list(images), make_release()),
        dataclasses.replace(CONTEXT, installation_serial=serial),
    )
    document = structured_report(job, make_release(), context, None, Extracts(job), None)
    return dcmread(BytesIO(document.content))


def own_page(images: Sequence[Dataset], serial: str, kind: str) -> Dataset:
    """The result sheet, its PDF or the presentation state that the installation with this serial number makes."""
    job = report_of(list(images), make_release())
    context = dataclasses.replace(CONTEXT, installation_serial=serial)
    report = build_report(job, make_release(), context, (kind,), HeatMapSources({}, 1))
    return dcmread(BytesIO(report.documents[0].content))


def wire(dataset: Dataset) -> bytes:
    """The data set as a C-STORE-RQ carries it, explicit little endian."""
    target = BytesIO()
    dcmwrite(target, dataset, enforce_file_format=True)
    whole = target.getvalue()
    return whole[decode(whole)[1] :]

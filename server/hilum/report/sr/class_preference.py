"""The same report in another SOP Class, for a receiver that refuses the first one (PS3.4 B.5).

Comprehensive SR and Enhanced SR hold the same tree, because it has no 3D coordinates. Basic Text SR
holds it as lines of text.
"""

from __future__ import annotations

import dataclasses
from io import BytesIO

from pydicom import dcmread
from pydicom.uid import UID

from hilum.domain import Document, SrClass
from hilum.report.headers.suppress_warnings import quietly
from hilum.report.sr.basic_text import to_basic_text
from hilum.report.sr.document_header import encode


def derive(
    document: Document,
    wanted: SrClass,
    sop_instance_uid: str,
    series: tuple[str, int] | None = None,
) -> Document:
    """A document of the class `wanted` under its own UID, from the bytes of a richer one alone.

    `series`: UID and number of its series; None: that of the richer one. The same bytes give the
    same bytes.
    """
    with quietly():
        report = dcmread(BytesIO(document.content))
        if wanted.name == "basic_text":
            to_basic_text(report)
        report.SOPClassUID = report.file_meta.MediaStorageSOPClassUID = UID(wanted.sop_class_uid)
        report.SOPInstanceUID = report.file_meta.MediaStorageSOPInstanceUID = UID(sop_instance_uid)
        if series is not None:
            report.SeriesInstanceUID, report.SeriesNumber = series
        content = encode(report)
    return dataclasses.replace(
        document,
        kind=wanted.kind,
        content=content,
        sop_class_uid=wanted.sop_class_uid,
        sop_instance_uid=sop_instance_uid,
        series_instance_uid=series[0] if series else document.series_instance_uid,
        id=0,
    )

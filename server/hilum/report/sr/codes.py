"""The coded concepts of the structured report's frame (PS3.16).

Codes of findings come with the release.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Final

from pydicom.sr.coding import Code
from pydicom.uid import (
    ComputedRadiographyImageStorage,
    DigitalXRayImageStorageForPresentation,
    DigitalXRayImageStorageForProcessing,
)

from hilum.domain import Decision, Finding, Release, mint_uid

REPORT: Final = Code("126000", "DCM", "Imaging Measurement Report")
IMAGING_MEASUREMENTS: Final = Code("126010", "DCM", "Imaging Measurements")
MEASUREMENT_GROUP: Final = Code("125007", "DCM", "Measurement Group")
DIAGNOSTIC_IMAGING_REPORT: Final = Code("18748-4", "LN", "Diagnostic Imaging Report")
LANGUAGE: Final = Code("121049", "DCM", "Language of Content Item and Descendants")
ENGLISH: Final = Code("en-US", "RFC5646", "English (United States)")
FINDINGS: Final = Code("121070", "DCM", "Findings")
PROCEDURE_REPORTED: Final = Code("121058", "DCM", "Procedure reported")
IMAGE_LIBRARY: Final = Code("111028", "DCM", "Image Library")
IMAGE_LIBRARY_GROUP: Final = Code("126200", "DCM", "Image Library Group")
QUALITATIVE_EVALUATIONS: Final = Code("C0034375", "UMLS", "Qualitative Evaluations")
DEVICE: Final = Code("121007", "DCM", "Device")
FINDING: Final = Code("121071", "DCM", "Finding")
COMMENT: Final = Code("121106", "DCM", "Comment")
ARTIFICIAL_INTELLIGENCE: Final = Code("123110", "DCM", "Artificial Intelligence")
PROCESSING_SUMMARY: Final = Code("111017", "DCM", "CAD Processing and Findings Summary")
NO_ALGORITHM_SUCCEEDED: Final = Code("111245", "DCM", "No algorithms succeeded; without findings")
PROCESSING_EQUIPMENT: Final = Code("109102", "DCM", "Processing Equipment")
CHEST: Final = Code("816094009", "SCT", "Chest")
VISUAL_EXPLANATION: Final = Code("130401", "DCM", "Visual explanation")
SOURCE_FOR_PROCESSING: Final = Code("121322", "DCM", "Source image for image processing operation")
SOURCE_OF_MEASUREMENT: Final = Code("121112", "DCM", "Source of Measurement")
SOURCE: Final = Code("260753009", "SCT", "Source")
# CID 100, in old and new editions; "Plain chest X-ray" is in neither.
IMAGING_PROCEDURE: Final = Code("363679005", "SCT", "Imaging procedure")

# CID 6048: how likely the finding is of the type identified. For calibrated numbers only (promise
# 8).
CERTAINTY_OF_FINDING: Final = Code("111012", "DCM", "Certainty of Finding")
PERCENT: Final = Code("%", "UCUM", "Percent")
# A number that is no probability. A private code for it makes dciodvfy warn at each use, so the
# name is the plain word of PS3.16 Annex O, and the unit says the rest: UCUM 2.1 §6 allows a unity
# that is nothing but an annotation in braces.
SCORE: Final = Code("246262008", "SCT", "Score")
UNCALIBRATED: Final = Code("{uncalibrated}", "UCUM", "Model output, uncalibrated")

MODALITY: Final = Code("121139", "DCM", "Modality")
MODALITIES: Final[Mapping[str, Code]] = {
    "CR": Code("CR", "DCM", "Computed Radiography"),
    "DX": Code("DX", "DCM", "Digital Radiography"),
}
MODALITY_OF_CLASS: Final[Mapping[str, str]] = {
    ComputedRadiographyImageStorage: "CR",
    DigitalXRayImageStorageForPresentation: "DX",
    DigitalXRayImageStorageForProcessing: "DX",
}
ROWS: Final = Code("110910", "DCM", "Pixel Data Rows")
COLUMNS: Final = Code("110911", "DCM", "Pixel Data Columns")
ORIENTATION_ROW: Final = Code("111044", "DCM", "Patient Orientation Row")
ORIENTATION_COLUMN: Final = Code("111043", "DCM", "Patient Orientation Column")
HORIZONTAL_SPACING: Final = Code("111026", "DCM", "Horizontal Pixel Spacing")
VERTICAL_SPACING: Final = Code("111066", "DCM", "Vertical Pixel Spacing")
PIXELS: Final = Code("{pixels}", "UCUM", "Pixels")
MILLIMETRE: Final = Code("mm", "UCUM", "mm")

# CID 240 "Present-Absent-Undetermined".
PRESENCE: Final[Mapping[Decision, Code]] = {
    Decision.PRESENT: Code("52101004", "SCT", "Present"),
    Decision.ABSENT: Code("272519000", "SCT", "Absent"),
    Decision.UNDECIDED: Code("373068000", "SCT", "Undetermined"),
}

# The same release is the same device everywhere, so this namespace belongs to Hilum and not to the
# site.
NAMESPACE: Final = uuid.UUID("6f0f3c1e-6d0b-5b0e-9d52-0f7f4a3f9a11")


def is_private(finding: Finding) -> bool:
    """PS3.16 8: scheme designators that begin with 99, and L, are private."""
    scheme = finding.code.scheme
    return scheme.startswith("99") or scheme == "L"


def device_uid(release: Release) -> str:
    """Unique Device Identifier of a release.

    Another version or other weights are another device (IHE AI Results).
    """
    return mint_uid(NAMESPACE, release.id, release.weights_sha256)


def tracking_uid(series_instance_uid: str, key: str) -> str:
    """Return the Tracking UID of a finding, equal in all revisions of a release's report."""
    return mint_uid(NAMESPACE, "tracking", series_instance_uid, key)

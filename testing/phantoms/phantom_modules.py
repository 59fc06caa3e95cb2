"""Attributes of the phantom's objects, by module and kind (PS3.3).

Filled where type 1 or 2, ASCII, nobody's.
"""

from __future__ import annotations

import uuid
from typing import Literal

from pydicom.dataset import Dataset
from pydicom.uid import (
    UID,
    ComputedRadiographyImageStorage,
    DigitalXRayImageStorageForPresentation,
    DigitalXRayImageStorageForProcessing,
    SecondaryCaptureImageStorage,
)

Modality = Literal["DX", "CR", "SC"]
Intent = Literal["FOR PRESENTATION", "FOR PROCESSING"]

_NAMESPACE = uuid.UUID("9b1f7a52-5a1c-4f0e-9a51-1d2c6a0e7b44")
IMPLEMENTATION_UID = UID(f"2.25.{uuid.uuid5(_NAMESPACE, 'implementation').int}")
_SURNAMES = (
    "Adler",
    "Brook",
    "Castle",
    "Dale",
    "Elm",
    "Ford",
    "Grove",
    "Hill",
    "Isle",
    "Juniper",
    "Knoll",
    "Lake",
    "Moor",
)

# CID 4010 "DX View" and CID 4009 "DX Anatomy Imaged" (PS3.16).
_VIEW_CODES = {
    "PA": ("272479007", "postero-anterior"),
    "AP": ("399348003", "antero-posterior"),
    "LATERAL": ("399173006", "left lateral"),
}
# PS3.3 C.8.11.5: directions of the row and the column. LL: the left side is next to the detector
# (PS3.3 C.8.11.5 View Position).
_ORIENTATION = {"PA": ["L", "F"], "AP": ["L", "F"], "LATERAL": ["A", "F"]}
_VIEW_POSITION = {"PA": "PA", "AP": "AP", "LATERAL": "LL"}


def uid_for(*parts: object) -> str:
    """The UID that stands for these parts in every run: 2.25 and a name-based UUID (PS3.5 B.2)."""
    return f"2.25.{uuid.uuid5(_NAMESPACE, '/'.join(map(str, parts))).int}"


def add_patient_and_study(ds: Dataset, seed: int) -> None:
    """PS3.3 C.7.1.1, C.7.2.1."""
    ds.SpecificCharacterSet = "ISO_IR 100"
    ds.PatientName = f"{_SURNAMES[seed % len(_SURNAMES)]}^Phantom"
    ds.PatientID = f"PHANTOM-{seed:08d}"
    ds.PatientBirthDate = f"19{40 + seed % 60:02d}0{1 + seed % 9}15"
    ds.PatientSex = "FMO"[seed % 3]
    ds.StudyInstanceUID = uid_for("study", seed)
    ds.StudyDate = "20260105"
    ds.StudyTime = f"{8 + seed % 10:02d}{seed % 60:02d}00"
    ds.ReferringPhysicianName = "Referrer^Test"
    ds.StudyID = f"S{seed:08d}"
    ds.AccessionNumber = f"A{seed:08d}"
    ds.StudyDescription = "Chest, two views"


def add_series(ds: Dataset, seed: int, modality: Modality, view: str, number: int) -> None:
    """PS3.3 C.7.3.1, C.7.5.1."""
    ds.Modality = "DX" if modality == "DX" else "CR"
    ds.SeriesInstanceUID = uid_for("series", seed, modality, view)
    ds.SeriesNumber = number
    ds.SeriesDate = ds.StudyDate
    ds.SeriesTime = ds.StudyTime
    ds.SeriesDescription = f"Chest {view}"
    ds.OperatorsName = "Operator^Test"
    ds.Manufacturer = "Hilum project"
    ds.ManufacturerModelName = "Phantom"
    ds.InstitutionName = "Phantom Hospital"
    ds.StationName = "PHANTOM1"
    ds.DeviceSerialNumber = "1"
    ds.SoftwareVersions = "1"


def add_image(ds: Dataset, seed: int, modality: Modality, view: str, intent: Intent) -> None:
    """PS3.3 C.7.6.1, C.12.1."""
    kind = {"CR": ComputedRadiographyImageStorage, "SC": SecondaryCaptureImageStorage}.get(modality)
    dx = (
        DigitalXRayImageStorageForProcessing
        if intent == "FOR PROCESSING"
        else DigitalXRayImageStorageForPresentation
    )
    ds.SOPClassUID = kind or dx
    ds.SOPInstanceUID = uid_for(
        "instance",
        seed,
        modality,
        view,
        *(() if modality != "DX" or intent == "FOR PRESENTATION" else (intent,)),
    )
    ds.InstanceNumber = 1
    ds.ContentDate = ds.StudyDate
    ds.ContentTime = ds.StudyTime
    ds.AcquisitionDate = ds.StudyDate
    ds.AcquisitionTime = ds.StudyTime
    ds.AcquisitionNumber = 1
    ds.PatientOrientation = _ORIENTATION[view]
    ds.BodyPartExamined = "CHEST"
    ds.BurnedInAnnotation = "NO"
    ds.ViewPosition = _VIEW_POSITION[view]


def _code(value: str, meaning: str) -> Dataset:
    item = Dataset()
    item.CodeValue = value
    item.CodingSchemeDesignator = "SCT"
    item.CodeMeaning = meaning
    return item


def add_dx(ds: Dataset, view: str, photometric: str, spacing: list[str], intent: Intent) -> None:
    """PS3.3 A.26: what a digital radiography system writes."""
    ds.PresentationIntentType = intent
    ds.ImageType = ["ORIGINAL", "PRIMARY", ""]
    ds.AcquisitionDeviceProcessingDescription = "Chest"
    ds.AcquisitionDeviceProcessingCode = "CHEST"
    ds.ImageLaterality = "U"
    ds.AnatomicRegionSequence = [_code("816094009", "Chest")]
    ds.ViewCodeSequence = [_code(*_VIEW_CODES[view])]
    ds.ViewCodeSequence[0].ViewModifierCodeSequence = []
    ds.PixelIntensityRelationship = "LOG"
    # PS3.3 C.8.11.3.1.2: -1 where a larger stored value means less radiation, as bone has in
    # MONOCHROME2.
    ds.PixelIntensityRelationshipSign = -1 if photometric == "MONOCHROME2" else 1
    ds.DetectorType = "SCINTILLATOR"
    ds.DetectorConfiguration = "AREA"
    ds.DetectorID = "PHANTOM-DETECTOR"
    ds.DateOfLastDetectorCalibration = "20260101"
    ds.TimeOfLastDetectorCalibration = "080000"
    ds.ImagerPixelSpacing = spacing
    ds.PositionerType = "NONE"
    ds.KVP = "125"
    ds.ExposureTime = 10
    ds.XRayTubeCurrent = 200
    ds.Exposure = 2
    ds.ExposureInuAs = 2000
    ds.ExposureTimeInuS = "10000"
    ds.XRayTubeCurrentInuA = "200000"
    ds.DistanceSourceToDetector = "1800"
    ds.AcquisitionContextSequence = []
    ds.RescaleIntercept = "0"
    ds.RescaleSlope = "1"
    ds.RescaleType = "US"
    ds.PresentationLUTShape = "INVERSE" if photometric == "MONOCHROME1" else "IDENTITY"


def add_cr(ds: Dataset, spacing: list[str]) -> None:
    """PS3.3 A.2: what a plate reader writes."""
    ds.ImageType = ["ORIGINAL", "PRIMARY"]
    ds.KVP = "120"
    ds.PlateID = "PLATE-7"
    ds.Sensitivity = "200"
    ds.CassetteSize = "35CMX43CM"
    ds.ImagerPixelSpacing = spacing


def add_secondary_capture(ds: Dataset, spacing: list[str]) -> None:
    """PS3.3 A.8: a radiograph wrapped by a workstation, which is how public data sets come."""
    ds.ConversionType = "WSD"
    ds.ImageType = ["DERIVED", "SECONDARY"]
    ds.PixelSpacing = spacing


def add_window(ds: Dataset, bits: int) -> None:
    """VOI LUT over the whole range (PS3.3 C.11.2): the drawing is made for display as it is."""
    ds.WindowCenter = str(2 ** (bits - 1))
    ds.WindowWidth = str(2**bits)
    ds.WindowCenterWidthExplanation = "NORMAL"

"""The maker of a document, the same for all studies of an installation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hilum.domain import ActivationMaps
from hilum.settings import Hl7MessageSettings


@dataclass(frozen=True, slots=True)
class ReportContext:
    """Picklable, because reports are built in other processes.

    `installation_serial` names this installation, not the product. `series_title`: the first words
    of the SR's Series Description. `hl7`: settings of the HL7 message. `patient_id_system`: the
    namespace of Patient IDs in FHIR as a URI, where an image names no issuer; empty: none.
    """

    manufacturer: str
    series_number: int
    disclaimer: str
    site_name: str
    software_version: str
    installation_serial: str
    heat_map_series_number: int = 9002
    sheet_series_number: int = 9004
    pdf_series_number: int = 9005
    text_series_number: int = 9006
    gsps_series_number: int = 9007
    series_title: str = "AI CXR"
    patient_id_system: str = ""
    hl7: Hl7MessageSettings = field(default_factory=Hl7MessageSettings)


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The heat map of a report.

    It holds UIDs and the findings that it shows; or, without findings, why there is no heat map.
    """

    sop_class_uid: str = ""
    sop_instance_uid: str = ""
    series_instance_uid: str = ""
    finding_keys: tuple[str, ...] = ()
    left_out: str | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """A source image's file, and the features that a reading of this release left.

    The file's bytes instead of its path: they are from an object store. None: the pixels have left
    the archive; there are no maps.
    """

    path: Path | bytes | None
    maps: ActivationMaps | None


@dataclass(frozen=True, slots=True)
class HeatMapSources:
    """The inputs of a heat map beside the job.

    Pictures by SOP Instance UID, and the most pixels of an image that is opened. `obstacle`: a
    sentence that says why no picture is tried. `shows_maps`: False: no map may be shown on any
    document.
    """

    pictures: Mapping[str, Picture]
    maximum_pixels: int
    obstacle: str = ""
    shows_maps: bool = True

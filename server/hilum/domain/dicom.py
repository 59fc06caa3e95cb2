"""SOP Classes, Transfer Syntaxes, coded concepts and UIDs."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class SrClass:
    """A SOP Class that a structured report may have.

    Its name in settings, the kind of its document, its UID (PS3.4 B.5).
    """

    name: str
    kind: str
    sop_class_uid: str


# The ladder: a receiver that refuses a class is offered the next one. The first is what every
# report is built as.
SR_CLASS_PREFERENCE = (
    SrClass("comprehensive_3d", "sr", "1.2.840.10008.5.1.4.1.1.88.34"),
    SrClass("comprehensive", "sr_comprehensive", "1.2.840.10008.5.1.4.1.1.88.33"),
    SrClass("enhanced", "sr_enhanced", "1.2.840.10008.5.1.4.1.1.88.22"),
    SrClass("basic_text", "sr_basic_text", "1.2.840.10008.5.1.4.1.1.88.11"),
)


SR_KINDS = tuple(item.kind for item in SR_CLASS_PREFERENCE)
BASIC_TEXT = SR_CLASS_PREFERENCE[-1]

SECONDARY_CAPTURE = "1.2.840.10008.5.1.4.1.1.7"
ENCAPSULATED_PDF = "1.2.840.10008.5.1.4.1.1.104.1"
GRAYSCALE_PRESENTATION_STATE = "1.2.840.10008.5.1.4.1.1.11.1"


# What a chest radiograph may come as, by the keywords of PS3.6 table A-1, which settings use.
IMAGE_SOP_CLASSES: Mapping[str, str] = {
    "ComputedRadiographyImageStorage": "1.2.840.10008.5.1.4.1.1.1",
    "DigitalXRayImageStorageForPresentation": "1.2.840.10008.5.1.4.1.1.1.1",
    "DigitalXRayImageStorageForProcessing": "1.2.840.10008.5.1.4.1.1.1.1.1",
    "SecondaryCaptureImageStorage": SECONDARY_CAPTURE,
}


# In order of preference: what is decoded cheapest first. The tail is stored too, and its images end
# with an honest reason.
TRANSFER_SYNTAXES: Mapping[str, str] = {
    "ExplicitVRLittleEndian": "1.2.840.10008.1.2.1",
    "ImplicitVRLittleEndian": "1.2.840.10008.1.2",
    "JPEGBaseline8Bit": "1.2.840.10008.1.2.4.50",
    "JPEGLosslessSV1": "1.2.840.10008.1.2.4.70",
    "JPEGLossless": "1.2.840.10008.1.2.4.57",
    "JPEGLSLossless": "1.2.840.10008.1.2.4.80",
    "JPEG2000Lossless": "1.2.840.10008.1.2.4.90",
    "HTJ2KLossless": "1.2.840.10008.1.2.4.201",
    "HTJ2KLosslessRPCL": "1.2.840.10008.1.2.4.202",
    "RLELossless": "1.2.840.10008.1.2.5",
    "JPEGExtended12Bit": "1.2.840.10008.1.2.4.51",
    "JPEGLSNearLossless": "1.2.840.10008.1.2.4.81",
    "JPEG2000": "1.2.840.10008.1.2.4.91",
    "HTJ2K": "1.2.840.10008.1.2.4.203",
    "DeflatedExplicitVRLittleEndian": "1.2.840.10008.1.2.1.99",
    "ExplicitVRBigEndian": "1.2.840.10008.1.2.2",
}


@dataclass(frozen=True, slots=True)
class Code:
    """A coded concept (PS3.16): value, scheme designator, meaning."""

    value: str
    scheme: str
    meaning: str


@dataclass(frozen=True, slots=True)
class SopReference:
    """A SOP Instance as a sequence refers to it (PS3.3 Table 10-11)."""

    sop_class_uid: str
    sop_instance_uid: str


_UUID_VERSION_5: Final = 5 << 76 | 0b10 << 62  # RFC 4122 4.1.1 and 4.1.3, and all other bits


_UUID_RANDOM: Final = (1 << 128) - 1 & ~(0xF << 76 | 0b11 << 62)


def mint_uid(namespace: uuid.UUID, *parts: str) -> str:
    """A UID that is the same for the same parts.

    2.25 and the decimal form of a UUID (PS3.5 B.2), at most 44 characters.
    """
    name = "\x1f".join(parts)
    # That of uuid.uuid5, whose objects take longer than the digest; a study mints some thirty.
    digest = hashlib.sha1(namespace.bytes + name.encode(), usedforsecurity=False).digest()
    return f"2.25.{int.from_bytes(digest[:16]) & _UUID_RANDOM | _UUID_VERSION_5}"

"""What is accepted from whom: pure decisions of the association negotiation (PS3.8 7.1, 9.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydicom import uid

from hilum.receive.header import is_uid
from hilum.settings import Receive

STORAGE_SOP_CLASSES: tuple[str, ...] = (
    uid.ComputedRadiographyImageStorage,
    uid.DigitalXRayImageStorageForPresentation,
    uid.DigitalXRayImageStorageForProcessing,
    uid.SecondaryCaptureImageStorage,
)
VERIFICATION = "1.2.840.10008.1.1"

# In order of preference: what is decoded cheapest first. The tail is stored too, and its images end with an honest reason.
TRANSFER_SYNTAXES: tuple[str, ...] = (
    uid.ExplicitVRLittleEndian,
    uid.ImplicitVRLittleEndian,
    uid.JPEGBaseline8Bit,
    uid.JPEGLosslessSV1,
    uid.JPEGLossless,
    uid.JPEGLSLossless,
    uid.JPEG2000Lossless,
    uid.HTJ2KLossless,
    uid.HTJ2KLosslessRPCL,
    uid.RLELossless,
    uid.JPEGExtended12Bit,
    uid.JPEGLSNearLossless,
    uid.JPEG2000,
    uid.HTJ2K,
    uid.DeflatedExplicitVRLittleEndian,
    uid.ExplicitVRBigEndian,
)
_VERIFICATION_SYNTAXES: tuple[str, ...] = (uid.ExplicitVRLittleEndian, uid.ImplicitVRLittleEndian, uid.ExplicitVRBigEndian)
_NAMED = 3  # refused SOP Classes that an advice names; a router may propose a hundred


@dataclass(frozen=True, slots=True)
class Rejection:
    """An A-ASSOCIATE-RJ (PS3.8 Table 9-21), and what the sender should change."""

    result: int
    source: int
    diagnostic: int
    reason: str
    advice: str


@dataclass(frozen=True, slots=True)
class NotAccepted:
    """A proposed Presentation Context that was answered 3 (abstract syntax) or 4 (transfer syntaxes), PS3.8 Table 9-18."""

    abstract_syntax: str
    is_known: bool


def rejection(called: str, calling: str, open_associations: int, settings: Receive) -> Rejection | None:
    """Why this association must not be, or None. AE Titles compare without surrounding spaces (PS3.5 6.2, VR AE)."""
    if called.strip() not in {title.strip() for title in settings.ae_titles}:
        advice = f"Set the Called AE Title to {' or '.join(settings.ae_titles)}, or add yours to receive.ae_titles."
        return Rejection(1, 1, 7, "called_ae_title_not_recognised", advice)
    if settings.calling_ae_titles and calling.strip() not in {title.strip() for title in settings.calling_ae_titles}:
        advice = "This Calling AE Title is not in receive.calling_ae_titles: correct it in the sender, or add it there."
        return Rejection(1, 1, 3, "calling_ae_title_not_recognised", advice)
    if open_associations >= settings.maximum_associations:
        advice = (
            f"{open_associations} associations were open: send several images in one association, or raise receive.maximum_associations."
        )
        return Rejection(2, 3, 2, "local_limit_exceeded", advice)
    return None


def supported(abstract_syntaxes: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """Of the proposed SOP Classes those that are accepted, with the Transfer Syntaxes in order of preference."""
    known: dict[str, Sequence[str]] = dict.fromkeys(STORAGE_SOP_CLASSES, TRANSFER_SYNTAXES)
    known[VERIFICATION] = _VERIFICATION_SYNTAXES
    return {abstract: known[abstract] for abstract in abstract_syntaxes if abstract in known}


def advise(refused: Sequence[NotAccepted]) -> str | None:
    """What the sender should change about the Presentation Contexts that were not accepted."""
    unknown = [_name(item.abstract_syntax) for item in refused if not item.is_known]
    encoded = [_name(item.abstract_syntax) for item in refused if item.is_known]
    sentences = []
    if unknown:
        sentences.append(f"SOP Classes not accepted: {_list(unknown)}. Send CR, DX and Secondary Capture images only.")
    if encoded:
        sentences.append(f"No Transfer Syntax accepted for: {_list(encoded)}. Propose Explicit VR Little Endian.")
    return " ".join(sentences) or None


def _list(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = len(distinct) - _NAMED
    return ", ".join(distinct[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _name(sop_class: str) -> str:
    """The class's name in the standard, else its UID."""
    return uid.UID(sop_class).name if is_uid(sop_class) else "an invalid UID"

"""What is accepted from whom: pure decisions of the association negotiation (PS3.8 7.1, 9.3)."""

from __future__ import annotations

import ipaddress
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
# Accepted so that what comes back can be acknowledged and discarded (promise 7); reports of others are refused.
REPORT_SOP_CLASSES: tuple[str, ...] = (
    uid.Comprehensive3DSRStorage,
    uid.ComprehensiveSRStorage,
    uid.EnhancedSRStorage,
    uid.BasicTextSRStorage,
)
KEY_OBJECT_SELECTION: str = uid.KeyObjectSelectionDocumentStorage  # for rejection notes (IHE IOCM)
VERIFICATION = "1.2.840.10008.1.1"
STREAMED_SOP_CLASSES = frozenset((*STORAGE_SOP_CLASSES, *REPORT_SOP_CLASSES, KEY_OBJECT_SELECTION, VERIFICATION))

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
_WITHOUT_PIXELS: tuple[str, ...] = (uid.ExplicitVRLittleEndian, uid.ImplicitVRLittleEndian, uid.ExplicitVRBigEndian)
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


def rejection(
    called: str, calling: str, open_associations: int, settings: Receive, *, peer_address: str = "", open_of_sender: int = 0
) -> Rejection | None:
    """Why this association must not be, or None. AE Titles compare without surrounding spaces (PS3.5 6.2, VR AE).

    `open_of_sender`: of the open associations those with this Calling AE Title.
    """
    return (
        _stranger(peer_address, settings)
        or _wrong_title(called, calling, settings)
        or _one_too_many(calling.strip(), open_associations, open_of_sender, settings)
    )


def _stranger(peer_address: str, settings: Receive) -> Rejection | None:
    """PS3.8 Table 9-21 has no diagnostic for addresses: 1, no reason given."""
    if not settings.peers or any(_address(peer_address) in ipaddress.ip_network(network) for network in settings.peers):
        return None
    advice = "This address is not in receive.peers: send from one that is, or add it there."
    return Rejection(1, 1, 1, "peer_address_not_allowed", advice)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """As the socket says it: an IPv4 peer of an IPv6 socket is mapped."""
    found = ipaddress.ip_address(text)
    return getattr(found, "ipv4_mapped", None) or found


def _wrong_title(called: str, calling: str, settings: Receive) -> Rejection | None:
    if called.strip() not in {title.strip() for title in settings.ae_titles}:
        advice = f"Set the Called AE Title to {' or '.join(settings.ae_titles)}, or add yours to receive.ae_titles."
        return Rejection(1, 1, 7, "called_ae_title_not_recognised", advice)
    if settings.calling_ae_titles and calling.strip() not in {title.strip() for title in settings.calling_ae_titles}:
        advice = "This Calling AE Title is not in receive.calling_ae_titles: correct it in the sender, or add it there."
        return Rejection(1, 1, 3, "calling_ae_title_not_recognised", advice)
    return None


def _one_too_many(calling: str, open_associations: int, open_of_sender: int, settings: Receive) -> Rejection | None:
    limits = {title.strip(): limit for title, limit in settings.maximum_associations_by_ae.items()}
    if calling in limits and open_of_sender >= limits[calling]:
        advice = (
            f"{open_of_sender} associations of this Calling AE Title were open: send several images in one association, "
            "or raise receive.maximum_associations_by_ae."
        )
        return Rejection(2, 3, 2, "limit_of_sender_exceeded", advice)
    if open_associations >= settings.maximum_associations:
        advice = (
            f"{open_associations} associations were open: send several images in one association, or raise receive.maximum_associations."
        )
        return Rejection(2, 3, 2, "local_limit_exceeded", advice)
    return None


def supported(abstract_syntaxes: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """Of the proposed SOP Classes those that are accepted, with the Transfer Syntaxes in order of preference."""
    known: dict[str, Sequence[str]] = dict.fromkeys(STORAGE_SOP_CLASSES, TRANSFER_SYNTAXES)
    known |= dict.fromkeys((*REPORT_SOP_CLASSES, KEY_OBJECT_SELECTION, VERIFICATION), _WITHOUT_PIXELS)
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

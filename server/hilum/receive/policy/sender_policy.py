"""The terms of each sender: its section of the settings, and the general settings for the rest."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydicom import uid

from hilum.dicom.storage_commitment import STORAGE_COMMITMENT
from hilum.domain import IMAGE_SOP_CLASSES, TRANSFER_SYNTAXES
from hilum.receive.policy.other_objects import TRANSFER_SYNTAXES_OF_OTHERS, is_other
from hilum.settings import Receive, Sender

STORAGE_SOP_CLASSES: tuple[str, ...] = tuple(IMAGE_SOP_CLASSES.values())
SR_SOP_CLASSES: tuple[str, ...] = (
    uid.Comprehensive3DSRStorage,
    uid.ComprehensiveSRStorage,
    uid.EnhancedSRStorage,
    uid.BasicTextSRStorage,
)
# Accepted from all senders, so that returned reports can be acknowledged and discarded.
REPORT_SOP_CLASSES: tuple[str, ...] = (
    *SR_SOP_CLASSES,
    uid.EncapsulatedPDFStorage,
    uid.GrayscaleSoftcopyPresentationStateStorage,
)
KEY_OBJECT_SELECTION: str = uid.KeyObjectSelectionDocumentStorage  # for rejection notes (IHE IOCM)
VERIFICATION = "1.2.840.10008.1.1"
_WITHOUT_PIXELS: tuple[str, ...] = (
    uid.ExplicitVRLittleEndian,
    uid.ImplicitVRLittleEndian,
    uid.ExplicitVRBigEndian,
)
_NOT_IMAGES = dict.fromkeys((*SR_SOP_CLASSES, KEY_OBJECT_SELECTION, VERIFICATION), _WITHOUT_PIXELS)
COMMITMENT: Mapping[str, tuple[str, ...]] = {STORAGE_COMMITMENT: _WITHOUT_PIXELS}
_FOR_ALL = {"called_ae_titles": "receive.ae_titles"}

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class SenderPolicy:
    """The rights of one Calling AE Title, and the settings that define them.

    `peers`: empty is any. `maximum_associations`: None is no limit of its own. `accepted`: by SOP
    Class the Transfer Syntaxes, both as UIDs, in order of preference. `may_reject`: as in the
    settings. `discards_others`: objects that are no images are acknowledged and discarded.
    `certificate_names`: one of them must be in its certificate; empty: it needs none.
    """

    section: str
    own: frozenset[str]
    peers: tuple[Network, ...]
    called_ae_titles: tuple[str, ...]
    maximum_associations: int | None
    sop_classes: tuple[str, ...]
    transfer_syntaxes: tuple[str, ...]
    accepted: Mapping[str, tuple[str, ...]]
    may_reject: bool | None
    discards_others: bool
    certificate_names: frozenset[str]

    def key(self, name: str) -> str:
        """Return the setting that a person has to change."""
        return (
            f"{self.section}.{name}" if name in self.own else _FOR_ALL.get(name, f"receive.{name}")
        )

    def syntaxes_of(self, sop_class: str) -> tuple[str, ...]:
        """Return the Transfer Syntaxes in which objects of this class are taken, preferred first.

        It is empty where such objects are not taken.
        """
        if (found := self.accepted.get(sop_class)) is not None:
            return found
        if self.discards_others and is_other(sop_class):
            return TRANSFER_SYNTAXES_OF_OTHERS
        return _WITHOUT_PIXELS if sop_class in REPORT_SOP_CLASSES else ()

    def is_near(self, peer_address: str) -> bool:
        """Return whether it may come from this address."""
        return not self.peers or any(_address(peer_address) in network for network in self.peers)


class SenderPolicies:
    """The terms by Calling AE Title, without the spaces around it (PS3.5 6.2, VR AE)."""

    def __init__(self, receive: Receive, senders: Mapping[str, Sender]) -> None:
        self.for_all = _terms("", Sender(), receive)
        self.by_sender = {
            title: _terms(f"senders.{title}", sender, receive) for title, sender in senders.items()
        }

    def of(self, calling_ae_title: str) -> SenderPolicy:
        """Return the terms of this sender."""
        return self.by_sender.get(calling_ae_title.strip(), self.for_all)


def _terms(section: str, sender: Sender, receive: Receive) -> SenderPolicy:
    classes = _uids(sender.sop_classes or receive.sop_classes, IMAGE_SOP_CLASSES)
    syntaxes = _uids(sender.transfer_syntaxes or receive.transfer_syntaxes, TRANSFER_SYNTAXES)
    return SenderPolicy(
        section=section,
        own=frozenset(name for name, value in sender if value not in (None, ())),
        peers=tuple(ipaddress.ip_network(network) for network in sender.peers or receive.peers),
        called_ae_titles=tuple(
            title.strip() for title in sender.called_ae_titles or receive.ae_titles
        ),
        maximum_associations=sender.maximum_associations,
        sop_classes=classes,
        transfer_syntaxes=syntaxes,
        accepted={
            **dict.fromkeys(classes, syntaxes),
            **_NOT_IMAGES,
            **(COMMITMENT if receive.storage_commitment else {}),
        },
        may_reject=sender.may_reject,
        discards_others=(sender.other_objects or receive.other_objects) == "discard",
        certificate_names=frozenset(sender.certificate_names),
    )


def _uids(keywords: Iterable[str], table: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(table[keyword] for keyword in keywords))


def _address(text: str) -> Address:
    """Return the address of a socket; an IPv4 peer of an IPv6 socket is mapped."""
    found = ipaddress.ip_address(text)
    return getattr(found, "ipv4_mapped", None) or found

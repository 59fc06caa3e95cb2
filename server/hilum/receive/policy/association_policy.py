"""Decisions of the association negotiation, by sender (PS3.8 7.1, 9.3), pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hilum.receive.policy.sender_policy import SenderPolicies, SenderPolicy
from hilum.settings import Receive, Sender

# PS3.8 Table 9-21: rejected-transient, by the service provider (presentation),
# local-limit-exceeded. Senders come back.
LATER: Final = (2, 3, 2)


@dataclass(frozen=True, slots=True)
class AssociationRejection:
    """An A-ASSOCIATE-RJ (PS3.8 Table 9-21), and the change that the sender should make."""

    result: int
    source: int
    diagnostic: int
    reason: str
    advice: str


FAILED: Final = AssociationRejection(
    *LATER,
    "internal_error",
    "The receiver could not judge the request, its log says why; send again later.",
)


@dataclass(frozen=True, slots=True)
class OpenAssociations:
    """Open associations. `of_address` is of this process, the others are of all processes."""

    everybody: int = 0
    of_sender: int = 0
    of_address: int = 0


class Policy:
    """The rules, made once from the settings, for any number of threads."""

    def __init__(self, receive: Receive, senders: Mapping[str, Sender]) -> None:
        self._maximum = receive.maximum_associations
        self._maximum_of_address = receive.maximum_associations_of_address
        self._callers = (
            frozenset(title.strip() for title in (*receive.calling_ae_titles, *senders))
            if receive.calling_ae_titles
            else None
        )
        self._terms = SenderPolicies(receive, senders)
        everybody = (self._terms.for_all, *self._terms.by_sender.values())
        self._of_each_range = tuple({terms.peers: terms for terms in everybody}.values())

    def terms(self, calling_ae_title: str) -> SenderPolicy:
        """Return the terms of this sender."""
        return self._terms.of(calling_ae_title)

    def stranger(self, peer_address: str) -> AssociationRejection | None:
        """Return the rejection of an address that no AE Title may use, or None."""
        if any(terms.is_near(peer_address) for terms in self._of_each_range):
            return None
        advice = (
            "This address is not in receive.peers, nor in peers of a section of senders: send from"
            " one that is, or add it there."
        )
        return AssociationRejection(1, 1, 1, "peer_address_not_allowed", advice)

    def rejection(
        self,
        called: str,
        calling: str,
        peer_address: str = "",
        already: OpenAssociations | None = None,
        certificate_names: frozenset[str] = frozenset(),
    ) -> AssociationRejection | None:
        """Return the rejection of an association, or None.

        AE Titles are compared without surrounding spaces (PS3.5 6.2, VR AE). `certificate_names`:
        those of the peer's certificate (`tls.certificate_names`).
        """
        terms = self.terms(calling)
        return (
            _stranger(peer_address, terms)
            or _wrong_called(called, terms)
            or self._wrong_calling(calling)
            or _wrong_certificate(certificate_names, terms)
            or self._one_too_many(already or OpenAssociations(), terms)
        )

    def _wrong_calling(self, calling: str) -> AssociationRejection | None:
        if self._callers is None or calling.strip() in self._callers:
            return None
        advice = (
            "This Calling AE Title is not in receive.calling_ae_titles and has no section in"
            " senders: correct it in the sender, or add it there."
        )
        return AssociationRejection(1, 1, 3, "calling_ae_title_not_recognised", advice)

    def _one_too_many(
        self, already: OpenAssociations, terms: SenderPolicy
    ) -> AssociationRejection | None:
        if (
            terms.maximum_associations is not None
            and already.of_sender >= terms.maximum_associations
        ):
            advice = (
                f"{already.of_sender} associations of this Calling AE Title were open: send several"
                f" images in one association, or raise {terms.key('maximum_associations')}."
            )
            return AssociationRejection(*LATER, "limit_of_sender_exceeded", advice)
        if self._maximum_of_address is not None and already.of_address >= self._maximum_of_address:
            advice = (
                f"{already.of_address} associations from this address were open: send several"
                " images in one association, or raise receive.maximum_associations_of_address."
            )
            return AssociationRejection(*LATER, "limit_of_address_exceeded", advice)
        if already.everybody >= self._maximum:
            advice = (
                f"{already.everybody} associations were open: send several images in one"
                " association, or raise receive.maximum_associations."
            )
            return AssociationRejection(*LATER, "local_limit_exceeded", advice)
        return None


def _stranger(peer_address: str, terms: SenderPolicy) -> AssociationRejection | None:
    """Return the rejection of an address.

    PS3.8 Table 9-21 has no diagnostic for addresses: 1, no reason given.
    """
    if terms.is_near(peer_address):
        return None
    advice = f"This address is not in {terms.key('peers')}: send from one that is, or add it there."
    return AssociationRejection(1, 1, 1, "peer_address_not_allowed", advice)


def _wrong_certificate(names: frozenset[str], terms: SenderPolicy) -> AssociationRejection | None:
    """Return the rejection of a certificate.

    PS3.8 Table 9-21 has no certificates either: this peer may not use the Calling AE Title.
    """
    if not terms.certificate_names or terms.certificate_names & names:
        return None
    advice = (
        f"Its certificate holds none of {terms.key('certificate_names')}: correct the Calling AE"
        " Title, or add a name of the certificate."
        if names
        else (
            f"It showed no certificate, and {terms.key('certificate_names')} asks for one: send to"
            " receive.tls_port."
        )
    )
    return AssociationRejection(1, 1, 3, "certificate_not_of_ae_title", advice)


def _wrong_called(called: str, terms: SenderPolicy) -> AssociationRejection | None:
    if called.strip() in terms.called_ae_titles:
        return None
    advice = (
        f"Set the Called AE Title to {' or '.join(terms.called_ae_titles)}, or add yours to"
        f" {terms.key('called_ae_titles')}."
    )
    return AssociationRejection(1, 1, 7, "called_ae_title_not_recognised", advice)


def supported(abstract_syntaxes: Iterable[str], terms: SenderPolicy) -> Mapping[str, Sequence[str]]:
    """Return the accepted SOP Classes, with their Transfer Syntaxes in order of preference."""
    return {
        abstract: syntaxes
        for abstract in abstract_syntaxes
        if (syntaxes := terms.syntaxes_of(abstract))
    }

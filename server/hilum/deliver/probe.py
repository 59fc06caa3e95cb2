"""A test of a receiver before the first study: C-ECHO and one negotiation.

The negotiation covers the SR classes and Transfer Syntaxes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

from pydicom.uid import (
    UID,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
)
from pynetdicom.sop_class import Verification

from hilum.deliver.client import Probe, ProbeAccepted
from hilum.deliver.scu.association import Contexts, Peer, ScuAssociation, Unreachable, associate
from hilum.domain import DOCUMENT_KINDS, SR, SR_CLASS_PREFERENCE, DocumentKind, SrClass
from hilum.errors import Refused, Retry
from hilum.settings import CStoreDestination

_SR_CLASSES: Final = tuple(item.sop_class_uid for item in SR_CLASS_PREFERENCE)
# Objects are sent in Explicit VR. The other syntax shows an administrator whether the class or the
# syntax is missing there.
_SYNTAXES: Final = (ExplicitVRLittleEndian, ImplicitVRLittleEndian)
_SECOND_TRY_SECONDS: Final = 0.5


def probe_receiver(
    name: str, peer: Peer, destination: CStoreDestination, ladder: Sequence[SrClass]
) -> Probe:
    """Test a receiver without sending an object. Never raises; a failure is in `detail`."""
    others = [kind.sop_class_uid for kind in _others(destination)]
    classes = list(dict.fromkeys([Verification, *_SR_CLASSES, *others]))
    try:
        association = _associate(peer, [(uid, syntax) for uid in classes for syntax in _SYNTAXES])
    except Unreachable as error:
        advice = "Nothing answers there: check host, port and firewall; results wait until it does."
        return Probe(name, str(peer), is_ok=False, detail=error.detail, advice=advice)
    except (Retry, Refused) as error:
        return Probe(name, str(peer), is_ok=False, detail=error.detail, advice=_advice(name))
    try:
        contexts = _contexts(association)
        echo = _echo(association)
    finally:
        association.release()
    sendable = {
        item.sop_class_uid
        for item in contexts
        if item.is_accepted and item.transfer_syntax_uid == ExplicitVRLittleEndian
    }
    chosen = next((item for item in ladder if item.sop_class_uid in sendable), None)
    problems = list(_problems(destination, chosen, sendable, contexts))
    taken = (
        f"reports go there as {UID(chosen.sop_class_uid).name}"
        if chosen
        else "it takes what it shall get"
    )
    return Probe(
        name,
        str(peer),
        is_ok=not problems,
        detail="; ".join(problems) or taken,
        echo=echo,
        sr_class=None if chosen is None else chosen.name,
        contexts=contexts,
        advice=_advice(name),
    )


def _advice(name: str) -> str:
    return (
        f"`hilum destinations probe {name}` shows all that it accepts; results wait or die until"
        " then."
    )


def _associate(peer: Peer, contexts: Contexts) -> ScuAssociation:
    """Return an association, after a second attempt if the first one failed.

    A receiver that rejects and closes at once can reset the connection before its rejection is
    read.
    """
    try:
        return associate(peer, contexts)
    except Unreachable:
        raise
    except Retry:
        time.sleep(_SECOND_TRY_SECONDS)
        return associate(peer, contexts)


def _contexts(association: ScuAssociation) -> tuple[ProbeAccepted, ...]:
    """Return the contexts in the order of the proposal."""
    return tuple(
        _accepted(
            UID(item.sop_class_uid), UID(item.transfer_syntax_uid), is_accepted=item.is_accepted
        )
        for item in association.contexts
    )


def _accepted(sop_class_uid: UID, syntax: UID, *, is_accepted: bool) -> ProbeAccepted:
    return ProbeAccepted(
        sop_class_uid.name, str(sop_class_uid), syntax.name, str(syntax), is_accepted
    )


def _echo(association: ScuAssociation) -> str:
    """Return the result of C-ECHO (PS3.4 Annex A); reports do not depend on it."""
    if association.context(Verification) is None:
        return "not accepted"
    status = association.echo()
    if status is None:
        return "no answer"
    return "success" if status == 0x0000 else f"0x{status:04X}"


def _problems(
    destination: CStoreDestination,
    chosen: SrClass | None,
    sendable: set[str],
    contexts: tuple[ProbeAccepted, ...],
) -> Iterator[str]:
    """Return remedies for a destination that responds, but does not take all of its documents."""
    if SR.key in destination.documents and chosen is None:
        yield _no_report(
            destination.calling_ae_title, [uid for uid in _SR_CLASSES if uid in sendable], contexts
        )
    for kind in _others(destination):
        if kind.sop_class_uid not in sendable:
            yield (
                f"it accepts no {kind.label[:1].lower()}{kind.label[1:]}; enable"
                f" {UID(kind.sop_class_uid).name} for our AE Title"
                f" {destination.calling_ae_title} there"
            )


def _others(destination: CStoreDestination) -> list[DocumentKind]:
    """Return its kinds of document beside the report that has a ladder of classes."""
    kinds = [DOCUMENT_KINDS[key] for key in destination.documents]
    return [kind for kind in kinds if kind is not SR]


def _no_report(ours: str, left_out: list[str], contexts: tuple[ProbeAccepted, ...]) -> str:
    if left_out:
        return (
            f"it accepts {', '.join(UID(uid).name for uid in left_out)}, which sr_classes leaves"
            " out; add it to the settings"
        )
    if any(item.is_accepted and item.sop_class_uid in _SR_CLASSES for item in contexts):
        return (
            f"it accepts reports in {ImplicitVRLittleEndian.name} only; enable"
            f" {ExplicitVRLittleEndian.name} for {ours} there"
        )
    return (
        "it accepts no structured report; enable Comprehensive 3D SR Storage for our AE Title"
        f" {ours} there"
    )

"""Whether a destination can be asked for storage commitment, and can report it to us."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pydicom.uid import ImplicitVRLittleEndian

from hilum.deliver.cstore import commitment_peer
from hilum.deliver.scu.association import associate
from hilum.dicom.storage_commitment import STORAGE_COMMITMENT
from hilum.errors import Refused, Retry
from hilum.settings import CStoreDestination, DicomDestination, Settings
from hilum.supervisor.checks.check import Check

_ANSWER_SECONDS: Final = 10.0  # for each message: a person waits


def commitment(name: str, destination: CStoreDestination, settings: Settings) -> Iterator[Check]:
    """Check that it takes requests, and that our listener would take its reports."""
    title = f"destination {name} commitment"
    if isinstance(destination, DicomDestination):
        yield _asked(title, name, destination)
    for check in _reporting(title, destination, settings):
        if not check.ok:
            yield check


def _asked(title: str, name: str, destination: DicomDestination) -> Check:
    peer = commitment_peer(destination)
    seconds = min(peer.timeout_seconds, _ANSWER_SECONDS)
    contexts = [(STORAGE_COMMITMENT, ImplicitVRLittleEndian)]
    try:
        associate(replace(peer, timeout_seconds=seconds), contexts).release()
    except (Retry, Refused) as error:
        advice = (
            f"Enable Storage Commitment for our AE Title {peer.calling_ae_title} there, or set"
            f" destinations.{name}.commitment = false. Its documents wait until then."
        )
        return Check(title, ok=False, detail=error.detail, advice=advice)
    return Check(title, ok=True, detail=f"{peer} takes requests for storage commitment")


def _reporting(title: str, destination: CStoreDestination, settings: Settings) -> Iterator[Check]:
    receive = settings.receive
    ours = destination.calling_ae_title.strip()
    yield Check(
        title,
        ours in {item.strip() for item in receive.ae_titles},
        f"it reports to the AE Title {ours}, which receive.ae_titles does not have",
        "Its reports would be rejected: add it there.",
    )
    callers = {item.strip() for item in (*receive.calling_ae_titles, *settings.senders)}
    unknown = sorted(destination.commitment_scps - callers) if receive.calling_ae_titles else []
    yield Check(
        title,
        not unknown,
        f"receive.calling_ae_titles does not have {', '.join(unknown)}",
        "Its reports would be rejected, unless they come on our association: add it there.",
    )

"""Why a peer rejects an association, in words and with the remedy (PS3.8 Table 9-21)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# (source, reason) of an A-ASSOCIATE-RJ.
_TEXTS: Final[Mapping[tuple[int, int], str]] = {
    (1, 2): "it does not know the Application Context; is this a DICOM port?",
    (1, 3): "it does not know our AE Title {calling}; register {calling} there",
    (1, 7): "it does not answer to the AE Title {called}; correct the AE Title of this {role}",
    (2, 2): "it speaks another protocol version",
    (3, 1): "it is overloaded for the moment",
    (3, 2): "it has no association free; raise its limit for our AE Title",
}
_PASSING: Final = 3  # source: service provider, presentation related


def rejection_text(
    source: int, reason: int, *, calling: str, called: str, role: str = "destination"
) -> str:
    """Return the meaning of a rejection and the remedy. `role`: of the peer, in our settings."""
    text = _TEXTS.get((source, reason), "it gave no reason that helps; see its log")
    return text.format(calling=calling, called=called, role=role)


def is_passing(source: int) -> bool:
    """Whether a later attempt may succeed without a change at either side."""
    return source == _PASSING

"""Presentation contexts of a query and retrieve SCU (PS3.4 C.5, PS3.7 D.3.3.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pynetdicom import build_context, build_role

from hilum.domain import IMAGE_SOP_CLASSES, TRANSFER_SYNTAXES

# Study Root Query/Retrieve Information Model (PS3.4 C.6.2.3).
STUDY_ROOT_FIND: Final = "1.2.840.10008.5.1.4.1.2.2.1"
STUDY_ROOT_MOVE: Final = "1.2.840.10008.5.1.4.1.2.2.2"
STUDY_ROOT_GET: Final = "1.2.840.10008.5.1.4.1.2.2.3"
# Modality Worklist Information Model (PS3.4 K.6.1.4).
MODALITY_WORKLIST_FIND: Final = "1.2.840.10008.5.1.4.31"
VERIFICATION: Final = "1.2.840.10008.1.1"
SERVICE_NAMES: Final[Mapping[str, str]] = {
    STUDY_ROOT_FIND: "C-FIND (Study Root)",
    STUDY_ROOT_MOVE: "C-MOVE (Study Root)",
    STUDY_ROOT_GET: "C-GET (Study Root)",
    MODALITY_WORKLIST_FIND: "C-FIND (Modality Worklist)",
    VERIFICATION: "C-ECHO",
}
_IDENTIFIER_SYNTAXES: Final = ("1.2.840.10008.1.2.1", "1.2.840.10008.1.2")


@dataclass(frozen=True, slots=True)
class Proposal:
    """Proposed contexts, and the roles that differ from the usual ones; at most 128 contexts."""

    contexts: Sequence[Any]
    roles: Sequence[Any] = ()


def services(*models: str) -> Proposal:
    """Return the proposal of these services, without storage."""
    return Proposal([build_context(model, list(_IDENTIFIER_SYNTAXES)) for model in models])


def get_services(*models: str) -> Proposal:
    """Return the proposal of these services with storage by C-GET.

    Each Transfer Syntax has a context of its own, so that a compressed image comes as it is. We
    are the SCP of each storage class.
    """
    classes = IMAGE_SOP_CLASSES.values()
    storage = [
        build_context(sop_class, syntax)
        for sop_class in classes
        for syntax in TRANSFER_SYNTAXES.values()
    ]
    roles = [build_role(sop_class, scu_role=False, scp_role=True) for sop_class in classes]
    return Proposal([*services(*models).contexts, *storage], roles)

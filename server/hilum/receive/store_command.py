"""A C-STORE-RQ, and whether its parts speak of one object."""

from __future__ import annotations

from dataclasses import dataclass

from hilum import tracing
from hilum.receive.file_meta import FileMeta
from hilum.receive.header import Header, is_uid
from hilum.receive.refusals import DataSetDoesNotMatch, SopClassNotNegotiated


@dataclass(frozen=True, slots=True)
class StoreCommand:
    """A C-STORE-RQ without its data set: what the command said, and the SOP Class of its Presentation Context.

    `association`: on which it came, where that is traced.
    """

    meta: FileMeta
    context_sop_class_uid: str
    association: tracing.Association | None = None

    def require_consistent(self) -> None:
        """The command and its Presentation Context must speak of one SOP Class. Raises Refusal."""
        if self.meta.sop_class_uid != self.context_sop_class_uid:
            raise SopClassNotNegotiated("The command names another SOP Class than its context")
        if not is_uid(self.meta.sop_instance_uid):
            raise DataSetDoesNotMatch("Affected SOP Instance UID (0000,1000) is not a valid UID")

    def require_match(self, header: Header) -> None:
        """The command and the data set must speak of one object (PS3.4 B.2.3, A9xx). Raises DataSetDoesNotMatch."""
        if header.sop_class_uid != self.meta.sop_class_uid:
            raise DataSetDoesNotMatch("SOP Class UID (0008,0016) differs from the command's")
        if header.sop_instance_uid != self.meta.sop_instance_uid:
            raise DataSetDoesNotMatch("SOP Instance UID (0008,0018) differs from the command's")


@dataclass(frozen=True, slots=True)
class StoreRequest:
    """A C-STORE-RQ with its data set as received."""

    meta: FileMeta
    context_sop_class_uid: str
    data_set: memoryview
    association: tracing.Association | None = None

    @property
    def command(self) -> StoreCommand:
        """Without the data set."""
        return StoreCommand(self.meta, self.context_sop_class_uid, self.association)

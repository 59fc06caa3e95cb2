"""A C-STORE-RQ, or the file in place of one, and whether its parts are about one object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from hilum.dicom.uid import problem_of_uid
from hilum.observability import tracing
from hilum.receive.headers.file_meta import FileMeta
from hilum.receive.headers.header import Header
from hilum.receive.statuses import DataSetDoesNotMatch, SopClassNotNegotiated


@dataclass(frozen=True, slots=True)
class StoreCommand:
    """A C-STORE-RQ without its data set, and the SOP Class of its Presentation Context.

    `association`: the one on which it came, where that is traced. For a file the File Meta
    Information takes the place of the command (PS3.10 7.1), and a refusal refers to it.
    """

    meta: FileMeta
    context_sop_class_uid: str
    association: tracing.AssociationSpan | None = None
    is_file: bool = False

    @classmethod
    def of_file(cls, meta: FileMeta, association: tracing.AssociationSpan | None = None) -> Self:
        """Return the command for a file, as if it had come by C-STORE."""
        return cls(meta, meta.sop_class_uid, association, is_file=True)

    def require_consistent(self) -> None:
        """Raise Refusal unless the command and its Presentation Context have one SOP Class."""
        if self.meta.sop_class_uid != self.context_sop_class_uid:
            raise SopClassNotNegotiated("The command names another SOP Class than its context")
        if problem := problem_of_uid(self.meta.sop_instance_uid):
            name = (
                "Media Storage SOP Instance UID (0002,0003)"
                if self.is_file
                else "Affected SOP Instance UID (0000,1000)"
            )
            raise DataSetDoesNotMatch(f"{name} {problem}")

    def require_match(self, header: Header) -> None:
        """Raise Refusal unless the command and the data set are about one object, by UIDs.

        See PS3.4 B.2.3, A9xx.
        """
        header.require_uids()
        if header.sop_class_uid != self.meta.sop_class_uid:
            raise self._mismatch("SOP Class UID (0008,0016)", "(0002,0002)")
        if header.sop_instance_uid != self.meta.sop_instance_uid:
            raise self._mismatch("SOP Instance UID (0008,0018)", "(0002,0003)")

    def _mismatch(self, name: str, in_file: str) -> DataSetDoesNotMatch:
        if not self.is_file:
            return DataSetDoesNotMatch(f"{name} differs from the command's")
        comment = f"{name} differs from the file's {in_file}"
        return DataSetDoesNotMatch(comment, f"{comment}; correct the file, both must say the same")

"""The images that a document is about, their headers read once for all documents of a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from pydicom.dataset import Dataset
from pydicom.multival import MultiValue

from hilum.domain import SR, Document, ImageReason, Instance, Outcome, ReportJob, ServerReason
from hilum.errors import NotAnalysed
from hilum.report.headers.header import Said, read_descriptors, read_header
from hilum.report.template.extract import Extract, extract, further_extract

Read = TypeVar("Read", bound=Said)


class _Sources(Generic[Read]):
    """Headers of a job's images, read by these two.

    That of the image that gives patient and study, that of a further one.
    """

    def __init__(
        self, job: ReportJob, first: Callable[[Instance], Read], further: Callable[[Instance], Read]
    ) -> None:
        self._job = job
        self._first = first
        self._further = further
        self._whose: tuple[Instance, Read] | None = None

    def whose(self) -> Read:
        """Return the header of the image that gives every document its patient and study.

        It is the first image that names a patient, or else the first. In a study that was not
        analysed, a rejected image gives them where no other can. Raises the exceptions of
        `reported`.
        """
        return self._of_whom()[1]

    def reported(self) -> list[Read]:
        """Those of the used images, in the order of the result.

        Of a study that was not analysed all that can be read.

        The first is `whose`. Raises NotAnalysed: corrupt_header when the header of a used image, or
        of every image, cannot be read, instance_missing when it is gone.
        """
        first, header = self._of_whom()
        others = [
            instance
            for instance in self._images()
            if instance.sop_instance_uid != first.sop_instance_uid
        ]
        read = [self._read_by(self._further, instance) for instance in others]
        return [header, *(item for item in read if item is not None)]

    def _of_whom(self) -> tuple[Instance, Read]:
        if self._whose is None:
            self._whose = self._chosen()
        return self._whose

    def _chosen(self) -> tuple[Instance, Read]:
        first: tuple[Instance, Read] | None = None
        for instance in sorted(self._images(), key=self._is_out):
            header = self._read_by(self._first, instance)
            if header is not None and str(header.get("PatientID")).strip():
                return instance, header
            first = (instance, header) if first is None and header is not None else first
        if first is None:
            raise NotAnalysed(
                ImageReason.CORRUPT_HEADER, "no image of the study has a header that can be read"
            )
        return first

    @property
    def _is_analysed(self) -> bool:
        return self._job.result.outcome is not Outcome.NOT_ANALYSED

    def _is_out(self, instance: Instance) -> bool:
        """A used image may have been rejected since; this result does not know it."""
        return not self._is_analysed and instance.removal_reason is not None

    def _images(self) -> Sequence[Instance]:
        """Images that a number rests on; of a study that was not analysed all."""
        if not self._is_analysed:
            return self._job.instances
        stored = {instance.sop_instance_uid: instance for instance in self._job.instances}
        uids = [image.sop_instance_uid for image in self._job.result.source_images if image.is_used]
        if missing := [uid for uid in uids if uid not in stored]:
            raise NotAnalysed(
                ServerReason.INSTANCE_MISSING,
                f"{len(missing)} of {len(uids)} source images have left the ledger",
            )
        return [stored[uid] for uid in uids]

    def _read_by(self, read: Callable[[Instance], Read], instance: Instance) -> Read | None:
        """Return the header; None: it cannot be read, in a study that was not analysed.

        The reason is in the result.
        """
        try:
            return read(instance)
        except NotAnalysed:
            if self._is_analysed:
                raise
            return None


class Headers(_Sources[Dataset]):
    """For the reference builder and heat maps."""

    def __init__(self, job: ReportJob) -> None:
        super().__init__(job, read_header, read_descriptors)


class Extracts(_Sources[Extract]):
    """For templates and JSON."""

    def __init__(self, job: ReportJob) -> None:
        super().__init__(job, extract, further_extract)


def value_text(value: Any) -> str | None:  # noqa: ANN401 - any type of pydicom's
    """Return None for absent and empty; the backslash joins several values, as in DICOM."""
    if value in (None, ""):
        return None
    return (
        "\\".join(map(str, value)) if isinstance(value, MultiValue | list | tuple) else str(value)
    )


def replaced(job: ReportJob) -> Sequence[Document]:
    """Return the replaced documents: the newest one that was sent to each destination.

    Without any, it is the predecessor of the job, of any SOP Class.
    """
    shown = [job.predecessors[SR.key]] if SR.key in job.predecessors else []
    return (
        list(
            {
                document.sop_instance_uid: document for document in job.delivered_reports.values()
            }.values()
        )
        or shown
    )

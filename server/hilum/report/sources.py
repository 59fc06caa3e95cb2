"""The images that a document is about, their headers read once for all documents of a result."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from pydicom.dataset import Dataset

from hilum.domain import Document, Instance, Outcome, Reason, ReportJob
from hilum.errors import NotAnalysed
from hilum.report.header import read_descriptors, read_header


class Headers:
    """Headers of a job's images."""

    def __init__(self, job: ReportJob) -> None:
        self._job = job
        self._read: dict[str, Dataset] = {}

    def of(self, instance: Instance) -> Dataset:
        """The whole of it. Raises NotAnalysed."""
        uid = instance.sop_instance_uid
        if uid not in self._read:
            self._read[uid] = read_header(instance)
        return self._read[uid]

    def reported(self) -> list[Dataset]:
        """Those of the used images, in the order of the result; of a study that was not analysed all that can be read.

        The first gives patient and study. Raises NotAnalysed: corrupt_header when the header of a used image, or of every image, cannot
        be read, instance_missing when it is gone.
        """
        if self._job.result.outcome is Outcome.NOT_ANALYSED:
            return self._readable()
        first, *others = self._used()
        return [self.of(first), *(read_descriptors(instance) for instance in others)]

    def _used(self) -> list[Instance]:
        """Images that a number rests on."""
        stored = {instance.sop_instance_uid: instance for instance in self._job.instances}
        uids = [image.sop_instance_uid for image in self._job.result.source_images if image.is_used]
        if missing := [uid for uid in uids if uid not in stored]:
            raise NotAnalysed(Reason.INSTANCE_MISSING, f"{len(missing)} of {len(uids)} source images have left the ledger")
        return [stored[uid] for uid in uids]

    def _readable(self) -> list[Dataset]:
        headers: list[Dataset] = []
        for instance in self._job.instances:
            with contextlib.suppress(NotAnalysed):  # its reason stands in the result
                headers.append(read_descriptors(instance) if headers else self.of(instance))
        if not headers:
            raise NotAnalysed(Reason.CORRUPT_HEADER, "no image of the study has a header that can be read")
        return headers


def replaced(job: ReportJob) -> Sequence[Document]:
    """What the report replaces: wherever an earlier one was really sent, the newest of them, of whatever SOP Class."""
    shown = [job.predecessors["sr"]] if "sr" in job.predecessors else []
    return list({document.sop_instance_uid: document for document in job.held.values()}.values()) or shown

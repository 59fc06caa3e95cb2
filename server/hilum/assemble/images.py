"""The images of a study for one release, and whether they are of one patient.

Pure: values of headers are the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import combinations

from hilum.domain import (
    Identity,
    Instance,
    Reading,
    ReadingState,
    ServerReason,
    StudyJob,
    is_out_of_scope,
)

Identify = Callable[[Instance], Identity]
"""Reads a header."""


@dataclass(frozen=True, slots=True)
class Image:
    """One image of the study, and its reading by one release.

    No reading: the release was not configured when it arrived. `is_contested`: the images that have
    numbers name more than one patient, so that none of them counts.
    """

    instance: Instance
    reading: Reading | None
    is_contested: bool = False

    @property
    def is_rejected(self) -> bool:
        """Whether a rejection note or a person has taken it out.

        Then its reading counts for nothing.
        """
        return self.instance.removal_reason is not None

    @property
    def is_out_of_scope(self) -> bool:
        """Whether the release does not claim to read such an image, rejected or not."""
        return self.reading is not None and is_out_of_scope(self.reading.reason)

    @property
    def logits(self) -> tuple[float, ...] | None:
        """The reading that counts; None when there is none."""
        is_analysed = (
            self.reading is not None
            and self.reading.state is ReadingState.ANALYSED
            and not self.is_rejected
        )
        return (
            self.reading.logits
            if self.reading is not None and is_analysed and not self.is_contested
            else None
        )

    @property
    def flags(self) -> tuple[str, ...]:
        """The doubts of its reading; a rejected image has none."""
        return () if self.reading is None or self.is_rejected else self.reading.flags

    @property
    def reason(self) -> str | None:
        """Why there is no number; None when there is one."""
        if self.logits is not None:
            return None
        if self.is_rejected:
            return ServerReason.REJECTED.value
        if self.is_contested:
            return ServerReason.PATIENT_CONFLICT.value
        if self.reading is None:
            return ServerReason.RELEASE_NOT_AVAILABLE.value
        return self.reading.reason or ServerReason.ATTEMPTS_EXHAUSTED.value


def images_of(job: StudyJob, name: str) -> list[Image]:
    """Return all images in the order of arrival, so that equal rows give equal documents."""
    readings = {reading.instance_id: reading for reading in job.readings if reading.release == name}
    ordered = sorted(job.instances, key=lambda item: (item.id, item.sop_instance_uid))
    return [Image(item, readings.get(item.id)) for item in ordered]


def of_one_patient(images: list[Image], identify: Identify) -> tuple[list[Image], bool]:
    """Return the images, and whether they name several orders.

    Images are contested where those with numbers name more than one patient. Which of them belongs
    to another patient is unknown here.
    """
    used = [image.instance for image in images if image.logits is not None]
    said = [identify(instance) for instance in used] if len(used) > 1 else []
    if _name_one_patient(said):
        return images, not _name_one_order(said)
    return [
        replace(image, is_contested=True) if image.logits is not None else image for image in images
    ], False


def _name_one_patient(said: Iterable[Identity]) -> bool:
    """Return whether no two images name different patients. Without a Patient ID none is named.

    One Patient ID of two issuers stands for two patients; an image that does not name the issuer
    may be either's.
    """
    named = {(item.patient_id, item.issuer) for item in said if item.patient_id}
    return not any(_are_two(*pair) for pair in combinations(named, 2))


def _are_two(one: tuple[str, str], other: tuple[str, str]) -> bool:
    (patient_id, issuer) = one
    (other_id, other_issuer) = other
    return patient_id != other_id or (
        bool(issuer) and bool(other_issuer) and issuer != other_issuer
    )


def _name_one_order(said: Iterable[Identity]) -> bool:
    """Whether no two of them have different Accession Numbers.

    An image without one may belong to any order.
    """
    return len({item.accession_number for item in said if item.accession_number}) <= 1

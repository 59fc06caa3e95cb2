"""Stored images, their readings and their rejections."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hilum.domain.reasons import ImageReason, RemovalReason
from hilum.domain.states import ReadingState


@dataclass(frozen=True, slots=True)
class Instance:
    """A stored SOP Instance.

    `header` is the data set up to Pixel Data, in the byte order and VR encoding of
    `transfer_syntax_uid` (deflated data sets: explicit little endian). `path` is relative to the
    archive. `digest` covers the data set,
    `pixel_digest` Pixel Data alone.
    `removal_reason`: it was rejected and takes no part in results.
    `pixels_removed_at`: since when there is no file any more; the row goes on speaking for the
    image.
    """

    sop_instance_uid: str
    sop_class_uid: str
    study_instance_uid: str
    series_instance_uid: str
    transfer_syntax_uid: str
    path: str
    size_bytes: int
    digest: str
    pixel_digest: str
    received_at: float
    calling_ae_title: str
    called_ae_title: str
    header: bytes = b""
    header_revision: int = 1
    pixels_removed_at: float | None = None
    id: int = 0
    peer_address: str = ""
    removal_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose image it is, and of which order, as its header says.

    Empty: it does not say, or cannot be read.
    """

    patient_id: str = ""
    issuer: str = ""
    accession_number: str = ""


@dataclass(frozen=True, slots=True)
class Identifiers:
    """A hospital's identifiers of a study, from a header; empty: not in the header.

    `issuer`: Issuer of Patient ID (0010,0021). `study_date`: `2026-11-20`, or the text of the
    header where that is no date.
    """

    patient_id: str = ""
    issuer: str = ""
    accession_number: str = ""
    study_date: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """One release's output for one image, or the reason why there is none.

    `detail` of an analysed image names its flags, and so does that of one that was refused for
    them (implausible_pixels).
    """

    id: int
    instance_id: int
    sop_instance_uid: str
    release: str
    state: ReadingState
    reason: str | None = None
    detail: str | None = None
    logits: tuple[float, ...] | None = None
    view: str | None = None
    preprocessing_version: str | None = None
    timings: Mapping[str, float] = field(default_factory=dict)
    member_logits: tuple[tuple[float, ...], ...] | None = None
    campaign_id: int | None = None

    @property
    def flags(self) -> tuple[str, ...]:
        """See `flags_of`."""
        return flags_of(self.state, self.reason, self.detail)


_FLAG: Final = re.compile("[a-z][a-z0-9_]*")


def flags_of(state: str, reason: str | None, detail: str | None) -> tuple[str, ...]:
    """Doubts about the image of a reading: values of `hilum_preprocessing.Flag`.

    A row of another version may hold values that this one does not know.
    """
    has_flags = state == ReadingState.ANALYSED or reason == ImageReason.IMPLAUSIBLE_PIXELS
    named = tuple((detail or "").split(", ")) if has_flags else ()
    return named if all(_FLAG.fullmatch(name) for name in named) else ()


@dataclass(frozen=True, slots=True)
class ActivationMaps:
    """The output of an analysed reading.

    (L,) logits and the bytes of (L, h, w) float16, each map's mean and the bias being its logit.
    """

    logits: tuple[float, ...]
    cam: bytes


@dataclass(frozen=True, slots=True)
class Rejection:
    """An image that shall take no part in results.

    `note_uid` None: a person said so, not a rejection note: `rejected_by`. `holds_for_all`: it
    holds for an image of any sender; else only for one that `calling_ae_title` has sent.
    """

    sop_instance_uid: str
    study_instance_uid: str
    reason: RemovalReason
    note_uid: str | None = None
    calling_ae_title: str = ""
    holds_for_all: bool = False
    rejected_by: str = ""

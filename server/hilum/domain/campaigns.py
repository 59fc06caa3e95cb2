"""Campaigns: a release reads a fixed set of old studies, from a PACS or from files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class CampaignState(StrEnum):
    """The state of one campaign.

    PLANNING: its list is being made, or was interrupted; the same plan goes on with it. PLANNED:
    the list is fixed and nothing was requested. RUNNING, PAUSED. FINISHED: each series has ended.
    CANCELLED: nothing more is requested; received images are read.
    """

    PLANNING = "planning"
    PLANNED = "planned"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    CANCELLED = "cancelled"


class SeriesState(StrEnum):
    """State of one series of a campaign.

    FOUND: planned. REQUESTED: its images were listed and asked for. RECEIVED: each listed image is
    in the archive. READ: each has ended at the release. NOTHING_TO_READ: the source lists no image.
    DEAD: not all images could be fetched, for a `SeriesReason`; `retry` makes it FOUND.
    """

    FOUND = "found"
    REQUESTED = "requested"
    RECEIVED = "received"
    READ = "read"
    NOTHING_TO_READ = "nothing_to_read"
    DEAD = "dead"


ENDED_SERIES = (SeriesState.READ, SeriesState.NOTHING_TO_READ, SeriesState.DEAD)


class CampaignImageState(StrEnum):
    """State of one image of a campaign.

    EXPECTED: listed. RECEIVED: in the archive. READ: its reading has ended, with numbers or with a
    reason, and its pixels are kept for the campaign alone. RELEASED: read, and no pixels are kept
    for the campaign. MISSING: it did not come, for a `SeriesReason`.
    """

    EXPECTED = "expected"
    RECEIVED = "received"
    READ = "read"
    RELEASED = "released"
    MISSING = "missing"


class SeriesReason(StrEnum):
    """Why a series is dead, or an image of it was not read. A closed list; the value is stored."""

    NOT_RECEIVED = "not_received"
    NOT_FOUND = "not_found"
    OFFLINE = "offline"
    REFUSED_BY_SOURCE = "refused_by_source"
    TIMED_OUT = "timed_out"
    REFUSED_BY_HILUM = "refused_by_hilum"
    CONFLICT = "conflict"
    UNREADABLE_FILE = "unreadable_file"
    NOT_AN_IMAGE = "not_an_image"
    ERASED = "erased"


SERIES_REASONS: Mapping[SeriesReason, str] = {
    SeriesReason.NOT_RECEIVED: "The source claimed success, and images did not come.",
    SeriesReason.NOT_FOUND: "The source does not have it any more.",
    SeriesReason.OFFLINE: "It lies on a medium that the source cannot reach by itself.",
    SeriesReason.REFUSED_BY_SOURCE: "The source refused the request.",
    SeriesReason.TIMED_OUT: "The source did not end the request in its time.",
    SeriesReason.REFUSED_BY_HILUM: "Hilum refused an object of it.",
    SeriesReason.CONFLICT: "Other pixels under its UID wait for a person.",
    SeriesReason.UNREADABLE_FILE: "A file of it cannot be read.",
    SeriesReason.NOT_AN_IMAGE: "A file of it is no image.",
    SeriesReason.ERASED: "It was erased.",
}
"""A sentence for each reason."""


class RowOutcome(StrEnum):
    """The outcome of one row of a list of studies."""

    FOUND = "found"
    NONE = "none"
    AMBIGUOUS = "ambiguous"
    REFUSED = "refused"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class PlannedSeries:
    """One series to read.

    `day`: its Study Date, YYYYMMDD; empty: unknown. `images`: as the source counts them; None: it
    does not say. `origin`: the rows of the list that name the study, or the folder of files.
    """

    study_instance_uid: str
    series_instance_uid: str
    day: str = ""
    modality: str = ""
    images: int | None = None
    origin: str = ""


@dataclass(frozen=True, slots=True)
class ExpectedImage:
    """One image to fetch.

    `origin`: its path, URL or row in the source, for a researcher's own list; empty: a PACS.
    `availability`: Instance Availability (0008,0056), where the source says it.
    """

    sop_instance_uid: str
    sop_class_uid: str = ""
    origin: str = ""
    availability: str = ""


@dataclass(frozen=True, slots=True)
class PlanDoubt:
    """A reason why a plan may be incomplete, for people. `day`: YYYYMMDD, or empty: all of it."""

    text: str
    day: str = ""


@dataclass(frozen=True, slots=True)
class ListRow:
    """The outcome of one row of a list.

    `number`: as a spreadsheet counts, the header is row 1. `detail` holds no identifier.
    """

    number: int
    outcome: RowOutcome
    detail: str = ""
    study_instance_uids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CampaignOptions:
    """How a campaign runs.

    `delivers`: whether its documents go to the destinations. `hours`: a timetable instead of the
    source's (`retrieve.pace.timetable`); None: that of the source.
    """

    delivers: bool = False
    hours: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Campaign:
    """One row of campaigns.

    `source`: name of a section of `sources`, or one of FILES, PICTURES, ARCHIVE. `request`: the
    parameters of the plan, as JSON.
    """

    id: int
    name: str
    source: str
    state: CampaignState
    request: Mapping[str, Any]
    created_at: float
    changed_at: float
    release: str | None = None
    options: CampaignOptions = CampaignOptions()
    doubts: tuple[PlanDoubt, ...] = ()
    detail: str = ""
    plan_cursor: str = ""
    started_at: float | None = None
    finished_at: float | None = None


# The Called AE Title of images that a campaign fetches by itself, not by our listener.
CAMPAIGN_AE_TITLE = "HILUM_CAMPAIGN"

# Sources without a section in the settings: DICOM files, a list of PNG and JPEG files, and what the
# archive holds.
FILES = "files"
PICTURES = "pictures"
ARCHIVE = "archive"


@dataclass(frozen=True, slots=True)
class CampaignCounts:
    """How far a campaign is. `series` by state; `images` by state of the readings.

    `bytes_kept`: of its images whose pixels are in the archive.
    """

    studies: int = 0
    series: Mapping[SeriesState, int] = field(default_factory=dict)
    images_expected: int = 0
    images_received: int = 0
    images_analysed: int = 0
    images_not_analysed: int = 0
    bytes_kept: int = 0

    @property
    def all_series(self) -> int:
        """How many series it has."""
        return sum(self.series.values())

    @property
    def ended_series(self) -> int:
        """How many of them have ended."""
        return sum(self.series.get(state, 0) for state in ENDED_SERIES)

"""Settings of sources: a PACS, or a DICOMweb server, from which old studies are fetched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field

from hilum.settings.fields import AeTitle, Host, Port, Section
from hilum.settings.hours import Hours
from hilum.settings.peers.dimse import DimsePeer
from hilum.settings.peers.http import HttpPeer
from hilum.settings.tables import ByKind


def _time_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            f"there is no time zone {value!r}; give a name such as Europe/Berlin or UTC"
        ) from error
    return value


TimeZone = Annotated[str, AfterValidator(_time_zone)]


class SourceSection(Section):
    """A source of old studies, `[sources.<name>]`: the part that all kinds have."""

    kind: str
    time_zone: TimeZone = Field(
        "UTC", description="Time zone of `hours` and of the days of a plan, such as Europe/Berlin."
    )
    hours: tuple[Hours, ...] = Field(
        (),
        description=(
            "When images may be requested, such as `mon-fri 20:00-06:00` and `sat,sun"
            " 00:00-24:00`; empty: at any time. A window may run over midnight."
        ),
    )
    utilisation: float = Field(
        1.0,
        gt=0,
        le=1,
        description=(
            "Share of the time in which a request runs: 0.1 is one second of transfer and then"
            " nine of rest."
        ),
    )
    images_per_second: float = Field(
        0.0, ge=0, description="At most so many images a second, over a minute; 0: no limit."
    )
    daily_images: int = Field(
        0, ge=0, description="At most so many images a day of `time_zone`; 0: no limit."
    )
    slow_down_factor: float = Field(
        2.0,
        ge=0,
        description=(
            "Rest for a while when a request takes so many times longer for each image than the"
            " first 20 did; 0: never."
        ),
    )
    maximum_results: int = Field(
        500,
        ge=2,
        le=50_000,
        description=(
            "Answers of one query that are taken for complete; a query with more is split by date"
            " and time."
        ),
    )
    ignores: tuple[str, ...] = Field(
        (),
        description=(
            "Keywords of keys that it is known to ignore, such as ModalitiesInStudy; they are not"
            " sent, and Hilum filters."
        ),
    )
    quiet_seconds: float = Field(
        30.0,
        ge=0,
        le=3600,
        description="Images that were promised are missing when none came for this long.",
    )
    timeout_seconds: float = Field(30.0, gt=0, description="Limit for each message.")
    request_seconds: float = Field(
        600.0,
        gt=0,
        description="Limit for a request for images, plus five seconds an image; then it is ended.",
    )

    @property
    def address(self) -> str:
        """Where it is, for people."""
        raise NotImplementedError


class DimseSource(DimsePeer, SourceSection):
    """A PACS that is queried by C-FIND."""

    host: Host = Field(description="Host of the PACS.")
    port: Port = Field(description="Its port for C-FIND and C-MOVE or C-GET.")
    image_lists: bool = Field(
        default=True,
        description=(
            "Ask for missing images by lists of SOP Instance UIDs; false: one image at a time."
        ),
    )


class CMoveSource(DimseSource):
    """C-FIND and C-MOVE: images come to our own listener."""

    kind: Literal["c-move"] = Field(
        "c-move",
        description=(
            "c-move: images come to our listener; c-get: over the same association; dicomweb:"
            " QIDO-RS and WADO-RS."
        ),
    )
    move_ae_title: AeTitle = Field(
        "HILUM_ARC",
        description=(
            "Move Destination: an AE Title of ours, in receive.ae_titles, that nothing else sends"
            " to. The PACS must have it registered with our host and port."
        ),
    )


class CGetSource(DimseSource):
    """C-FIND and C-GET: images come over the same association."""

    kind: Literal["c-get"] = "c-get"


class DicomwebSource(HttpPeer, SourceSection):
    """QIDO-RS and WADO-RS."""

    kind: Literal["dicomweb"] = "dicomweb"
    url: str = Field(
        pattern=r"^https?://[^\s@?#]+$",
        description="Root of the service, such as https://pacs.example.org/dicom-web.",
    )

    @property
    def address(self) -> str:
        """The URL."""
        return self.url


class CampaignLimits(Section):
    """Limits of campaigns, so that live images never wait for one: `[campaigns]`."""

    maximum_unread_images: int = Field(
        32,
        ge=1,
        le=100_000,
        description=(
            "Images of a campaign that are requested or received, and not read; no further series"
            " is requested at this number. An analyser holds 48 images at most: a smaller number"
            " leaves it places for live ones."
        ),
    )
    maximum_bytes: int = Field(
        4 << 30,
        ge=1 << 20,
        description="Bytes of a campaign's images in the archive, beyond which it waits.",
    )
    live_wait_seconds: float = Field(
        5.0,
        ge=0,
        description=(
            "A campaign requests nothing while a live image has waited so long for the analyser;"
            " 0: it never waits."
        ),
    )


SOURCE_KINDS: Final[Mapping[str, type[SourceSection]]] = {
    "c-move": CMoveSource,
    "c-get": CGetSource,
    "dicomweb": DicomwebSource,
}
AnySource = Annotated[SourceSection, ByKind(SOURCE_KINDS)]

"""Settings of studies: quiet period, retention, and differences by sender, route and folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from hilum.settings.fields import (
    AeTitle,
    CertificateName,
    Network,
    OptionalAeTitle,
    OtherObjects,
    PriorityName,
    Section,
    SopClass,
    TransferSyntax,
)


class Studies(Section):
    """When a study is complete."""

    quiet_seconds: float = Field(
        10.0, ge=0, le=86400, description="No new image for this long closes a study."
    )
    maximum_wait_seconds: float = Field(
        120.0,
        ge=0,
        description=(
            "A study that keeps growing closes this long after its first image; later images"
            " revise it."
        ),
    )


class Retention(Section):
    """Deletion of pixels from the archive, and of rows from the ledger.

    Rows of studies and documents stay, unless `row_months` says otherwise. Images that are not
    delivered or not read yet always stay.
    """

    days: float = Field(
        0.0,
        ge=0,
        description="Days after the last delivery of a study until its pixels leave; 0: they stay.",
    )
    reanalysis_days: float = Field(
        0.0, ge=0, description="The same for studies of the priority reanalysis."
    )
    pressure_free_bytes: int = Field(
        0,
        ge=0,
        description=(
            "Below this much free disk space pixels leave at once, oldest delivered first; 0:"
            " never. Above reject_bytes."
        ),
    )
    association_days: float = Field(
        365.0,
        ge=0,
        description=("Days that associations and their refusals can be looked up; 0: without end."),
    )
    audit_days: float = Field(
        0.0,
        ge=0,
        description="Days that rows of the audit are kept (docs/operate/audit.md); 0: without end.",
    )
    commitment_days: float = Field(
        365.0, ge=0, description="The same for requests for storage commitment that have ended."
    )
    workitem_days: float = Field(
        365.0, ge=0, description="The same for work items that have ended."
    )
    committed_days: float = Field(
        0.0,
        ge=0,
        description=(
            "Days that an image stays at least after storage commitment, regardless of"
            " its age and of the disk; 0: as long as the commitment has no other end."
        ),
    )
    hourly_share: float = Field(
        0.02,
        gt=0,
        le=1,
        description=(
            "Share of the archive's images that may leave by age within an hour. The"
            " others wait for the next hour. The limit is at least 1000 images, and four"
            " times the hourly average that `days` leads to."
        ),
    )
    row_months: float = Field(
        0.0,
        ge=0,
        description=(
            "Months after the last delivery of a study until its rows and documents leave"
            " the ledger; 0: they stay. They are exported before (row_exports), and leave"
            " only after their pixels (docs/operate/postgresql.md)."
        ),
    )
    row_exports: Path | None = Field(
        None,
        description=(
            "Folder of the exports of rows that have left; none: row_exports in the state folder."
        ),
    )
    check_seconds: float = Field(
        60.0, gt=0, description=("Time between two scans for pixels that may leave.")
    )

    @model_validator(mode="after")
    def _rows_leave_after_pixels(self) -> Retention:
        if self.row_months and not (self.days or self.pressure_free_bytes):
            raise ValueError(
                "row_months: rows leave after their pixels, so days or pressure_free_bytes has to"
                " let pixels leave"
            )
        return self


class Route(Section):
    """Settings for studies that are sent to one Called AE Title.

    `[routes.<CALLED_AE_TITLE>]`.

    The first image of a study decides. A setting that is left out is as without a route.
    """

    releases: tuple[str, ...] = Field(
        (), description="Releases that read these studies; empty: models.releases."
    )
    destinations: tuple[str, ...] = Field(
        (), description="Names of the destinations of their documents; empty: all."
    )
    quiet_seconds: float | None = Field(
        None, ge=0, le=86400, description="Quiet period; none: studies.quiet_seconds."
    )
    priority: PriorityName = Field("live", description="Priority of their images and studies.")


class Sender(Section):
    """Settings for one Calling AE Title: `[senders.<CALLING_AE_TITLE>]`.

    A setting that is left out is as for all senders.

    Of a study the sender of its first image decides, and before the route of the Called AE Title.
    """

    peers: tuple[Network, ...] = Field(
        (),
        description=(
            "Addresses that may use this AE Title, instead of receive.peers; others are rejected"
            " (1,1,1)."
        ),
    )
    certificate_names: tuple[CertificateName, ...] = Field(
        (),
        description=(
            "The AE Title is rejected (1,1,3) unless its certificate holds one of these: the"
            " subject's CN, a SAN dNSName or URI, or `sha256:` and the certificate's fingerprint."
            " Needs receive.tls_client_ca_file; empty: any, and none."
        ),
    )
    called_ae_titles: tuple[AeTitle, ...] = Field(
        (),
        description=(
            "Called AE Titles, of receive.ae_titles, that it may use; others are rejected"
            " (1,1,7); empty: all."
        ),
    )
    maximum_associations: int | None = Field(
        None,
        ge=0,
        description=(
            "Its simultaneous associations, of all processes together and within"
            " receive.maximum_associations, so that a busy archive leaves room for the modalities;"
            " one more is rejected (2,3,2); 0: it is shut out."
        ),
    )
    sop_classes: tuple[SopClass, ...] = Field(
        (), description="SOP Classes of images that it may send, instead of receive.sop_classes."
    )
    transfer_syntaxes: tuple[TransferSyntax, ...] = Field(
        (),
        description=(
            "Transfer Syntaxes of its images, in order of preference, instead of"
            " receive.transfer_syntaxes."
        ),
    )
    other_objects: OtherObjects | None = Field(
        None,
        description=(
            "Objects of this sender that are no images, instead of receive.other_objects."
        ),
    )
    may_reject: bool | None = Field(
        None,
        description=(
            "Whether its rejection notes (IHE IOCM) count: true: for images of every sender, as"
            " those of an archive; false: never; none: for images that it has sent itself."
        ),
    )
    may_correct: bool | None = Field(
        None,
        description=(
            "Whether the same pixels with another header correct an image. true: an image"
            " of any sender, as an archive does it; false: never; none: an image that it"
            " has sent itself. A correction that does not count is a conflict, which a"
            " person decides."
        ),
    )
    quiet_seconds: float | None = Field(
        None, ge=0, le=86400, description="Quiet period of its studies."
    )
    maximum_wait_seconds: float | None = Field(
        None,
        ge=0,
        description="How long its studies may grow, instead of studies.maximum_wait_seconds.",
    )
    priority: PriorityName | None = Field(None, description="Priority of its images and studies.")
    releases: tuple[str, ...] = Field((), description="Releases that read its studies.")
    destinations: tuple[str, ...] = Field(
        (), description="Names of the destinations of their documents."
    )


@dataclass(frozen=True, slots=True)
class Handling:
    """The complete settings for one study. Times in seconds.

    `not_analysed`: the reason why no release reads its images; empty: they are read.
    """

    priority: str
    releases: tuple[str, ...]
    destinations: tuple[str, ...]
    quiet_seconds: float
    maximum_wait_seconds: float
    not_analysed: str = ""


class Watch(Section):
    """A folder for incoming DICOM files: `[watch.<name>]`.

    A file that cannot be taken goes to `refused/` in it, beside the reason.
    """

    path: Path = Field(
        description=(
            "The folder; folders below it are watched, too, but for `taken`, `refused` and names"
            " with a dot."
        )
    )
    when_taken: Literal["keep", "delete", "move"] = Field(
        "move",
        description=(
            "Action for a file that is in the archive: move to `taken/`, delete, or keep"
            " (refused files stay, too)."
        ),
    )
    settle_seconds: float = Field(
        5.0,
        ge=0,
        description=(
            "A file is complete when it has not changed for this time. Rename files into"
            " place if you can."
        ),
    )
    called_ae_title: OptionalAeTitle = Field(
        "",
        description="Called AE Title whose route applies; empty: the first of receive.ae_titles.",
    )
    calling_ae_title: AeTitle = Field(
        "HILUM_WATCH",
        description=(
            "AE Title that the files are said to come from; its section of `senders` applies."
        ),
    )
    priority: PriorityName = Field(
        "reanalysis",
        description="Priority of its images and studies, before those of route and sender.",
    )

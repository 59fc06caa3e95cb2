"""Settings of reports, and of the systems that Hilum sends to."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator, model_validator

from hilum.dicom.text import Named, Paragraph
from hilum.domain import SR_CLASS_PREFERENCE
from hilum.settings.fields import AeTitle, Host, OptionalAeTitle, Port, Section, require_whole_tls


class Report(Section):
    """What every document says about its maker."""

    manufacturer: Named = Field(
        "Hilum project",
        description="Manufacturer (0008,0070) of documents. At most 64 characters, no backslash.",
    )
    series_number: int = Field(
        9001, ge=1, le=2147483647, description="Series Number of the SR series."
    )
    heat_map_series_number: int = Field(
        9002, ge=1, le=2147483647, description="Series Number of the heat maps' series."
    )
    intended_use: Literal["research", "triage"] = Field(
        "research",
        description=(
            "Profile of intended use. triage: heat maps are neither made nor linked, whatever a"
            " destination asks for (a triage device notifies and does not mark the image, 21 CFR"
            " 892.2080)."
        ),
    )
    disclaimer: Paragraph = Field(
        "AI result, not verified by a physician. For research use only, not for diagnosis.",
        description="Sentence that accompanies every result.",
    )


class Destination(Section):
    """One receiver of documents: `[destinations.<name>]`."""

    kind: Literal["dicom", "folder", "sender"] = Field(
        "dicom",
        description=(
            "dicom: C-STORE; folder: files, renamed into place when complete; sender: C-STORE back"
            " to who sent the study."
        ),
    )
    host: Host = Field("127.0.0.1", description="dicom: host of the receiver.")
    port: Port = Field(4242, description="dicom: port of the receiver.")
    ae_title: AeTitle = Field("PACS", description="dicom: Called AE Title.")
    calling_ae_title: AeTitle = Field("HILUM", description="dicom: our AE Title.")
    path: Path | None = Field(None, description="folder: where the files go.")
    ports: Mapping[AeTitle, Port] = Field(
        {},
        description=(
            "sender: the port of each sender, by the AE Title that it calls from; the host is that"
            " of its association."
        ),
    )
    documents: tuple[Literal["sr", "json", "heatmap"], ...] = Field(
        ("sr",),
        min_length=1,
        description=(
            "Kinds of document it receives. heatmap: a Secondary Capture image, linked from the SR."
        ),
    )
    accept_untrained: bool = Field(
        default=False,
        description="Takes results of untrained weights; refuse them for any clinical receiver.",
    )
    report_not_analysed: bool = Field(
        default=False,
        description=(
            "Also gets a structured report on studies of which no image could be analysed, saying"
            " why."
        ),
    )
    sr_classes: tuple[
        Literal["comprehensive_3d", "comprehensive", "enhanced", "basic_text"], ...
    ] = Field(
        ("comprehensive_3d", "comprehensive", "enhanced", "basic_text"),
        min_length=1,
        description=(
            "dicom: SOP Classes of structured reports to propose; the first in this order that the"
            " receiver accepts is sent."
        ),
    )
    timeout_seconds: float = Field(30.0, gt=0, description="dicom: limit for each message.")
    idle_release_seconds: float = Field(
        20.0, ge=0, description="dicom: an association unused this long is released."
    )
    tls: bool = Field(
        default=False,
        description=(
            "dicom: TLS 1.2 or later to the receiver (PS3.15 Annex B); its certificate is verified."
        ),
    )
    ca_file: Path | None = Field(
        None,
        description=(
            "tls: PEM file of the authority that signed the receiver's certificate; none: the"
            " system's."
        ),
    )
    certificate_file: Path | None = Field(
        None, description="tls: PEM file of our certificate, for receivers that ask for one."
    )
    key_file: Path | None = Field(
        None, description="tls: PEM file of the key to it, not encrypted."
    )
    tls_server_name: str = Field(
        "", description="tls: name in the receiver's certificate, where it is not host."
    )

    @model_validator(mode="after")
    def _has_what_its_kind_needs(self) -> Destination:
        if self.kind == "folder" and self.path is None:
            raise ValueError('a folder destination needs path = "…"')
        if self.kind == "sender" and not self.ports:
            raise ValueError('a sender destination needs ports = { "<CALLING_AE_TITLE>" = 104 }')
        if self.kind != "folder" and "json" in self.documents:
            raise ValueError(
                'a dicom destination cannot take "json"; use documents = ["sr"] or ["sr",'
                ' "heatmap"]'
            )
        return self

    @property
    def address(self) -> str:
        """Where its documents go, for people."""
        if self.kind == "folder":
            return str(self.path)
        return (
            "the sender of each study"
            if self.kind == "sender"
            else f"{self.ae_title}@{self.host}:{self.port}"
        )

    @field_validator("sr_classes")
    @classmethod
    def _follow_the_ladder(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        ladder = [item.name for item in SR_CLASS_PREFERENCE]
        if list(value) != [name for name in ladder if name in value]:
            raise ValueError(f"name each class once and in this order: {', '.join(ladder)}")
        return value

    @model_validator(mode="after")
    def _tls_is_whole(self) -> Destination:
        require_whole_tls(self)
        return self


class CommitmentPeer(Section):
    """Where reports of storage commitment go that this AE Title has asked for.

    `[commitment.<CALLING_AE_TITLE>]`.

    Without one they go back over the association of the request, if it is still open.
    """

    host: Host = Field(description="Host on which the requester takes N-EVENT-REPORT.")
    port: Port = Field(description="Its TCP port.")
    ae_title: OptionalAeTitle = Field("", description="Its AE Title; empty: that of the section.")
    timeout_seconds: float = Field(
        30.0, gt=0, description="Limit for the connection and for each message."
    )
    tls: bool = Field(
        default=False,
        description="TLS 1.2 or later to it (PS3.15 Annex B); its certificate is verified.",
    )
    ca_file: Path | None = Field(
        None,
        description=(
            "tls: PEM file of the authority that signed its certificate; none: the system's."
        ),
    )
    certificate_file: Path | None = Field(
        None, description="tls: PEM file of our certificate, where it asks for one."
    )
    key_file: Path | None = Field(
        None, description="tls: PEM file of the key to it, not encrypted."
    )
    tls_server_name: str = Field(
        "", description="tls: name in its certificate, where it is not host."
    )

    @model_validator(mode="after")
    def _tls_is_whole(self) -> CommitmentPeer:
        require_whole_tls(self)
        return self

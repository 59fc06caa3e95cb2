"""Settings of reports, and of the systems that Hilum sends to."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hilum.dicom.text import Named, Paragraph
from hilum.settings.fields import Host, OptionalAeTitle, Port, Section
from hilum.settings.peers.tls import TlsClient


class Report(Section):
    """The maker that every document names."""

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
    sheet_series_number: int = Field(
        9004, ge=1, le=2147483647, description="Series Number of the result sheets' series."
    )
    pdf_series_number: int = Field(
        9005, ge=1, le=2147483647, description="Series Number of the result sheets as PDF."
    )
    text_series_number: int = Field(
        9006, ge=1, le=2147483647, description="Series Number of the text reports' series."
    )
    gsps_series_number: int = Field(
        9007, ge=1, le=2147483647, description="Series Number of the presentation states' series."
    )
    campaign_series_number: int = Field(
        9003,
        ge=1,
        le=2147483647,
        description="Series Number of the SR series of campaigns that deliver.",
    )
    campaign_series_title: Named = Field(
        "AI re-read",
        description="First words of the Series Description of those reports.",
    )
    intended_use: Literal["research", "triage"] = Field(
        "research",
        description=(
            "Profile of intended use. triage: heat maps are neither made nor linked, even"
            " where a destination asks for them (a triage device notifies and does not"
            " mark the image, 21 CFR 892.2080)."
        ),
    )
    disclaimer: Paragraph = Field(
        "AI result, not verified by a physician. For research use only, not for diagnosis.",
        description="Sentence that accompanies every result.",
    )
    patient_id_system: str = Field(
        "",
        pattern=r"^([a-z][a-z0-9+.-]*:[^\s<>\"{}|\\^`]+)?$",
        description=(
            "FHIR: the namespace of Patient IDs as a URI, such as urn:oid:1.2.3, where an image"
            " names no issuer; empty: none."
        ),
    )


class CommitmentPeer(TlsClient):
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

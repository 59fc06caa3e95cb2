"""Settings of worklist managers, whose work items Hilum performs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from hilum.settings.fields import OptionalAeTitle, Section
from hilum.settings.peers.http import HttpPeer

_ShortString = Annotated[
    str, StringConstraints(strip_whitespace=True, pattern=r"^[^\\\x00-\x1f]{1,16}$")
]
_LongString = Annotated[
    str, StringConstraints(strip_whitespace=True, pattern=r"^[^\\\x00-\x1f]{1,64}$")
]


class CodedConcept(Section):
    """A coded concept (PS3.3 8)."""

    value: _ShortString = Field(description="Code Value (0008,0100).")
    scheme: _ShortString = Field(description="Coding Scheme Designator (0008,0102).")
    meaning: _LongString = Field(description="Code Meaning (0008,0104).")


class WorkitemManager(HttpPeer):
    """A worklist manager, `[workitems.<name>]`: Hilum is a task performer (IHE AIW-I) there."""

    kind: Literal["ups-rs"] = Field("ups-rs", description="UPS-RS of DICOMweb.")
    url: str = Field(
        pattern=r"^https?://[^\s@?#]+$",
        description="Root of the service: work items are at `/workitems` below it.",
    )
    workitem_codes: tuple[CodedConcept, ...] = Field(
        min_length=1,
        description=(
            "Scheduled Workitem Codes of the items that Hilum claims, such as"
            ' `{value = "CXR", scheme = "99SITE", meaning = "Chest radiograph analysis"}`.'
        ),
    )
    station_name_code: CodedConcept = Field(
        description="Performed Station Name Code: Hilum itself."
    )
    requester_ae_title: OptionalAeTitle = Field(
        "",
        description=(
            "Our AE Title, for a manager that wants one in the address of a change of state;"
            " empty: as PS3.18 has it."
        ),
    )
    destination: str = Field(
        description=(
            "Name of the destination that counts (dicom, sender or stow): an item is completed with"
            " the objects that it has accepted."
        )
    )
    retrieve_ae_title: OptionalAeTitle = Field(
        "",
        description=(
            "AE Title from which others retrieve these objects; empty: that of the destination, or"
            " its WADO-RS address."
        ),
    )
    poll_seconds: float = Field(
        20.0, ge=1, le=600, description="Pause between two searches; 10 to 30 s are usual."
    )
    maximum_items: int = Field(
        8, ge=1, le=1000, description="At most so many claimed items that are not finished."
    )
    image_wait_seconds: float = Field(
        3600.0,
        ge=0,
        description="So long after its claim an item waits for the images of its study.",
    )

"""Settings of the modality worklist that is asked for the priority of an order."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints

from hilum.settings.fields import AeTitle, Port, host_name
from hilum.settings.peers.dimse import DimsePeer

OptionalHost = Annotated[str, AfterValidator(host_name)]
# A Short String (PS3.5 6.2) in ASCII.
PriorityWord = Annotated[
    str, StringConstraints(strip_whitespace=True, to_upper=True, pattern=r"^[ -\[\]-~]{1,16}$")
]


class Worklist(DimsePeer):
    """A Modality Worklist SCP, `[worklist]`: docs/operate/worklist.md."""

    host: OptionalHost = Field("", description="Host of the worklist server; empty: none is asked.")
    port: Port = Field(104, description="Its port for C-FIND.")
    ae_title: AeTitle = Field("WORKLIST", description="Its AE Title.")
    timeout_seconds: float = Field(
        1.0,
        gt=0,
        le=30,
        description="Limit for one whole look-up; half of it for each step of the association.",
    )
    urgent_words: tuple[PriorityWord, ...] = Field(
        ("STAT", "HIGH"),
        min_length=1,
        description=(
            "Values of Requested Procedure Priority (0040,1003) that mean urgent. Upper and lower"
            " case are alike."
        ),
    )

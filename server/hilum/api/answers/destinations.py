"""Answers of `/destinations`: each receiver of reports, and the causes that hold reports up."""

from __future__ import annotations

from pydantic import Field

from hilum.api.fields import Moment, ResponseModel


class RefusalAnswer(ResponseModel):
    """A kind of report that the settings keep from a destination, with the remedy."""

    reason: str = Field(examples=["untrained_weights"])
    of: list[str] = Field(description="The releases, or the senders, whose reports stay away.")
    is_all: bool = Field(description="Nothing else will get there either.")
    why: str
    advice: str


class DeadAnswer(ResponseModel):
    """A document that was given up."""

    reason: str | None = Field(examples=["refused_0122"])
    detail: str | None = Field(description="The problem of its last try.")
    at: Moment


class DestinationState(ResponseModel):
    """A receiver of documents and its queue."""

    name: str = Field(examples=["pacs"])
    kind: str | None = Field(
        description="As in the settings; null: it is no longer there.", examples=["dicom"]
    )
    address: str | None = Field(
        description="Where its documents go.", examples=["PACS@10.0.0.5:104"]
    )
    is_configured: bool = Field(
        description=(
            "False: it is no longer in the settings, but has rows; nothing is delivered to it. See"
            " /forget."
        )
    )
    is_paused: bool
    owner: str | None = Field(description="The dispatcher that serves it now.")
    due: int
    waiting: int = Field(description="Due later: the pause between tries runs.")
    leased: int = Field(description="In work.")
    uncommitted: int = Field(
        description="Documents that it accepted, and has not committed to keep yet."
    )
    uncommitted_since: Moment | None = Field(description="When it accepted the oldest of them.")
    dead: dict[str, int] = Field(
        description="Deliveries that need a person, by reason; then POST /api/v1/requeue."
    )
    withheld: dict[str, int] = Field(
        description="Reports that the settings keep from it, by reason."
    )
    releasable: int = Field(
        description="Withheld reports whose cause is gone; POST /api/v1/requeue releases them."
    )
    refusals: list[RefusalAnswer] = Field(description="Reports that these settings keep from it.")
    detail: str | None = Field(description="The problem of the last try, where deliveries wait.")
    delivered_at: Moment | None = Field(
        description="When it took its last document; null: it took none of the last ten thousand."
    )
    last_dead: DeadAnswer | None = Field(description="Of its dead deliveries the last.")


class DestinationList(ResponseModel):
    """All destinations, by name."""

    destinations: list[DestinationState]

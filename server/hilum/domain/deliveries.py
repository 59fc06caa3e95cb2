"""Documents on their way to a destination."""

from __future__ import annotations

from dataclasses import dataclass

from hilum.domain.states import DeliveryState


@dataclass(frozen=True, slots=True)
class Delivery:
    """A document on its way to one destination."""

    document_id: int
    destination: str
    state: DeliveryState = DeliveryState.DUE
    attempts: int = 0
    detail: str | None = None
    delivered_at: float | None = None
    id: int = 0

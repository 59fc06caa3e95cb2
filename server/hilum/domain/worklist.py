"""Answers of a modality worklist about the priority of a study."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorklistAnswer:
    """The priority of a study's order, as its row keeps it.

    `words`: values of Requested Procedure Priority, urgent ones first; several where entries of the
    order differ. `source`: AE_TITLE@HOST:PORT, or the manager of a work item by its name.
    `has_raised`: work of the study that waited became urgent. False for an urgent answer:
    everything was done already.
    """

    words: tuple[str, ...]
    source: str
    answered_at: float
    is_urgent: bool
    has_raised: bool = False

    @property
    def sentence(self) -> str:
        """The answer and its effect, for people."""
        effect = "nothing changed"
        if self.is_urgent:
            effect = "its work became urgent" if self.has_raised else "nothing of it waited"
        return f"{', '.join(self.words)} by the worklist {self.source}: {effect}"

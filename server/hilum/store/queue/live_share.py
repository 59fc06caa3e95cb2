"""The share of live rows while urgent ones fill every claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

from hilum.domain import Priority
from hilum.store.database.prepared import PreparedRow
from hilum.store.queue.claim import Claim

LATE_SECONDS: Final = 60.0
"""For so long a live row waits behind urgent ones."""
SHARE: Final = 4
"""One of so many claims goes to late live rows first."""


class LiveShare:
    """Chooses due rows: by priority, but live rows that are late get one claim of four.

    So urgent work never stops live work. It costs a query only where urgent rows fill
    a claim. Re-analysis has no share: it is the last by intent.
    """

    def __init__(self) -> None:
        self._filled: Counter[tuple[str, str | None]] = Counter()

    def due(self, connection: Connection, claim: Claim) -> Sequence[PreparedRow]:
        """Return the rows that this claim takes, `claim.limit` at most."""
        rows = claim.statements.due.all(connection, claim.parameters)
        if not self._is_turn_of_late(claim, rows):
            return rows
        late = claim.statements.late.all(connection, claim.late_since(claim.now - LATE_SECONDS))
        return [*late, *rows][: claim.limit]

    def _is_turn_of_late(self, claim: Claim, rows: Sequence[PreparedRow]) -> bool:
        """Count the claims that urgent rows fill; return whether this is the fourth of them."""
        if len(rows) < claim.limit or rows[-1].priority != Priority.URGENT:
            return False
        queue = (claim.stage, claim.destination)
        self._filled[queue] += 1
        return self._filled[queue] % SHARE == 0

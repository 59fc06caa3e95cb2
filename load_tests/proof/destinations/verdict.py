"""What became of each document of a trouble, by the ledger and by the receiver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from load_tests.proof.destinations.dialects import Held
from load_tests.proof.destinations.receivers import held_of
from load_tests.proof.destinations.scene import Delivery


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of destination under one trouble.

    `lost`: not there, and not dead. `altered`: there twice, or with other content than the ledger
    has. `repeated`: sends beyond the first of each document. `dead`: reason to the advice that the
    ledger keeps. `unadvised`: dead without words. `unfinished`: rows that have not ended.
    `seconds`: from the end of the trouble until its queue was empty.
    """

    documents: int
    lost: int = 0
    altered: int = 0
    repeated: int = 0
    dead: Mapping[str, str] | None = None
    dead_documents: int = 0
    unadvised: int = 0
    unfinished: int = 0
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether nothing is wrong with it."""
        return not (self.lost or self.altered or self.unadvised or self.unfinished)

    def as_json(self) -> dict[str, Any]:
        """For the result file."""
        return {**asdict(self), "dead": dict(self.dead or {}), "seconds": round(self.seconds, 1)}


def judge(
    rows: Sequence[Delivery],
    held: Iterable[Held],
    sent: Iterable[Held],
    died: Sequence[Delivery] = (),
    ended_at: float = 0.0,
) -> Cell:
    """Hold what a receiver has against the ledger's rows for it.

    `held`: every copy at the receiver; an empty digest: it keeps no content. `sent`: every whole
    document that left. `died`: rows that were dead before a person requeued them. `ended_at`: the
    end of the trouble.
    """
    wanted = {found.identity: found.digest for found in (held_of(i.kind, i.content) for i in rows)}
    ours = [item for item in held if item.identity in wanted]
    left = [item for item in sent if item.identity in wanted]
    there = Counter(item.identity for item in ours)
    changed = {
        item.identity
        for item in (*ours, *left)
        if item.digest and item.digest != wanted[item.identity]
    }
    doubled = {identity for identity, count in there.items() if count > 1}
    dead = [item for item in rows if item.state == "dead"]
    excused = {held_of(item.kind, item.content).identity for item in dead}
    reasons = {str(item.reason): str(item.detail) for item in (*died, *dead)}
    finished = [item.finished_at for item in rows if item.finished_at is not None]
    return Cell(
        documents=len(wanted),
        lost=len(wanted.keys() - there.keys() - excused),
        altered=len(changed | doubled),
        repeated=len(left) - len({item.identity for item in left}),
        dead=reasons,
        dead_documents=len({held_of(i.kind, i.content).identity for i in (*died, *dead)}),
        unadvised=sum(not (item.reason and item.detail) for item in (*died, *dead)),
        unfinished=sum(item.state in ("due", "leased") for item in rows),
        seconds=max(0.0, max(finished, default=ended_at) - ended_at),
    )

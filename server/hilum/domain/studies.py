"""Studies."""

from __future__ import annotations

from dataclasses import dataclass

from hilum.domain.priority import Priority
from hilum.domain.rules import RuleDecision
from hilum.domain.states import StudyState
from hilum.domain.worklist import WorklistAnswer


@dataclass(frozen=True, slots=True)
class Study:
    """A study's row.

    `decision` None: there were no rules when it began. `worklist` None: no worklist has named a
    priority.
    """

    study_instance_uid: str
    revision: int
    state: StudyState
    priority: Priority
    first_received_at: float
    last_received_at: float
    quiet_until: float
    calling_ae_title: str
    called_ae_title: str
    id: int = 0
    peer_address: str = ""
    decision: RuleDecision | None = None
    worklist: WorklistAnswer | None = None

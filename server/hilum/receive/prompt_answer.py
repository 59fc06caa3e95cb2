"""The answer to an A-ASSOCIATE-RQ goes out when it is decided, and not when pynetdicom looks for it again.

pynetdicom has two threads for an association before it is accepted: that of the connection hands the request over, looks for an answer at
once, and then each millisecond. The answer takes half a millisecond, so that it always was too late for the first look.
"""

from __future__ import annotations

import threading

from pynetdicom import evt
from pynetdicom.association import Association
from pynetdicom.events import Event

_AWAITING_ANSWER = "Sta3"  # PS3.8 9.2.2, table 9-2: a local A-ASSOCIATE response primitive is awaited
_LONGEST_SECONDS = 0.05  # then it looks each millisecond, as ever


class PromptAnswer:
    """Bound to an association before its threads start. Whatever fails here costs a millisecond and nothing else."""

    def __init__(self, assoc: Association) -> None:
        self._assoc, self._is_given = assoc, threading.Event()
        assoc.bind(evt.EVT_FSM_TRANSITION, self._moved)
        assoc.bind(evt.EVT_ACSE_SENT, self._answered)

    def _moved(self, event: Event) -> None:
        """In the thread of the connection, which has just handed the request over."""
        if event.next_state == _AWAITING_ANSWER:
            self._assoc.unbind(evt.EVT_FSM_TRANSITION, self._moved)
            self._is_given.wait(_LONGEST_SECONDS)

    def _answered(self, _event: Event) -> None:
        """In the association's own thread, right before the answer is handed over."""
        self._is_given.set()

"""A task performer: claims work items, waits for their results, and ends them at the manager.

The ledger has the Transaction UID of an item before its claim. Each step begins with the state that
the manager has, so a step that a crash interrupted is simply taken again. Two processes that take
the same step have the same Transaction UID.
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from hilum.domain import (
    OPEN_WORKITEMS,
    WORKITEM_REASONS,
    Code,
    KnownStudy,
    StudyProgress,
    Workitem,
    WorkitemReason,
    WorkitemState,
    WorklistAnswer,
)
from hilum.observability import telemetry
from hilum.settings import (
    CodedConcept,
    DicomDestination,
    Settings,
    StowDestination,
    WorkitemManager,
)
from hilum.store.queue.study_progress import StudyProgressView
from hilum.store.queue.workitems import Workitems
from hilum.workitems import ups
from hilum.workitems.client import ItemTrouble, RequestRefused, UpsClient
from hilum.workitems.dicom_json import DataSet, text_of

_ATTEMPTS: Final = 5
_TROUBLED: Final = 4  # times maximum_items are claimed at most, those in trouble included
_LOOKS: Final = 50  # at items of one search, beyond those that are claimed
_FINISHING: Final = {
    WorkitemState.COMPLETING: WorkitemState.COMPLETED,
    WorkitemState.CANCELLING: WorkitemState.CANCELLED,
}
_FINAL: Final = {
    ups.COMPLETED: WorkitemState.COMPLETING,
    ups.CANCELED: WorkitemState.CANCELLING,
}
log = telemetry.logger("services")


@dataclasses.dataclass(frozen=True, slots=True)
class _End:
    """The decision to end an item. `reason` None: it is completed."""

    reason: WorkitemReason | None = None
    detail: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class _Look:
    """The item at the manager, its input, and how far its study is here."""

    data: DataSet
    given: ups.InputInformation
    progress: StudyProgress


class StudyPriorities(Protocol):
    """The ledger, as far as the priority of a study is concerned."""

    def known_studies(self, study_uids: Collection[str]) -> Mapping[str, KnownStudy]:
        """Return the decisions about these studies."""

    def take_worklist_answer(self, study_uid: str, answer: WorklistAnswer) -> WorklistAnswer | None:
        """Make work of the study that waits urgent, if the answer is urgent."""


class TaskPerformer:
    """Performs the items of one manager, for one thread. Raises ManagerAway."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        items: Workitems,
        studies: StudyProgressView,
        client: UpsClient,
        priorities: StudyPriorities,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._name = name
        self._priorities = priorities
        self._raised: set[str] = set()
        self._manager: WorkitemManager = settings.workitems[name]
        self._destination = settings.destinations[self._manager.destination]
        self._codes = [_code(each) for each in self._manager.workitem_codes]
        self._items = items
        self._studies = studies
        self._client = client
        self._clock = clock
        self._troubled: dict[str, str] = {}

    def turn(self) -> None:
        """Take the next step of each claimed item, then claim others."""
        for item in self._items.open_items(self._name):
            self._advance(item)
        free = self._free_places()
        if free > 0:
            self._claim_some(free)
        left = self._items.open_items(self._name)
        telemetry.WORKITEMS_OPEN.labels(self._name).set(len(left))

    def _free_places(self) -> int:
        """Return how many items may be claimed: those in trouble leave their places to others."""
        most = self._manager.maximum_items
        items = self._items.open_items(self._name)
        troubled = sum(item.workitem_uid in self._troubled for item in items)
        return min(most + troubled, _TROUBLED * most) - len(items)

    def _claim_some(self, free: int) -> None:
        """Claim at most so many items, the most urgent first."""
        looks = free + _LOOKS
        for uid in self._candidates()[:looks]:
            if free <= 0:
                return
            try:
                data = self._client.get(uid)
            except ItemTrouble as error:
                self._say_trouble(uid, error.detail)
                continue
            if data is None or not ups.may_be_claimed(data, self._codes):
                continue
            studies = ups.input_of(data).studies
            study = studies[0] if len(studies) == 1 else ""
            item = self._items.begin(self._name, uid, f"2.25.{uuid.uuid4().int}", study)
            if item is not None:
                self._advance(item)
                free -= 1

    def _candidates(self) -> list[str]:
        """Return the items of the manager that may be claimed and are new, in their order."""
        found: dict[str, tuple[int, str]] = {}  # no more of an answer, which may be large
        for code in self._codes:
            for data in self._client.search(code):
                uid = ups.uid_of(data)
                if uid and ups.may_match(data, self._codes):
                    found.setdefault(uid, ups.order_of(data))
        new = found.keys() - self._items.known(self._name, found.keys())
        return sorted(new, key=lambda uid: (found[uid], uid))

    def _advance(self, item: Workitem) -> None:
        """Take all steps of an item that can be taken now."""
        try:
            claimed = self._claim(item) if item.state is WorkitemState.CLAIMING else item
            if claimed is not None:
                self._look(claimed)
        except ItemTrouble as error:
            self._say_trouble(item.workitem_uid, error.detail)
        else:
            self._troubled.pop(item.workitem_uid, None)

    def _claim(self, item: Workitem) -> Workitem | None:
        """Claim an item; None: it is not ours, or not yet."""
        try:
            self._client.change(item.workitem_uid, ups.IN_PROGRESS, item.transaction_uid)
        except RequestRefused as error:
            return self._claim_refused(item, error)
        claimed = self._step(item, WorkitemState.CLAIMED)
        if claimed is not None:
            log.info("workitem_claimed", manager=self._name, workitem_uid=item.workitem_uid)
        return claimed

    def _claim_refused(self, item: Workitem, error: RequestRefused) -> Workitem | None:
        """Decide by the item's state whose it is.

        An item in progress is ours if it takes an update with our Transaction UID. An earlier claim
        of ours may have had an answer that we did not get.
        """
        data = self._client.get(item.workitem_uid)
        if data is None:
            return self._step(item, WorkitemState.FAILED, WorkitemReason.UNKNOWN_TO_MANAGER)
        state = text_of(data, ups.STATE)
        if state in _FINAL:
            return self._step(item, WorkitemState.CANCELLED, WorkitemReason.ENDED_BY_MANAGER)
        if state != ups.IN_PROGRESS:
            self._count_refusal(item, error)
            return None
        try:
            self._announce(item, data)
        except RequestRefused as refused:
            reason = WorkitemReason.CLAIMED_BY_ANOTHER
            return self._step(item, WorkitemState.TAKEN, reason, refused.detail)
        return self._step(item, WorkitemState.CLAIMED)

    def _announce(self, item: Workitem, data: DataSet) -> None:
        """Write the name of its performer into an item."""
        changes = ups.begun(self._performance(item, data))
        self._client.update(item.workitem_uid, item.transaction_uid, changes)

    def _look(self, item: Workitem) -> None:
        """Look at a claimed item and its study; end it, or wait."""
        data = self._client.get(item.workitem_uid)
        if data is None:
            self._step(item, WorkitemState.FAILED, WorkitemReason.UNKNOWN_TO_MANAGER)
            return
        state = text_of(data, ups.STATE)
        if state in _FINAL:
            self._confirm(item, state)
        elif state == ups.SCHEDULED:  # the manager has lost our claim: it was restored
            self._step(item, WorkitemState.CLAIMING)
        else:
            given = ups.input_of(data)
            self._decide(item, _Look(data, given, self._progress(item, given)))

    def _confirm(self, item: Workitem, state: str) -> None:
        """Close an item that has ended at the manager, by us or by others."""
        if item.state is _FINAL[state]:
            self._step(item, _FINISHING[item.state], item.reason, item.detail)
        else:
            self._step(item, WorkitemState.CANCELLED, WorkitemReason.ENDED_BY_MANAGER)

    def _progress(self, item: Workitem, given: ups.InputInformation) -> StudyProgress:
        """Return how far the study is. After an erasure the row names the erased study's stand-in.

        The manager still has the former UID.
        """
        wanted = self._manager.destination
        if item.study_instance_uid not in {"", *given.studies}:
            ours = self._studies.of(item.study_instance_uid, wanted)
            if ours.reason is WorkitemReason.ERASED:
                return ours
        if len(given.studies) != 1:
            return StudyProgress()
        return self._studies.of(given.studies[0], wanted)

    def _decide(self, item: Workitem, look: _Look) -> None:
        end = self._end_of(item, look)
        if end is None:
            self._raise_priority(item, look)
            if item.state is not WorkitemState.CLAIMED:  # the study has grown meanwhile
                self._step(item, WorkitemState.CLAIMED)
            return
        state = WorkitemState.COMPLETING if end.reason is None else WorkitemState.CANCELLING
        attempts = item.attempts if item.state is state else 0
        ending = self._step(item, state, end.reason, end.detail, attempts)
        if ending is not None:
            self._finish(ending, look)

    def _raise_priority(self, item: Workitem, look: _Look) -> None:
        """Make the waiting work of a study urgent, once, as its item is. A rule has precedence."""
        uid = item.workitem_uid
        if uid in self._raised or not (look.progress.is_known and ups.is_urgent(look.data)):
            return
        (study,) = look.given.studies
        known = self._priorities.known_studies([study]).get(study)
        decision = None if known is None else known.decision
        if decision is None or decision.priority is None:
            word = text_of(look.data, ups.PRIORITY)
            answer = WorklistAnswer((word,), self._name, self._clock(), is_urgent=True)
            self._priorities.take_worklist_answer(study, answer)
        self._raised.add(uid)

    def _end_of(self, item: Workitem, look: _Look) -> _End | None:
        """Return how an item ends now; None: it waits."""
        if len(look.given.studies) != 1:
            has_none = not look.given.studies
            return _End(WorkitemReason.NO_STUDY if has_none else WorkitemReason.SEVERAL_STUDIES)
        progress = look.progress
        if progress.reason is WorkitemReason.ERASED:
            return _End(progress.reason)
        if not progress.is_known or not look.given.images <= progress.images:
            waited = self._clock() - (item.claimed_at or item.found_at)
            if waited < self._manager.image_wait_seconds:
                return None
            if not progress.is_known:
                return _End(WorkitemReason.IMAGES_MISSING)
        return None if progress.is_open else _End(progress.reason, progress.detail)

    def _finish(self, item: Workitem, look: _Look) -> None:
        """Write the end into the item, then change its state."""
        uid = item.workitem_uid
        is_completed = item.state is WorkitemState.COMPLETING
        try:
            self._client.update(uid, item.transaction_uid, self._changes(item, look))
            final = ups.COMPLETED if is_completed else ups.CANCELED
            self._client.change(uid, final, item.transaction_uid)
        except RequestRefused as error:
            self._finish_refused(item, error)
            return
        self._step(item, _FINISHING[item.state], item.reason, item.detail)

    def _changes(self, item: Workitem, look: _Look) -> DataSet:
        if item.reason is None:
            return ups.completed(self._performance(item, look.data, look.progress))
        detail = f" ({item.detail})" if item.detail else ""
        return ups.cancelled(self._clock(), f"{WORKITEM_REASONS[item.reason]}{detail}")

    def _finish_refused(self, item: Workitem, error: RequestRefused) -> None:
        """An item may have ended meanwhile, or the manager misses something."""
        data = self._client.get(item.workitem_uid)
        state = "" if data is None else text_of(data, ups.STATE)
        if state in _FINAL:
            self._confirm(item, state)
        else:
            self._count_refusal(item, error)

    def _count_refusal(self, item: Workitem, error: RequestRefused) -> None:
        attempts = item.attempts + 1
        if attempts < _ATTEMPTS:
            self._step(item, item.state, item.reason, item.detail, attempts)
            self._say_trouble(item.workitem_uid, error.detail)
        else:
            reason = WorkitemReason.REFUSED_BY_MANAGER
            self._step(item, WorkitemState.FAILED, reason, error.detail)

    def _performance(
        self, item: Workitem, data: DataSet, progress: StudyProgress | None = None
    ) -> ups.Performance:
        now = self._clock()
        return ups.Performance(
            station=_code(self._manager.station_name_code),
            code=ups.scheduled_code(data, self._codes) or self._codes[0],
            started_at=item.claimed_at or now,
            ended_at=now,
            objects=() if progress is None else progress.objects,
            place=ups.RetrievePlace() if progress is None else self._place(progress),
        )

    def _place(self, progress: StudyProgress) -> ups.RetrievePlace:
        """Return where the objects that the destination accepted can be retrieved."""
        if title := self._manager.retrieve_ae_title:
            return ups.RetrievePlace(title)
        if isinstance(self._destination, StowDestination):
            return ups.RetrievePlace(url=self._destination.url)
        if isinstance(self._destination, DicomDestination):
            return ups.RetrievePlace(self._destination.ae_title)
        return ups.RetrievePlace(progress.sender)

    def _step(
        self,
        item: Workitem,
        state: WorkitemState,
        reason: WorkitemReason | None = None,
        detail: str = "",
        attempts: int = 0,
    ) -> Workitem | None:
        """Write a state; return the item as it is then. None: it has ended, or is not ours."""
        if not self._items.step(item, state, reason, detail, attempts):
            return None
        if state not in OPEN_WORKITEMS:
            self._raised.discard(item.workitem_uid)
            telemetry.WORKITEMS_ENDED.labels(self._name, state.value).inc()
            log.info(
                "workitem_ended",
                manager=self._name,
                workitem_uid=item.workitem_uid,
                state=state.value,
                reason=None if reason is None else reason.value,
                detail=detail,
            )
            return None
        return self._items.find(self._name, item.workitem_uid)

    def _say_trouble(self, workitem_uid: str, detail: str) -> None:
        """Log a problem of one item, once until it changes."""
        if self._troubled.get(workitem_uid) != detail:
            self._troubled[workitem_uid] = detail
            log.warning(
                "workitem_trouble", manager=self._name, workitem_uid=workitem_uid, problem=detail
            )


def _code(concept: CodedConcept) -> Code:
    return Code(concept.value, concept.scheme, concept.meaning)

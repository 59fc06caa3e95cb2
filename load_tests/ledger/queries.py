"""Every query of `store/queries` that a page, a REST address or the exporter makes, timed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from sqlalchemy import Engine, text

from hilum.domain import StudyState
from hilum.settings import FolderDestination
from hilum.store.audit.log import AuditFilter, AuditLog
from hilum.store.queries.views import LedgerViews, StudyFilter
from hilum.verbs import Verb
from load_tests.ledger.backends import Clocks, client_backends
from load_tests.ledger.fill import RELEASE, Amount, study_uid

_DAY: Final = 86400.0
_LIMIT: Final = 50
_SAMPLES: Final = 200

Query = Callable[[], object]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Sample:
    """Keys of rows that are there, in no order."""

    studies: tuple[str, ...]
    images: tuple[tuple[str, str], ...]
    documents: tuple[str, ...]
    moments: tuple[float, ...]


def sample_of(engine: Engine, amount: Amount, seed: int = 1) -> Sample:
    """Draw rows from all years alike."""
    draw = random.Random(seed)
    numbers = [draw.randint(1, amount.studies) for _ in range(_SAMPLES)]
    with engine.connect() as connection:
        images = connection.execute(
            text(
                "SELECT study_instance_uid, sop_instance_uid FROM instance"
                " WHERE id = ANY(CAST(:ids AS int[]))"
            ),
            {"ids": [draw.randint(1, amount.readings) for _ in range(_SAMPLES)]},
        ).all()
        papers = connection.execute(
            text("SELECT sop_instance_uid FROM document WHERE id = ANY(CAST(:ids AS int[]))"),
            {"ids": [2 * number - 1 for number in numbers]},
        ).scalars()
        documents = tuple(papers)
    return Sample(
        tuple(study_uid(engine, number) for number in numbers),
        tuple((row[0], row[1]) for row in images),
        documents,
        tuple(draw.uniform(amount.began, amount.now) for _ in range(_SAMPLES)),
    )


@dataclass
class QueryTimes:
    """Milliseconds of one query by the wall clock, and of CPU of this thread and the sessions."""

    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)


class Timed:
    """Milliseconds of each query, by its name."""

    def __init__(self, url: str, sample: Sample, amount: Amount, seed: int = 2) -> None:
        self._views = LedgerViews(url, lambda: amount.now)
        self._audit = AuditLog(url)
        self._sample = sample
        self._now = amount.now
        self._draw = random.Random(seed)
        self._destinations = {"pacs": FolderDestination(kind="folder", path=Path("none"))}

    def close(self) -> None:
        """Give the connections back."""
        self._views.close()
        self._audit.close()

    def measure(self, rounds: int, sessions: Sequence[int]) -> dict[str, QueryTimes]:
        """Run every query once a round, so that all share the machine's moments."""
        queries = {**self.of_pages(), **self.of_exporter()}
        found = {name: QueryTimes() for name in queries}
        for _ in range(rounds):
            for name, query in queries.items():
                clocks = Clocks(sessions)
                query()
                wall_ms, cpu_ms = clocks.passed()
                found[name].wall_ms.append(wall_ms)
                found[name].cpu_ms.append(cpu_ms)
        return found

    def of_pages(self) -> Mapping[str, Query]:
        """Those of pages and REST."""
        views = self._views
        rows = self._sample
        return {
            **dict(self._of_front()),
            **dict(self._of_lists()),
            **dict(self._of_changes()),
            "study": lambda: views.study(self._one(rows.studies)),
            "study of an image": lambda: views.study_of(self._one(rows.images)[1]),
            "study of no image": lambda: views.study_of("1.2.3"),
            "stored image": lambda: views.stored_image(*self._one(rows.images)),
            "documents of a study": lambda: views.documents(self._one(rows.studies)),
            "document": lambda: views.document(self._one(rows.documents)),
            "newest headers": lambda: views.newest_headers(rows.studies[:_LIMIT]),
            "headers, newest 500": lambda: views.headers_before(None),
            "associations": views.associations,
            "associations, refused": lambda: views.associations(outcome="rejected"),
            "associations, none such": lambda: views.associations(outcome="aborted"),
            "conflicts": views.conflicts,
            "commitments": views.commitments,
            "commitments, reported": lambda: views.commitments(state="reported"),
            "campaigns": views.campaigns,
            "rejections without effect": views.rejections_without_effect,
            "destinations": lambda: views.destination_states(self._destinations),
            "failing": lambda: views.failing(self._now - 900),
            "outcomes of a day": lambda: views.outcomes(self._now - _DAY),
            "comparisons": lambda: views.compared(RELEASE, "bench@2", 2000),
            "last comparison": lambda: views.last_compared((RELEASE, "bench@2")),
            "last comparison, none": lambda: views.last_compared((RELEASE, "bench@3")),
            "due readings": lambda: views.due_readings(1000),
            "audit": lambda: self._audit.list(AuditFilter(), limit=_LIMIT),
            "audit of a study": lambda: self._audit.list(
                AuditFilter(study_instance_uid=self._one(rows.studies)), limit=_LIMIT
            ),
            "audit of a verb that never was": lambda: self._audit.list(
                AuditFilter(verb=Verb.ROLL_BACK), limit=_LIMIT
            ),
        }

    def _of_front(self) -> Iterator[tuple[str, Query]]:
        def front(chosen: StudyFilter, cursor: str | None = None) -> object:
            return self._views.front(
                chosen,
                limit=_LIMIT,
                cursor=cursor,
                failing_before=self._now - 900,
                configured=self._destinations,
            )

        yield "front page", lambda: front(StudyFilter())
        yield "front page, needs a person", lambda: front(StudyFilter(needs_person=True))
        yield "front page, withheld", lambda: front(StudyFilter(is_withheld=True))

    def _of_lists(self) -> Iterator[tuple[str, Query]]:
        named = {
            "studies": StudyFilter(),
            "studies, oldest first": StudyFilter(order="oldest"),
            "studies, closed": StudyFilter(state=StudyState.CLOSED),
            "studies, due": StudyFilter(state=StudyState.DUE),
            "studies, failed": StudyFilter(state=StudyState.FAILED),
            "studies, erased": StudyFilter(state=StudyState.ERASED),
            "studies of a sender": StudyFilter(calling_ae_title="SENDER_3"),
            "studies of an unknown sender": StudyFilter(calling_ae_title="NONE"),
            "studies of a release": StudyFilter(release=RELEASE),
            "studies of an unknown release": StudyFilter(release="none@1"),
            "studies, not analysed": StudyFilter(outcome="not_analysed"),
            "studies, partial": StudyFilter(outcome="partial"),
        }

        def listed(chosen: StudyFilter) -> Query:
            return lambda: self._views.list_studies(chosen, limit=_LIMIT)

        yield from ((name, listed(chosen)) for name, chosen in named.items())
        yield "studies of a moment", self._of_moment
        _, cursor = self._views.list_studies(
            StudyFilter(received_until=self._sample.moments[0]), limit=_LIMIT
        )
        yield (
            "studies, a page far down",
            lambda: self._views.list_studies(StudyFilter(), limit=_LIMIT, cursor=cursor),
        )

    def _of_moment(self) -> object:
        since = self._draw.choice(self._sample.moments)
        chosen = StudyFilter(received_since=since, received_until=since + _DAY)
        return self._views.list_studies(chosen, limit=_LIMIT)

    def _of_changes(self) -> Iterator[tuple[str, Query]]:
        yield "changes, first page", lambda: self._views.list_changed(limit=_LIMIT)
        _, cursor = self._views.list_changed(limit=_LIMIT)
        yield (
            "changes, next page",
            lambda: self._views.list_changed(limit=_LIMIT, cursor=cursor),
        )

    def of_exporter(self) -> Mapping[str, Query]:
        """Those of `/metrics` and `/readyz`."""
        views = self._views
        return {
            "metric: queues": views.queues,
            "metric: stuck": views.stuck,
            "metric: withheld": lambda: views.withheld({}),
            "metric: totals": views.totals,
            "metric: retention": views.retention_state,
            "metric: campaigns": lambda: views.watched_campaigns(20, _DAY),
            "metric: processes": views.processes,
        }

    def _one(self, rows: tuple[T, ...]) -> T:
        return self._draw.choice(rows)


def measured(
    url: str, engine: Engine, sample: Sample, amount: Amount, rounds: int
) -> dict[str, QueryTimes]:
    """Milliseconds of each query, after one round that is not counted."""
    with closing(Timed(url, sample, amount)) as timed:
        timed.measure(1, ())
        return timed.measure(rounds, client_backends(engine))

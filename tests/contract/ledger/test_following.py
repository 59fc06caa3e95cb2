"""Who follows the ledger by its changes misses none, on SQLite and on a real PostgreSQL, whatever is written at the same time."""

from __future__ import annotations

import dataclasses
import random
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text

from hilum.domain import (
    Advance,
    DeliveryState,
    ReadingState,
    Rejection,
    RemovalReason,
    Result,
    StudyJob,
)
from hilum.store.admin.erase import Erasure
from hilum.store.admin.reanalyse import Reanalysis, ReanalysisRequest
from hilum.store.archive.archive import Archive
from hilum.store.intake import record
from hilum.store.ledger import Ledger
from hilum.store.migrations.migrate import migrate
from hilum.store.queries import changes
from hilum.store.queries.views import LedgerViews, StudyFilter
from hilum.store.schema.tables import delivery, result, study
from tests.support.ledger.arrivals import arrival_of
from tests.support.ledger.database import engine_of, transaction
from tests.support.ledger.ledgers import migrated_postgres, migrated_sqlite
from tests.support.ledger.street import RELEASE, Clock, Street

STUDIES = [f"1.2.{number}" for number in range(6)]
LOWER = text(
    "UPDATE installation SET value = CAST(CAST(value AS bigint) - 1000000 AS text) WHERE key ="
    " 'changes_base'"
)


class Follower:
    """What a program knows that keeps the last cursor and what it was told, by the study's number."""

    def __init__(self, url: str, limit: int = 500) -> None:
        self.views, self.limit = LedgerViews(url), limit
        self.cursor: str | None = None
        self.known: dict[int, dict[str, Any]] = {}

    def poll(self) -> list[str]:
        """One page; the Study Instance UIDs on it."""
        studies, self.cursor = self.views.list_changed(limit=self.limit, cursor=self.cursor)
        self.known.update({item["id"]: item for item in studies})
        return [item["study_instance_uid"] for item in studies]

    def follow(self) -> list[str]:
        """Page by page until there is no news."""
        met: list[str] = []
        while page := self.poll():
            met += page
        return met

    def everything(self) -> dict[int, dict[str, Any]]:
        """What the list of all studies says now."""
        return {item["id"]: item for item in self.views.list_studies(StudyFilter(), limit=500)[0]}


@pytest.fixture
def follower(ledger_url: str) -> Iterator[Follower]:
    made = Follower(ledger_url)
    yield made
    made.views.close()


class Hospital(Street):
    """A street on which anything may happen next.

    Results of the same images have identifiers of their own.
    """

    def __init__(self, ledger: Ledger, clock: Clock, folder: Path, chance: random.Random) -> None:
        super().__init__(ledger, clock)
        self.chance, self._results = chance, 0
        self._erasure = Erasure(ledger.url, Archive(folder), clock)
        self._reanalysis = Reanalysis(ledger.url, clock)

    def close(self) -> None:
        self._erasure.close()
        self._reanalysis.close()

    def _result(self, job: StudyJob, outcome: Any) -> Result:
        self._results += 1
        return dataclasses.replace(
            super()._result(job, outcome), identifiers={"sr": f"2.25.{self._results}"}
        )

    @property
    def steps(self) -> list[Callable[[], object]]:
        uid, number = self.chance.choice(STUDIES), self.chance.randrange(1, 5)
        image = Rejection(f"{uid}.{number}", uid, RemovalReason.BY_HAND)
        corrected = arrival_of(
            f"{uid}.{number}",
            uid,
            (RELEASE,),
            digest=f"c{self.chance.random()}",
            pixel_digest=f"p{uid}.{number}",
        )
        stage = self.chance.choice(["analyse", "assemble", "report", "deliver"])
        return [
            *[lambda: self.receive(uid, number)] * 4,
            *[self.read, self.assemble, self.report, self.deliver] * 4,
            lambda: self.read(ReadingState.FAILED, "undecodable"),
            lambda: self._leave(stage),
            lambda: self._give_back(stage),
            self._refuse,
            lambda: self.ledger.record([corrected]),
            lambda: self.ledger.requeue(
                self.chance.choice(["analyse", "assemble", "report", "deliver"])
            ),
            lambda: self.ledger.reject([image]),
            lambda: self.ledger.complete(uid, is_waiting=self.chance.random() < 0.5),
            lambda: self.ledger.end_leases("worker-1", is_clean=self.chance.random() < 0.5),
            lambda: self.ledger.forget_destination("pacs"),
            lambda: self._erasure.erase_study(uid),
            self._read_by_another,
        ]

    def _leave(self, stage: str) -> None:
        """A worker has taken what was due, and dies."""
        self.ledger.claim(stage, 100, "worker-2", 60.0)
        self.clock.now += self.chance.choice([1, 61])

    def _give_back(self, stage: str) -> None:
        for job in self.claim(stage):
            self.ledger.retry(stage, job.lease, "later", 1.0)

    def _refuse(self) -> None:
        for job in self.claim("deliver"):
            self.ledger.advance(
                "deliver",
                [(job.lease, Advance(DeliveryState.DEAD, {"reason": "data_set_refused"}))],
            )

    def _read_by_another(self) -> None:
        order = ReanalysisRequest(f"chest@{self.chance.randrange(2)}")
        for looked in list(self._reanalysis.look(order, self._reanalysis.last_row())):
            list(self._reanalysis.begin(order, looked.ids))


@pytest.mark.parametrize("seed", range(2))
def test_who_asks_now_and_then_knows_everything_in_the_end(
    ledger: Ledger, clock: Clock, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    hospital = Hospital(ledger, clock, tmp_path, chance)
    followers = [Follower(ledger.url, limit) for limit in (1, 3, 500)]
    for _ in range(150):
        chance.choice(hospital.steps)()
        for each in followers:
            if chance.random() < 0.3:
                each.poll()
        if chance.random() < 0.1:
            followers[0].follow()
            assert followers[0].known == followers[0].everything()
    for each in followers:
        each.follow()
        assert each.known == each.everything()
        each.views.close()
    states = {row.state for table in (study, result, delivery) for row in hospital.rows(table)}
    assert {"closed", "erased", "reported", "delivered"} <= states, "more must happen"
    assert [row for row in hospital.rows(result) if row.state == "reported" and not row.is_current]
    hospital.close()


def test_without_news_a_page_is_empty_and_its_cursor_good(
    street: Street, follower: Follower
) -> None:
    assert (follower.poll(), follower.cursor is None) == ([], False)
    street.walk("1.2.3", 1)
    street.receive("1.2.4", 1)
    assert follower.poll() == ["1.2.3", "1.2.4"]
    cursor = follower.cursor
    assert (follower.poll(), follower.cursor) == ([], cursor)


def test_a_result_and_what_became_of_it_are_met_without_an_image(
    street: Street, follower: Follower
) -> None:
    street.receive("1.2.3", 1)
    street.receive("1.2.4", 1)
    follower.follow()
    for step in (street.read, street.assemble, street.report, street.deliver):
        step()
        assert set(follower.follow()) == {"1.2.3", "1.2.4"}
    assert [item["deliveries"] for item in follower.known.values()] == [{"delivered": 1}] * 2


def test_an_erased_study_is_known_by_its_number(
    street: Street, follower: Follower, tmp_path: Path
) -> None:
    street.walk("1.2.3", 1)
    follower.follow()
    (number,) = follower.known
    with closing(Erasure(street.ledger.url, Archive(tmp_path), street.clock)) as erasure:
        erasure.erase_study("1.2.3")
    assert follower.follow() != ["1.2.3"]
    assert (follower.known[number]["state"], follower.known[number]["results"]) == ("erased", [])


def test_who_commits_late_is_not_missed(postgres_url: str) -> None:
    """PostgreSQL: a transaction begins, takes its number, and others with higher ones commit before it does."""
    url = migrated_postgres(postgres_url)
    follower = Follower(url)
    with closing(Ledger(url, Clock())) as slow, closing(Ledger(url, Clock())) as quick:
        Street(quick, Clock()).receive("1.2.0", 1)
        assert follower.follow() == ["1.2.0"]
        with transaction(slow) as connection:
            record.record(connection, [arrival_of("1.2.1.1", "1.2.1", (RELEASE,))], Clock().now)
            Street(quick, Clock()).receive("1.2.2", 1)
            assert follower.follow() == []
            assert {item["study_instance_uid"] for item in follower.everything().values()} == {
                "1.2.0",
                "1.2.2",
            }
        assert follower.follow() == ["1.2.1", "1.2.2"]
        # Its number is as old as its first row; what it changes last it may change after others.
        with transaction(slow) as connection:
            connection.execute(text("UPDATE destination SET is_paused = false WHERE name = ''"))
            connection.execute(text("INSERT INTO destination (name) VALUES ('first')"))
            Street(quick, Clock()).receive("1.2.0", 2)
            record.record(connection, [arrival_of("1.2.0.3", "1.2.0", (RELEASE,))], Clock().now)
            assert follower.follow() == []
        assert follower.follow() == ["1.2.0"]
        assert follower.known == follower.everything()
    follower.views.close()


@pytest.mark.parametrize("is_early", [False, True], ids=["lower numbers", "a time long past"])
def test_a_cluster_that_counts_anew_is_followed_on(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, is_early: bool
) -> None:
    """PostgreSQL: a dump is restored where transactions have lower numbers than those that the ledger knows; or the host that starts
    first shows a wrong time, and numbers begin above all that there are nevertheless."""
    url = migrated_postgres(postgres_url)
    follower = Follower(url)
    with closing(Ledger(url, Clock())) as ledger:
        street = Street(ledger, Clock())
        street.receive("1.2.0", 1)
        follower.follow()
        with transaction(ledger) as connection:
            connection.execute(
                text("UPDATE installation SET value = 'another' WHERE key = 'changes_of'")
            )
            if not is_early:
                connection.execute(LOWER)
        if is_early:
            monkeypatch.setattr("hilum.store.schema.changes.time.time", lambda: 0.0)
        migrate(url)
        street.receive("1.2.1", 1)
        assert follower.follow() == ["1.2.1"]
    follower.views.close()


def test_a_user_who_may_not_ask_for_the_cluster_starts_and_is_followed_on(
    postgres_url: str,
) -> None:
    url, role = migrated_postgres(postgres_url), f"reader_{uuid.uuid4().hex[:8]}"
    own = make_url(url).set(username=role).render_as_string(hide_password=False)
    base = text("SELECT value FROM installation WHERE key = 'changes_base'")
    follower, administrator = Follower(url), create_engine(url)
    with closing(Ledger(url, Clock())) as ledger:
        street = Street(ledger, Clock())
        with administrator.begin() as connection:
            connection.execute(text(f"CREATE ROLE {role} LOGIN"))
            connection.execute(text(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"))
            connection.execute(text("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC"))
        street.receive("1.2.0", 1)
        follower.follow()
        with administrator.begin() as connection:
            before = connection.execute(base).scalar_one()
            migrate(own)
            assert connection.execute(base).scalar_one() == before
            connection.execute(LOWER)
        migrate(own)
        street.receive("1.2.1", 1)
        assert follower.follow() == ["1.2.1"]
    follower.views.close()
    with administrator.begin() as connection:
        connection.execute(text(f"DROP OWNED BY {role}"))
        connection.execute(text(f"DROP ROLE {role}"))
    administrator.dispose()


@pytest.mark.parametrize("rank", range(3))
def test_who_follows_walks_no_table(tmp_path: Path, rank: int) -> None:
    url, place = migrated_sqlite(tmp_path), {"change": 5, "row": 7, "limit": 50}
    with closing(LedgerViews(url)) as views, transaction(views) as connection:
        query = (
            changes.page_query(rank)
            .params(place)
            .compile(engine_of(views), compile_kwargs={"literal_binds": True})
        )
        plan = [row.detail for row in connection.execute(text(f"EXPLAIN QUERY PLAN {query}"))]
    searched = [
        line
        for line in plan
        if re.match(r"SEARCH (study|result|delivery) USING COVERING INDEX ix_\1_change", line)
    ]
    assert len(searched) == 4, plan
    assert not [line for line in plan if re.match(r"SCAN [a-z]+$", line)]

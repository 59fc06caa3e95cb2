"""Statements that run without SQLAlchemy say and find what it would, the same on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, bindparam, insert, select, text, update
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError, StatementError

from hilum.domain import ReadingState
from hilum.store.database.engines import open_engine
from hilum.store.database.prepared import PreparedStatement
from hilum.store.ledger import Ledger
from hilum.store.schema.tables import instance, reading, study
from tests.support.ledger.database import statements, transaction
from tests.support.ledger.ledger_steps import analyse_all, arrival, close_study
from tests.support.ledger.street import Clock

_BY_UID = select(study).where(study.c.study_instance_uid == bindparam("uid"))
_AMONG = (
    select(instance.c.id)
    .where(instance.c.id.in_(bindparam("ids", expanding=True)))
    .order_by(instance.c.id)
)
_NOT_AMONG = (
    select(instance.c.id)
    .where(instance.c.id.not_in(bindparam("ids", expanding=True)))
    .order_by(instance.c.id)
)
_ENDED = (ReadingState.ANALYSED, ReadingState.FAILED)


@pytest.fixture
def connection(ledger: Ledger, clock: Clock) -> Iterator[Connection]:
    ledger.record([arrival(number) for number in (1, 2, 3)])
    analyse_all(ledger)
    clock.now += 600
    close_study(ledger, "digest", clock.now)
    with transaction(ledger) as opened:
        yield opened


@pytest.mark.parametrize("name", ["instance", "reading", "study", "result", "destination"])
def test_it_finds_the_values_that_sqlalchemy_finds(connection: Connection, name: str) -> None:
    """Texts, numbers, bytes, booleans, JSON: of the same types."""
    connection.execute(text("INSERT INTO destination (name, owned_until) VALUES ('pacs', 2.5)"))
    table = instance.metadata.tables[name]
    found, expected = (
        PreparedStatement(select(table)).all(connection),
        connection.execute(select(table)).all(),
    )
    assert [tuple(row) for row in found] == [tuple(row) for row in expected]
    assert [list(map(type, row)) for row in found] == [list(map(type, row)) for row in expected]
    assert [{column.name: getattr(row, column.name) for column in table.c} for row in found] == [
        row._asdict() for row in expected
    ]


@pytest.mark.parametrize("logits", [[0.5, -1e300], None, []])
def test_it_writes_what_sqlalchemy_writes(
    connection: Connection, logits: list[float] | None
) -> None:
    values: dict[str, Any] = {
        "logits": logits,
        "state": ReadingState.ANALYSED,
        "is_shadow": True,
        "cam": b"\0\1",
        "due_at": 1.25,
    }
    its_row = update(reading).where(reading.c.id == bindparam("row"))
    assert PreparedStatement(its_row).write(connection, {**values, "row": 1}) == 1
    connection.execute(its_row, {**values, "row": 2})
    by_us, by_them = connection.execute(
        select(*(reading.c[name] for name in values)).order_by(reading.c.id)
    ).all()[:2]
    assert by_us == by_them
    assert connection.execute(
        text("SELECT DISTINCT CAST(logits AS text) FROM reading WHERE id IN (1, 2)")
    ).all() == [
        (
            connection.execute(
                text("SELECT CAST(logits AS text) FROM reading WHERE id = 2")
            ).scalar_one(),
        )
    ]


def test_an_update_sets_what_its_parameters_name(connection: Connection) -> None:
    its_row = PreparedStatement(update(reading).where(reading.c.id == bindparam("row")))
    assert its_row.write(connection, {"row": 1, "view": "PA"}) == 1
    assert its_row.write(connection, {"row": 1, "reason": "x"}) == 1
    assert its_row.write(connection, {"row": 99, "reason": "x"}) == 0
    assert connection.execute(
        select(reading.c.view, reading.c.reason).where(reading.c.id == 1)
    ).one() == ("PA", "x")


def test_it_writes_each(connection: Connection) -> None:
    priorities = PreparedStatement(
        update(reading).where(reading.c.id == bindparam("row")).values(priority=bindparam("wanted"))
    )
    priorities.write_each(connection, [{"row": number, "wanted": number} for number in (1, 2)])
    assert connection.execute(select(reading.c.priority).order_by(reading.c.id)).scalars().all()[
        :2
    ] == [1, 2]


@pytest.mark.parametrize("ids", [[], [1], [2, 3], [1, 2, 3], [3, 1, 9, 8, 7], list(range(2, 1500))])
def test_lists_of_any_length(connection: Connection, ids: list[int]) -> None:
    assert [id_ for (id_,) in PreparedStatement(_AMONG, "ids").all(connection, {"ids": ids})] == [
        id_ for id_ in (1, 2, 3) if id_ in ids
    ]
    assert [
        id_ for (id_,) in PreparedStatement(_NOT_AMONG, "ids").all(connection, {"ids": ids})
    ] == [id_ for id_ in (1, 2, 3) if id_ not in ids]


def test_a_list_within_the_statement(connection: Connection) -> None:
    query = select(reading.c.id).where(
        reading.c.state.in_(_ENDED), reading.c.id > bindparam("above")
    )
    assert len(PreparedStatement(query).all(connection, {"above": 1})) == 2


def test_few_forms_serve_all_lengths(connection: Connection) -> None:
    statement = PreparedStatement(_AMONG, "ids")
    for count in range(1, 65):
        statement.all(connection, {"ids": list(range(count))})
    statement.all(connection, {"ids": list(range(5000))})
    assert len(statement._forms) == 7


def test_first_and_one(connection: Connection) -> None:
    by_uid = PreparedStatement(_BY_UID)
    assert by_uid.first(connection, {"uid": "9"}) is None
    assert by_uid.one(connection, {"uid": "1.2.3"}).revision == 3
    with pytest.raises(ValueError, match="unpack"):
        by_uid.one(connection, {"uid": "9"})


def test_errors_are_sqlalchemys_and_repeat_no_value(ledger: Ledger) -> None:
    ledger.record([arrival(1)])
    values = {"study_instance_uid": "1.2.3", "calling_ae_title": "SECRET"}
    copied = (
        "revision",
        "open_readings",
        "quiet_until",
        "collecting_since",
        "first_received_at",
        "last_received_at",
        "called_ae_title",
    )
    with transaction(ledger) as connection:
        row = connection.execute(select(study)).one()
    values |= {name: getattr(row, name) for name in (*copied, "state", "priority", "due_at")}
    with pytest.raises(IntegrityError) as caught, transaction(ledger) as connection:
        PreparedStatement(insert(study)).write(connection, values)
    assert caught.value.orig is not None
    assert "SECRET" not in str(caught.value)
    with pytest.raises((OperationalError, ProgrammingError)), transaction(ledger) as connection:
        PreparedStatement(text("SELECT 1 FROM nowhere")).all(connection)
    assert ledger.claim("analyse", 1, "a", 60), "and the ledger goes on"


def test_what_a_converter_does_not_take(connection: Connection) -> None:
    with pytest.raises(StatementError) as caught:
        PreparedStatement(update(reading).where(reading.c.id == bindparam("row"))).write(
            connection, {"row": 1, "logits": {0.5}, "view": "SECRET"}
        )
    assert "SECRET" not in str(caught.value)


def test_listeners_of_the_engine_hear_a_prepared_statement(ledger: Ledger) -> None:
    with statements(ledger) as heard, transaction(ledger) as connection:
        PreparedStatement(_BY_UID).first(connection, {"uid": "1"})
    assert [statement.split()[0] for statement in heard] == ["SELECT"]


def test_a_column_whose_default_python_computes_is_refused(ledger_url: str) -> None:
    from sqlalchemy import Column, Integer, MetaData, Table

    table = Table(
        "study",
        MetaData(),
        Column("id", Integer, primary_key=True),
        Column("revision", Integer, default=lambda: 1),
    )
    engine = open_engine(ledger_url)
    with pytest.raises(AssertionError), engine.begin() as connection:
        PreparedStatement(insert(table)).write(connection, {"id": 1})
    engine.dispose()

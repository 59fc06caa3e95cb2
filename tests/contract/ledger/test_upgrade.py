"""Upgrade: a full ledger goes through a next revision and keeps every row.

A step that fails changes nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.exc import DBAPIError

from hilum.domain import Rejection, RemovalReason
from hilum.errors import ConfigurationError
from hilum.store.ledger import Ledger
from hilum.store.migrations import migrate as migrating
from hilum.store.migrations.migrate import expected_revision, migrate
from hilum.store.migrations.revision import (
    ADVICE_IF_NEWER,
    REVISION,
    current_revision,
    require_revision,
)
from hilum.store.queries.views import LedgerViews, StudyFilter
from hilum.store.schema.tables import metadata
from hilum.supervisor.checks.doctor import _revision
from tests.support.ledger.street import Clock, Street

# What a next release may do: a column, a table made anew on SQLite because a type changes, an
# index, values worked out from rows.
NEXT = '''"""The next release."""
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "9999", "HEAD", None, None


def upgrade() -> None:
    with op.batch_alter_table("instance") as batch:
        batch.add_column(sa.Column("modality", sa.String(16)))
        batch.alter_column("path", type_=sa.String(250), existing_type=sa.String(200), existing_nullable=False)
    op.execute("UPDATE instance SET modality = 'DX'")
    with op.batch_alter_table("result") as batch:
        batch.alter_column("outcome", type_=sa.String(20), existing_type=sa.String(16), existing_nullable=False)
    op.create_index("ix_instance_modality", "instance", ["modality"])
'''


@pytest.fixture
def full(empty_url: str) -> str:
    """A ledger with rows in every table of the street, finished and open ones."""
    migrate(empty_url)
    ledger = Ledger(empty_url, Clock())
    street = Street(ledger, ledger._clock)  # type: ignore[arg-type]
    for number in range(5):
        street.walk(f"1.2.{number}", 1, 2)
    street.walk("1.2.0", 3)
    street.receive("1.3.1", 1)
    street.read()
    street.receive("1.3.2", 1)
    ledger.acquire_destination("pacs", "dispatcher-1", 60)
    street.beat("listener-1", "listener")
    ledger.close()
    return empty_url


def next_release(folder: Path, script: str = NEXT) -> Path:
    location = folder / "migrations"
    shutil.copytree(Path(migrating.__file__).parent, location)
    (location / "versions" / "9999_next.py").write_text(script.replace("HEAD", expected_revision()))
    return location


def contents(url: str) -> dict[str, list[dict[str, object]]]:
    """All rows of all tables."""
    engine = create_engine(url)
    with engine.connect() as connection:
        names = [name for name in inspect(engine).get_table_names() if name != "alembic_version"]
        found = {
            name: [
                dict(row)
                for row in connection.execute(text(f"SELECT * FROM {name} ORDER BY 1")).mappings()
            ]
            for name in names
        }
    engine.dispose()
    return found


def test_every_row_survives_and_the_street_goes_on(full: str, tmp_path: Path) -> None:
    before = contents(full)
    assert {"instance", "reading", "study", "result", "document", "delivery", "destination"} <= {
        name for name in before if before[name]
    }
    assert migrate(full, next_release(tmp_path)) == "9999"
    after = contents(full)
    assert all(row.pop("modality") == "DX" for row in after["instance"])
    assert after == before
    assert current_revision(full) == "9999"
    clock = Clock()
    clock.now += 1000
    ledger = Ledger(full, clock)
    street = Street(ledger, clock)
    street.read()
    street.assemble()
    street.report()
    street.deliver()
    assert {row["state"] for row in contents(full)["study"]} == {"closed"}
    ledger.close()


def test_who_follows_from_nothing_meets_what_was_there_before_the_order_of_changes(
    full: str,
) -> None:
    before = contents(full)
    _back_to(full, "0005")
    migrate(full)
    now = contents(full)
    assert {row["change"] for row in now["study"]} == {0}
    assert {row["change"] for name in ("result", "delivery") for row in now[name]} == {None}
    assert _without_changes(now) == _without_changes(before)
    with closing(LedgerViews(full)) as views, closing(Ledger(full, Clock())) as ledger:
        (first, cursor), everything = (
            views.list_changed(limit=4),
            views.list_studies(StudyFilter())[0],
        )
        Street(ledger, Clock()).receive(first[0]["study_instance_uid"], 9)
        (rest, cursor), met = views.list_changed(cursor=cursor), [item["id"] for item in first]
        assert [*met, *(item["id"] for item in rest)] == [
            *sorted(item["id"] for item in everything),
            first[0]["id"],
        ]
        assert views.list_changed(cursor=cursor) == ([], cursor)


def test_what_was_withheld_before_it_had_a_state_can_be_released(full: str) -> None:
    """But nothing of results that newer ones have replaced, and nothing that was cancelled for another reason."""
    _back_to(full, "0011")
    engine = create_engine(full)
    with engine.begin() as connection:
        ids = connection.execute(text("SELECT id FROM delivery ORDER BY id")).scalars().all()
        for row_id, reason in zip(
            ids[-3:], ("untrained_weights", "sender_unknown", "destination_forgotten"), strict=True
        ):
            said = {"row": row_id, "reason": reason}
            connection.execute(
                text("UPDATE delivery SET state = 'cancelled', reason = :reason WHERE id = :row"),
                said,
            )
        of_old = (
            "SELECT d.id FROM document d JOIN result r ON r.id = d.result_id WHERE r.is_current ="
            " false"
        )
        cancel = (
            "UPDATE delivery SET state = 'cancelled', reason = 'untrained_weights' WHERE"
            f" document_id IN ({of_old})"
        )
        replaced = connection.execute(text(cancel)).rowcount
    engine.dispose()
    migrate(full)
    found = [(row["state"], row["reason"]) for row in contents(full)["delivery"]]
    assert [state for state, reason in found if reason == "destination_forgotten"] == ["cancelled"]
    assert found.count(("cancelled", "untrained_weights")) == replaced > 0
    withheld = [(state, reason) for state, reason in found if state == "withheld"]
    assert withheld == [(state, reason) for state, reason in found[-3:] if state == "withheld"]
    assert "withheld" in {state for state, _ in withheld}
    _back_to(full, "0011")
    assert {row["state"] for row in contents(full)["delivery"]} == {"cancelled", "delivered"}


def test_the_order_of_work_survives_the_new_name_of_its_column(full: str) -> None:
    """Forwards and back, in every queue, with the index that finds the next row."""
    engine = create_engine(full)
    with engine.begin() as connection:
        connection.execute(text("UPDATE reading SET priority = id % 3"))
    before = contents(full)
    _back_to(full, "0012")
    old = {name: rows for name, rows in contents(full).items() if rows and "lane" in rows[0]}
    assert {"study", "reading", "result", "delivery"} <= set(old)
    migrate(full)
    assert contents(full) == before
    for name in ("study", "reading", "result", "delivery", "comparison", "commitment"):
        indexed = {
            column
            for index in inspect(engine).get_indexes(name)
            for column in index["column_names"]
            if index["name"] == f"ix_{name}_due"
        }
        assert "priority" in indexed
    engine.dispose()


def test_what_was_promised_before_it_was_written_down_is_taken_for_promised(full: str) -> None:
    """All that a requester had sent by then: of what it asked for nothing is left."""
    _back_to(full, "0006")
    engine = create_engine(full)
    with engine.begin() as connection:
        received_at = connection.execute(
            text("SELECT max(received_at) FROM instance WHERE sop_instance_uid LIKE '1.2.%'")
        ).scalar_one()
        connection.execute(
            text("UPDATE instance SET calling_ae_title = 'CR2' WHERE sop_instance_uid LIKE '1.3.%'")
        )
        connection.execute(
            text("UPDATE instance SET received_at = :late WHERE sop_instance_uid = '1.2.0.3'"),
            {"late": received_at + 9},
        )
        rows = (
            {"uid": f"9.{title}", "who": title, "count": count}
            for title, count in (("CR1", 2), ("CR2", 0))
        )
        for row in rows:
            connection.execute(_ASKED, {**row, "at": received_at + 1})
    engine.dispose()
    migrate(full)
    promised = {
        str(row["sop_instance_uid"]): row["committed_at"] for row in contents(full)["instance"]
    }
    assert {uid for uid, at in promised.items() if at is None} == {
        "1.2.0.3",
        *(uid for uid in promised if uid.startswith("1.3.")),
    }
    assert set(promised.values()) == {None, received_at + 1}


_ASKED = text(
    "INSERT INTO commitment (transaction_uid, calling_ae_title, called_ae_title, peer_address,"
    " requested_at, digest, is_duplicate, instances, committed, failed, state, lane, due_at,"
    " finished_at) VALUES (:uid, :who, 'HILUM', '10.0.0.7', :at, 'd', false, '[]', :count, 0,"
    " 'reported', 1, :at, :at)"
)


def _back_to(url: str, revision: str) -> None:
    engine = create_engine(url)  # SQLite: without the check of references, as `migrate`
    with engine.begin() as connection:
        config = migrating._config()
        config.attributes["connection"] = connection
        command.downgrade(config, revision)
    engine.dispose()


def _without_changes(
    found: dict[str, list[dict[str, object]]],
) -> dict[str, list[dict[str, object]]]:
    """But for what says when a row changed, and the known time: they begin anew."""
    anew = ("changes_", "known_time")
    kept = {
        name: [row for row in rows if not str(row.get("key")).startswith(anew)]
        for name, rows in found.items()
    }
    return {
        name: [{key: value for key, value in row.items() if key != "change"} for row in rows]
        for name, rows in kept.items()
    }


def test_twice_is_once_and_the_identity_stays(full: str) -> None:
    """It does not even wait for who writes: each start of a server asks for it."""
    before = contents(full)
    engine = create_engine(full)
    with engine.begin() as connection:
        connection.execute(text("UPDATE study SET priority = priority"))
        assert migrate(full) == REVISION
    engine.dispose()
    assert contents(full) == before


def test_hosts_that_migrate_at_once_wait_for_each_other(empty_url: str) -> None:
    """Processes, as Alembic has its context in a module."""
    command = [
        sys.executable,
        "-c",
        "import sys; from hilum.store.migrations.migrate import migrate; migrate(sys.argv[1])",
        empty_url,
    ]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate(timeout=60)[1] for process in running] == ["", "", ""]
    require_revision(empty_url)
    with closing(Ledger(empty_url)) as ledger:
        assert ledger.namespace


def test_a_step_that_fails_changes_nothing(full: str, tmp_path: Path) -> None:
    before = contents(full)
    broken = NEXT + '    op.execute("UPDATE instance SET no_such_column = 1")\n'
    with pytest.raises((DBAPIError, ConfigurationError)):
        migrate(full, next_release(tmp_path, broken))
    assert contents(full) == before
    assert current_revision(full) == REVISION
    require_revision(full)


def test_a_step_that_breaks_references_changes_nothing(full: str, tmp_path: Path) -> None:
    before = contents(full)
    with pytest.raises((DBAPIError, ConfigurationError)):
        migrate(full, next_release(tmp_path, NEXT + '    op.execute("DELETE FROM instance")\n'))
    assert contents(full) == before


def test_a_ledger_of_a_newer_version_is_refused_in_words(full: str, tmp_path: Path) -> None:
    migrate(full, next_release(tmp_path))
    for refuse in (migrate, require_revision):
        with pytest.raises(
            ConfigurationError, match=r"revision 9999 is of a newer version .*restore the backup"
        ):
            refuse(full)
    check = _revision(full)
    assert (check.ok, "newer version" in check.detail, check.advice) == (
        False,
        True,
        ADVICE_IF_NEWER,
    )


def test_a_migrated_ledger_has_the_tables_of_the_schema(empty_url: str) -> None:
    assert current_revision(empty_url) is None
    assert migrate(empty_url) == current_revision(empty_url) == REVISION == expected_revision()
    assert set(contents(empty_url)) == set(metadata.tables)
    engine = create_engine(empty_url)
    found = inspect(engine)
    for table in metadata.tables.values():
        assert {column["name"] for column in found.get_columns(table.name)} == set(table.c.keys())
        assert {str(index.name) for index in table.indexes} <= {
            str(index["name"]) for index in found.get_indexes(table.name)
        }
    engine.dispose()


def test_a_note_of_before_holds_for_all_and_a_conflict_of_before_is_about_pixels(full: str) -> None:
    """They were taken from any sender then."""
    with closing(Ledger(full, Clock())) as ledger:
        ledger.reject([Rejection("1.2.9.1", "1.2.9", RemovalReason.QUALITY, "1.2.8", "PACS")])
    before = contents(full)["rejection"]
    _back_to(full, "0006")
    migrate(full)
    assert contents(full)["rejection"] == [{**row, "holds_for_all": True} for row in before]
    Street(ledger := Ledger(full, Clock()), Clock()).receive("1.2.9", 1)
    ledger.close()
    assert [
        row["is_removed"]
        for row in contents(full)["instance"]
        if row["study_instance_uid"] == "1.2.9"
    ] == [True]

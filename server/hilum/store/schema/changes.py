"""The numbers of changes of studies, results and deliveries, so that readers can follow them.

The numbers of a transaction are above those of all that ended before it began. SQLite has one
writer at a time: the next number is one more than the highest, or the time, if that is more.
PostgreSQL: the transaction's own number plus `changes_base`; a reader goes as far as all
transactions below have ended. Both begin at the time (microseconds since the epoch), so that a
restored ledger gives no number twice. If the time is wrong, they begin above all numbers in the
ledger. docs/decisions/changes-by-transaction.md
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import BigInteger, Connection, text
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

_TABLES = ("study", "result", "delivery")
_BASE = "(SELECT CAST(value AS bigint) FROM installation WHERE key = 'changes_base')"
_HIGHEST = ", ".join(
    # Our names.
    f"1 + coalesce((SELECT max(change) FROM {name} WHERE change IS NOT NULL), 0)"  # noqa: S608
    for name in _TABLES
)
# Another cluster, or this one at an earlier point: its transactions have other numbers.
_IDENTITY = text(
    "SELECT system_identifier || '.' || timeline_id FROM pg_control_system(),"
    " pg_control_checkpoint()"
)
_MAY_BE_ASKED = text(
    "SELECT coalesce(has_function_privilege(to_regprocedure('pg_control_system()'), 'EXECUTE')"
    " AND has_function_privilege(to_regprocedure('pg_control_checkpoint()'), 'EXECUTE'), false)"
)
_NOT_TO_BE_ASKED = "unknown"
_KNOWN = text("SELECT value FROM installation WHERE key = 'changes_of'")
_NEXT_BEGUN = "CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint)"
_IS_ABOVE = text(f"SELECT {_NEXT_BEGUN} + {_BASE} >= greatest({_HIGHEST})")
_LOCK = text(f"LOCK TABLE {', '.join(_TABLES)} IN SHARE ROW EXCLUSIVE MODE")
_FORGET = text("DELETE FROM installation WHERE key IN ('changes_base', 'changes_of')")
# Above all numbers, also where the time is wrong, and for transactions that run already.
_BEGINNING = (
    f"greatest(CAST(:now AS bigint), {_HIGHEST}) -"
    " CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint)"
)
_WRITE = text(
    "INSERT INTO installation (key, value)"  # noqa: S608
    f" VALUES ('changes_of', :identity), ('changes_base', CAST({_BEGINNING} AS text))"
)


class NextChange(FunctionElement[int]):
    """The number of a change that is written now."""

    inherit_cache = True
    type = BigInteger()


class EndOfChanges(FunctionElement[int]):
    """All changes below this number can be read, and none will come any more."""

    inherit_cache = True
    type = BigInteger()


@compiles(NextChange, "sqlite")
def _next_in_sqlite(_element: NextChange, _compiler: Any, **_options: Any) -> str:  # noqa: ANN401 - SQLAlchemy's own protocol
    return (
        "(SELECT max(CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000,"
        f" {_HIGHEST}))"
    )


@compiles(NextChange, "postgresql")
def _next_in_postgresql(_element: NextChange, _compiler: Any, **_options: Any) -> str:  # noqa: ANN401
    return f"(CAST(CAST(pg_current_xact_id() AS text) AS bigint) + {_BASE})"


@compiles(EndOfChanges, "sqlite")
def _end_in_sqlite(_element: EndOfChanges, _compiler: Any, **_options: Any) -> str:  # noqa: ANN401
    return "9223372036854775807"


@compiles(EndOfChanges, "postgresql")
def _end_in_postgresql(_element: EndOfChanges, _compiler: Any, **_options: Any) -> str:  # noqa: ANN401
    return (
        f"(SELECT CAST(CAST(pg_snapshot_xmin(pg_current_snapshot()) AS text) AS bigint) + {_BASE})"
    )


def begin(connection: Connection) -> None:
    """Begin the numbers at the time where the base is of another cluster (PostgreSQL).

    Idempotent.
    """
    if connection.dialect.name != "postgresql":
        return
    found = identity(connection)
    if _is_known(connection, found):
        return
    connection.execute(_LOCK)  # a concurrent writer has the former base
    if not _is_known(connection, found):  # else another host was faster
        connection.execute(_FORGET)
        connection.execute(_WRITE, {"identity": found, "now": int(time.time() * 1e6)})


def identity(connection: Connection) -> str:
    """The identity of the cluster and its timeline, or `_NOT_TO_BE_ASKED`.

    An administrator may have denied it to our user. That is no reason not to start.
    """
    may_be_asked = connection.execute(_MAY_BE_ASKED).scalar_one()
    return str(connection.execute(_IDENTITY).scalar_one()) if may_be_asked else _NOT_TO_BE_ASKED


def _is_known(connection: Connection, found: str) -> bool:
    """Whether the base is of this cluster.

    Without an identity: whether the next number is above all in the ledger. An earlier point of the
    same cluster is not noticed so.
    """
    known = connection.execute(_KNOWN).scalar_one_or_none()
    if found != _NOT_TO_BE_ASKED or known is None:
        return bool(known == found)
    return bool(connection.execute(_IS_ABOVE).scalar_one())

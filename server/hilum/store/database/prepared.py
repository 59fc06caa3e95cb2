"""Prepared statements: written with SQLAlchemy, executed without it.

Compiled once for each database, then run by the driver's own cursor. For a compiled statement
SQLAlchemy's part (its cache key, a context, a result and its rows) takes ten times as long as
SQLite. docs/decisions/prepared-statements.md
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, Protocol

from sqlalchemy import Connection, Select, TextClause
from sqlalchemy.engine.interfaces import DBAPICursor, Dialect
from sqlalchemy.sql.compiler import ExpandedState, SQLCompiler
from sqlalchemy.sql.dml import UpdateBase

from hilum.store.database.engines import raise_as_sqlalchemy, run

Parameters = Mapping[str, Any]
_LARGEST_LIST: Final = 1024
_NONE: Final[Parameters] = {}


class PreparedRow(Protocol):
    """One row of a statement.

    A tuple whose columns are attributes, too, as SQLAlchemy's rows are.
    """

    def __getattr__(self, name: str) -> Any: ...  # noqa: ANN401, D105 - a column
    def __iter__(self) -> Iterator[Any]: ...  # noqa: D105 - its columns


class PreparedStatement:
    """One statement with `bindparam`s.

    It runs in the transaction of a connection, which SQLAlchemy has begun and ends. As with
    SQLAlchemy an UPDATE or INSERT sets the columns that its parameters name, and a list may stand
    for an expanding parameter. Types are converted by SQLAlchemy's own converters, errors are
    SQLAlchemy's. No column may have a default that Python computes.
    """

    __slots__ = ("_forms", "_lists", "statement")

    def __init__(self, statement: Select[Any] | UpdateBase | TextClause, *lists: str) -> None:
        """`lists`: the names of its expanding parameters."""
        self.statement = statement
        self._lists = lists
        self._forms: dict[tuple[object, ...], _Form] = {}

    def all(self, connection: Connection, parameters: Parameters = _NONE) -> list[PreparedRow]:
        """Return all rows."""
        form, parameters = self._form(connection, parameters)
        cursor, found = run(connection, form.sql, form.bound(connection, parameters), is_read=True)
        return form.rows(connection.dialect, cursor, found)

    def first(self, connection: Connection, parameters: Parameters = _NONE) -> PreparedRow | None:
        """Return the first row, or None. Reads all rows."""
        rows = self.all(connection, parameters)
        return rows[0] if rows else None

    def one(self, connection: Connection, parameters: Parameters = _NONE) -> PreparedRow:
        """Return the only row. Raises ValueError where there is none, or another."""
        (row,) = self.all(connection, parameters)
        return row

    def write(self, connection: Connection, parameters: Parameters = _NONE) -> int:
        """Execute a write, and return the number of changed rows."""
        form, parameters = self._form(connection, parameters)
        cursor, _ = run(connection, form.sql, form.bound(connection, parameters))
        return cursor.rowcount

    def write_each(self, connection: Connection, several: Sequence[Parameters]) -> int:
        """Execute a write for each set of parameters, and return the number of changed rows.

        At least one set; all sets name the same parameters.
        """
        form, _ = self._form(connection, several[0])
        cursor, _ = run(
            connection,
            form.sql,
            [form.bound(connection, parameters) for parameters in several],
            is_many=True,
        )
        return cursor.rowcount

    def _form(self, connection: Connection, parameters: Parameters) -> tuple[_Form, Parameters]:
        """The form for these parameters; and the parameters, with lists as long as the form's."""
        if self._lists:
            parameters = {**parameters, **{name: _filled(parameters[name]) for name in self._lists}}
        dialect = connection.dialect
        lengths = [len(parameters[name]) for name in self._lists]
        key = (dialect.name, *parameters, *lengths)
        form = self._forms.get(key)
        if form is None:
            form = _Form(self.statement, dialect, parameters)
            if max(lengths, default=0) <= _LARGEST_LIST:
                self._forms[key] = form
        return form, parameters


def _filled(items: Sequence[object]) -> Sequence[object]:
    """Pad a list to the next power of two by repeating its last item.

    A repeated item changes nothing in an IN. So few forms serve all lengths.
    """
    missing = (
        (1 << (len(items) - 1).bit_length()) - len(items) if 0 < len(items) <= _LARGEST_LIST else 0
    )
    return [*items, *[items[-1]] * missing] if missing else items


class _Form:
    """A statement's text for one database and one set of parameter names, with its converters."""

    __slots__ = ("_columns", "_converters", "_fixed", "_lists", "_make", "_pick", "sql")

    def __init__(
        self,
        statement: Select[Any] | UpdateBase | TextClause,
        dialect: Dialect,
        parameters: Parameters,
    ) -> None:
        # For several sets: then an INSERT returns nothing but its `RETURNING` columns.
        compiled = statement.compile(
            dialect=dialect, column_keys=list(parameters), for_executemany=True
        )
        assert isinstance(compiled, SQLCompiler)
        assert not [
            *compiled.insert_prefetch,
            *compiled.update_prefetch,
        ], "nobody here would compute it"
        expanded = compiled.construct_expanded_state(dict(parameters))
        self.sql = expanded.statement
        self._lists = [
            (name, names)
            for name, names in expanded.parameter_expansion.items()
            if name in parameters
        ]
        given = {*parameters, *(name for _, names in self._lists for name in names)}
        self._fixed = {
            name: value for name, value in expanded.parameters.items() if name not in given
        }
        self._converters = _converters_of(compiled, expanded, dialect)
        self._pick = _picker(expanded.positiontup)
        columns = () if isinstance(statement, TextClause) else statement.exported_columns.items()
        self._columns = [(name, column.type) for name, column in columns]
        self._make: Callable[[Iterable[Any]], PreparedRow] | None = None

    def bound(self, connection: Connection, parameters: Parameters) -> Any:  # noqa: ANN401 - the driver's: a tuple or a mapping
        """Parameters as the driver takes them. Raises StatementError for a bad value."""
        values = {**self._fixed, **parameters}
        for name, names in self._lists:
            values.update(zip(names, values.pop(name), strict=True))
        try:
            for name, convert in self._converters:
                values[name] = convert(values[name])
        except Exception as error:  # noqa: BLE001 - it goes on as SQLAlchemy's error
            raise_as_sqlalchemy(connection, error, self.sql)
        return self._pick(values)

    def rows(
        self, dialect: Dialect, cursor: DBAPICursor, found: Iterable[Any]
    ) -> list[PreparedRow]:
        """Rows of the driver's cursor as PreparedRow."""
        make = self._make
        if make is None:
            make = self._make = self._maker(dialect, cursor)
        return list(map(make, found))

    def _maker(
        self, dialect: Dialect, cursor: DBAPICursor
    ) -> Callable[[Iterable[Any]], PreparedRow]:
        """A function from the driver's row to ours.

        Some converters depend on the driver's description of the columns.
        """
        said = cursor.description or ()
        types = zip([kind.dialect_impl(dialect) for _, kind in self._columns], said, strict=True)
        processors = [kind.result_processor(dialect, column[1]) for kind, column in types]
        converters = [
            (place, convert) for place, convert in enumerate(processors) if convert is not None
        ]
        as_it_is = _row_of([str(name) for name, _ in self._columns])

        def converted(found: Iterable[Any]) -> PreparedRow:
            values = list(found)
            for place, convert in converters:
                values[place] = convert(values[place])
            return as_it_is(values)

        return converted if converters else as_it_is


def _converters_of(
    compiled: SQLCompiler, expanded: ExpandedState, dialect: Dialect
) -> list[tuple[str, Callable[[Any], Any]]]:
    """Converters of the parameters that need one, by name."""
    converters = {
        name: bind.type.dialect_impl(dialect).bind_processor(dialect)
        for bind, name in compiled.bind_names.items()
    }
    converters = {**converters, **expanded.processors}
    return [
        (name, convert)
        for name in expanded.parameters
        if (convert := converters.get(name)) is not None
    ]


def _row_of(names: Sequence[str]) -> Callable[[Iterable[Any]], PreparedRow]:
    """A row type. Expressions without a name get the numbers of their places."""
    made: Any = namedtuple
    return made("Row", names, rename=True)._make  # type: ignore[no-any-return]


def _picker(names: Sequence[str] | None) -> Callable[[dict[str, Any]], Any]:
    """A function that orders parameters; None: the driver takes them by name."""
    if names is None:
        return lambda values: values
    if len(names) < 2:
        return lambda values: tuple([values[name] for name in names])
    return itemgetter(*names)

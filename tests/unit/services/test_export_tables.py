"""The files of an export: CSV and Parquet of any values, complete or not there."""

from __future__ import annotations

import csv
import io
import os
import signal
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hilum.domain import SeriesReason
from hilum.errors import ConfigurationError
from hilum.services.export_tables.columns import (
    IDENTIFIERS,
    SERIES_SENTENCES,
    STATE_SENTENCES,
    TABLES,
    ColumnType,
    ExportColumn,
    ExportTable,
    NotReadState,
    columns_of,
)
from hilum.services.export_tables.csv_table import CsvWriter, guarded, unguarded
from hilum.services.export_tables.files import not_read_path, open_table, require_format
from hilum.services.export_tables.parquet_table import ParquetWriter
from tests.support.machine.forks import FORKS

COLUMNS = (
    ExportColumn("uid", ColumnType.TEXT, "A text of ours."),
    ExportColumn("foreign", ColumnType.TEXT, "A text from outside.", is_foreign=True),
    ExportColumn("number", ColumnType.NUMBER, "A number."),
    ExportColumn("count", ColumnType.INTEGER, "A whole number."),
    ExportColumn("truth", ColumnType.BOOLEAN, "A truth value."),
)
# A database keeps no NUL and no half of a surrogate pair.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
FORMULAS = st.builds(
    lambda quotes, start, rest: "'" * quotes + start + rest,
    st.integers(0, 3),
    st.sampled_from("=+-@\t\r'\n\"0a"),
    TEXTS,
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "uid": st.none() | st.from_regex(r"[0-9.]{1,64}", fullmatch=True),
            "foreign": st.none() | TEXTS | FORMULAS,
            "number": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "count": st.none() | st.integers(-(2**63), 2**63 - 1),
            "truth": st.none() | st.booleans(),
        }
    ),
    max_size=8,
)


def parsed(name: str, cell: str) -> str | float | int | bool | None:
    """The value of a field, by the documented rules."""
    if not cell:
        return None
    if name == "truth":
        return {"true": True, "false": False}[cell]
    if name in ("number", "count"):
        return (float if name == "number" else int)(cell)
    return unguarded(cell) if name == "foreign" else cell


@given(rows=ROWS)
def test_csv_gives_back_every_value(rows: list[dict[str, str | float | None]]) -> None:
    stream = io.StringIO(newline="")
    writer = CsvWriter(stream, COLUMNS)
    for row in rows:
        writer.write(row)

    read_back = csv.DictReader(io.StringIO(stream.getvalue(), newline=""), strict=True)

    assert [{name: parsed(name, cell) for name, cell in row.items()} for row in read_back] == rows


@given(text=TEXTS | FORMULAS)
def test_no_guarded_text_begins_as_a_formula_and_each_can_be_restored(text: str) -> None:
    assert guarded(text)[0] not in "=+-@\t\r\n"
    assert unguarded(guarded(text)) == text


def test_csv_is_as_rfc_4180_and_leaves_our_own_texts_alone() -> None:
    stream = io.StringIO(newline="")
    writer = CsvWriter(stream, COLUMNS)
    writer.write({"uid": "-1", "foreign": "-1", "number": 0.1, "truth": True})
    writer.write({"foreign": 'say "a",\r\nb', "count": 3})
    assert stream.getvalue() == (
        'uid,foreign,number,count,truth\r\n"-1","\'-1",0.1,,true\r\n,"say ""a"",\r\nb",,3,\r\n'
    )


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(rows=ROWS)
def test_parquet_gives_back_every_value(
    rows: list[dict[str, str | float | None]], tmp_path: Path
) -> None:
    path = tmp_path / "it's [1] *.parquet"
    path.unlink(missing_ok=True)
    writer = ParquetWriter(path, ExportTable.IMAGES, COLUMNS)
    for row in rows:
        writer.write(row)
    writer.finish()
    writer.close()

    with duckdb.connect() as connection:
        found = connection.from_parquet(
            str(path).replace("[", "[[]", 1).replace("*", "[*]")
        ).fetchall()

    assert [dict(zip([item.name for item in COLUMNS], row, strict=True)) for row in found] == rows
    assert [each.name for each in tmp_path.iterdir()] == [path.name], "nothing else is left"


def test_the_file_of_unread_images_stands_beside_the_table() -> None:
    assert not_read_path(Path("a/results.v1.csv")) == Path("a/results.v1.not_read.csv")


@pytest.mark.parametrize("name", ["results", "results.xlsx", "results.CSV", ".csv"])
def test_a_name_without_a_format_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"\.csv or \.parquet"):
        require_format(Path(name))


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_a_killed_export_leaves_no_half_table(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("of an earlier export")
    child = FORKS.Process(target=write_until_killed, args=(tmp_path / name,))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    assert (tmp_path / name).read_text() == "of an earlier export"
    assert {each.suffix for each in tmp_path.iterdir()} - {Path(name).suffix} <= {".part"}


def write_until_killed(path: Path) -> None:
    file = open_table(path, ExportTable.IMAGES, has_identifiers=False)
    for _ in range(100_000):
        file.write({"study_instance_uid": "1.2.3"})
    os.kill(os.getpid(), signal.SIGKILL)


def test_each_name_stands_once_in_a_table_and_identifiers_at_its_end() -> None:
    for table in ExportTable:
        names = [item.name for item in columns_of(table, has_identifiers=True)]
        assert len(set(names)) == len(names)
        assert tuple(names[-3:]) == tuple(item.name for item in IDENTIFIERS)
        assert not {item.name for item in IDENTIFIERS} & {item.name for item in TABLES[table]}


def test_each_state_and_each_reason_of_a_campaign_has_its_sentence() -> None:
    assert set(STATE_SENTENCES) == set(NotReadState)
    assert set(SERIES_SENTENCES) == set(SeriesReason)

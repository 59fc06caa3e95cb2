"""Lists of studies: values stay text, and each damaged row is refused with a reason."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hilum.domain import RowOutcome
from hilum.retrieve.lists.row_key import row_key
from hilum.retrieve.lists.study_list import StudyList, read_list
from hilum.retrieve.lists.table import ListError
from hilum.retrieve.source import ListedStudy


def listed(tmp_path: Path, content: str | bytes, column: str | None = None) -> StudyList:
    file = tmp_path / "studies.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_list(file, column)


def values(found: StudyList) -> list[str]:
    return [study.value for study in found.studies]


def problem(tmp_path: Path, content: str | bytes, column: str | None = None) -> str:
    with pytest.raises(ListError) as caught:
        listed(tmp_path, content, column)
    return caught.value.detail


def test_leading_zeros_are_kept_and_rows_are_numbered_as_a_spreadsheet_does(
    tmp_path: Path,
) -> None:
    found = listed(tmp_path, "accession\n0000123\n\n123\n")

    assert found.studies == (
        ListedStudy(2, "accession", "0000123"),
        ListedStudy(4, "accession", "123"),
    )
    assert found.blank_rows == 1


@pytest.mark.parametrize(
    ("header", "kind"),
    [
        ("accession", "accession"),
        ("Accession_Number", "accession"),
        ("ACCESSIONNUMBER", "accession"),
        ("Accession Number", "accession"),
        ("study_instance_uid", "study_uid"),
        ("StudyInstanceUID", "study_uid"),
        ("studyuid", "study_uid"),
    ],
)
def test_a_known_header_names_the_column_and_its_kind(
    tmp_path: Path, header: str, kind: str
) -> None:
    found = listed(tmp_path, f"sex,{header},age\nF,1.2.3.4,50\n")

    assert found.studies == (ListedStudy(2, kind, "1.2.3.4"),)  # type: ignore[arg-type]


def test_a_column_may_be_named(tmp_path: Path) -> None:
    found = listed(tmp_path, "study,accession\n1.2.840.5,A1\n", "study")

    assert found.studies == (ListedStudy(2, "study_uid", "1.2.840.5"),)


def test_a_single_column_needs_no_known_header(tmp_path: Path) -> None:
    assert values(listed(tmp_path, "Untersuchung\nA1\nA2\n")) == ["A1", "A2"]


def test_a_list_without_a_header_loses_no_row(tmp_path: Path) -> None:
    found = listed(tmp_path, "0001\n0002\n")

    assert values(found) == ["0001", "0002"]
    assert "row 1" in found.doubts[0].text


@pytest.mark.parametrize(
    ("content", "column", "text"),
    [
        ("a,b\n1,2\n", None, "by --column (it has: a, b)"),
        ("accession,studyuid\n1,2\n", None, "2 columns that may name studies"),
        ("a,b\n1,2\n", "c", "no column is named 'c'"),
        ("a,a\n1,2\n", "a", "2 columns are named 'a'"),
        ("", None, "the list is empty"),
        ("\n\n", None, "the list is empty"),
        (b"accession\nA1\nM\xfcller\n", None, "line 3 is not UTF-8"),
        ("accession\nA1\n".encode("utf-16"), None, "UTF-16"),
        ("accession\nA1\n".encode("utf-16-le"), None, "UTF-16"),
        (b"PK\x03\x04rest", None, "workbook"),
        ('accession\nA1\n"A2\nA3\n', None, "row 3 is not CSV"),
    ],
)
def test_an_unreadable_list_says_what_to_change(
    tmp_path: Path, content: str | bytes, column: str | None, text: str
) -> None:
    assert text in problem(tmp_path, content, column)


def test_an_error_shows_no_value_of_a_list_without_a_header(tmp_path: Path) -> None:
    assert "ACC77" not in problem(tmp_path, "ACC77,50\nACC78,51\n")


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfaccession,age\r\n007,50\r\n008,51\r\n",
        b"accession;age\n007;50,5\n008;51,5\n",
        b"accession\tage\n007\t50\n008\t51\n",
        b'"accession","a, ""b"""\n"007","x\ny"\n" 008 ",\n',
        b"sep=;\r\naccession;age\r\n007;50\r\n008;51\r\n",
        b"accession,age\r007,50\r008,51\r",
    ],
)
def test_delimiters_quotes_marks_and_ends_of_line_are_found(tmp_path: Path, content: bytes) -> None:
    found = listed(tmp_path, content)

    assert [(study.number, study.value) for study in found.studies] == [(2, "007"), (3, "008")]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("A*1", "wildcard"),
        ("A?1", "wildcard"),
        ("A\\B", "backslash"),
        ('"A\nB"', "control character"),
        ("A\u200b1", "invisible"),
        ("12345678901234567", "over 16 characters"),
        ("1.2E+05", "scientific notation"),
        ('"1,2E+05"', "scientific notation"),
        ("2e+15", "scientific notation"),
        ("123.0", "ends in .0"),
        ("#####", "wider than its column"),
        ("#N/A", "an error of a spreadsheet"),
        ("=A1", "a formula"),
        ("'00123", "an apostrophe"),
        ("2024-01-02", "a date"),
        ("2024-01-02 00:00:00", "a date"),
        ("01.02.2024", "a date"),
        ("1/2/24", "a date"),
        ("02-Jan", "a date"),
        ("Mar-24", "a date"),
        ("02. Mrz", "a date"),
    ],
)
def test_a_damaged_accession_number_is_refused_with_a_reason_that_does_not_quote_it(
    tmp_path: Path, value: str, reason: str
) -> None:
    found = listed(tmp_path, f"accession,age\n{value},50\nGOOD1,51\n")

    assert values(found) == ["GOOD1"]
    assert found.refused[0].number == 2
    assert found.refused[0].outcome is RowOutcome.REFUSED
    assert reason in found.refused[0].detail
    assert value not in found.refused[0].detail or value == "#####"


@pytest.mark.parametrize(
    "value", ["1E5", "12E4567", "MAR-1234", "CR.2024-17", "123.5", "A B", "ä1"]
)
def test_an_accession_number_that_only_resembles_damage_is_taken(
    tmp_path: Path, value: str
) -> None:
    assert values(listed(tmp_path, f"accession\n{value}\n")) == [value]


@pytest.mark.parametrize("value", ["1.2.x", "9.1.2", "1..2", "0.0.0", "1." + "2" * 63])
def test_an_invalid_uid_is_refused(tmp_path: Path, value: str) -> None:
    found = listed(tmp_path, f"studyuid\n{value}\n")

    assert values(found) == []
    assert "Study Instance UID" in found.refused[0].detail


def test_a_uid_may_end_in_a_zero(tmp_path: Path) -> None:
    assert values(listed(tmp_path, "studyuid\n1.2.840.10.0\n")) == ["1.2.840.10.0"]


def test_an_empty_cell_beside_others_is_refused_and_a_blank_row_is_counted(
    tmp_path: Path,
) -> None:
    found = listed(tmp_path, "accession,age\n,50\n,\n\nA1,51\n")

    assert [(row.number, row.detail) for row in found.refused] == [(2, "the cell is empty")]
    assert found.blank_rows == 2


def test_a_row_with_more_cells_than_the_header_is_refused(tmp_path: Path) -> None:
    found = listed(tmp_path, "name,accession\nDoe, Jane,A1\n")

    assert found.studies == ()
    assert "more cells" in found.refused[0].detail


def test_a_duplicate_names_the_first_row(tmp_path: Path) -> None:
    found = listed(tmp_path, "accession\nDUP1\nA2\n DUP1 \n")

    assert values(found) == ["DUP1", "A2"]
    assert found.refused[0].outcome is RowOutcome.DUPLICATE
    assert (found.refused[0].number, found.refused[0].detail) == (4, "the same as row 2")


def test_lost_zeros_are_a_doubt_about_the_list(tmp_path: Path) -> None:
    numbers = [*range(1_000_000, 1_000_030), 51, 777]

    found = listed(tmp_path, "accession\n" + "\n".join(map(str, numbers)))

    assert len(found.studies) == 32
    assert "2 of 32 numeric accession numbers" in found.doubts[0].text


def test_kept_zeros_and_numbers_of_one_length_are_no_doubt(tmp_path: Path) -> None:
    kept = ["0000051", *map(str, range(1_000_000, 1_000_030)), "99"]
    same = list(map(str, range(1_000_000, 1_000_030)))

    for numbers in (kept, same):
        assert listed(tmp_path, "accession\n" + "\n".join(numbers)).doubts == ()


def test_sixteen_digits_that_all_end_in_zero_are_a_doubt(tmp_path: Path) -> None:
    numbers = [str(1_234_567_890_123_450 + 10 * step) for step in range(12)]

    assert "15 digits" in listed(tmp_path, "accession\n" + "\n".join(numbers)).doubts[0].text


@pytest.fixture
def parquet(tmp_path: Path):
    duckdb = pytest.importorskip("duckdb")

    def write(query: str, name: str = "studies.parquet") -> Path:
        file = tmp_path / name
        with duckdb.connect() as connection:
            connection.execute(f"COPY ({query}) TO '{file}' (FORMAT parquet)")
        return file

    return write


def test_text_in_parquet_is_read_as_it_is(parquet) -> None:
    file = parquet("SELECT * FROM (VALUES ('0007', 1), (NULL, NULL), ('A*', 2)) t(accession, age)")

    found = read_list(file)

    assert found.studies == (ListedStudy(2, "accession", "0007"),)
    assert found.blank_rows == 1
    assert [row.number for row in found.refused] == [4]
    assert found.doubts == ()


@pytest.mark.parametrize("kind", ["BIGINT", "UINTEGER", "DOUBLE", "DECIMAL(12,0)"])
def test_numbers_in_parquet_are_taken_as_whole_numbers_with_a_doubt(parquet, kind: str) -> None:
    file = parquet(f"SELECT 1234567::{kind} AS accession")

    found = read_list(file)

    assert values(found) == ["1234567"]
    assert "leading zeros are lost before Hilum sees them" in found.doubts[0].text


def test_a_number_that_is_not_exact_is_refused(parquet) -> None:
    found = read_list(parquet("SELECT 12345678901234567::DOUBLE AS accession"))

    assert found.studies == ()
    assert "not exact" in found.refused[0].detail


def test_dates_in_parquet_are_refused_as_a_list(parquet) -> None:
    with pytest.raises(ListError, match="holds DATE, and not text"):
        read_list(parquet("SELECT DATE '2024-01-02' AS accession"))


def test_a_name_with_signs_of_a_pattern_is_one_file(parquet) -> None:
    file = parquet("SELECT 'A1' AS accession", name="list[1]*.parquet")

    assert values(read_list(file)) == ["A1"]


def test_a_cut_parquet_file_is_an_error(parquet) -> None:
    file = parquet("SELECT 'A1' AS accession")
    file.write_bytes(file.read_bytes()[:-8])

    with pytest.raises(ListError, match="no whole Parquet file"):
        read_list(file)


def test_without_its_extra_parquet_names_the_command(
    parquet, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = parquet("SELECT 'A1' AS accession")
    monkeypatch.delitem(sys.modules, "duckdb", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_NoDuckdb(), *sys.meta_path])

    with pytest.raises(ListError, match=r'pip install "hilum\[parquet\]"'):
        read_list(file)


class _NoDuckdb:
    """An environment in which DuckDB is not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "duckdb":
            raise ModuleNotFoundError("No module named 'duckdb'", name="duckdb")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ListError, match="cannot be read"):
        read_list(tmp_path / "none.csv")


def test_a_row_key_depends_on_value_and_salt_and_shows_neither() -> None:
    key = row_key("0000123", b"salt")

    assert len(key) == 32
    assert key == row_key("0000123", b"salt")
    assert key != row_key("0000123", b"other")
    assert key != row_key("123", b"salt")


def test_a_row_key_without_a_salt_is_refused() -> None:
    with pytest.raises(ValueError, match="salt"):
        row_key("A1", b"")

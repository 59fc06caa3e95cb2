"""Every known trap has a test that names it, or stands in the list with the reason why not."""

from __future__ import annotations

from pathlib import Path

from deploy.tables.preprocessing import ROOT, known_traps, named_by_tests

FILES = sorted((ROOT / "tests").rglob("test_*.py"))


def test_every_trap_has_a_test_or_says_why_not():
    traps, without = known_traps()
    found = named_by_tests(FILES)
    assert list(traps) == list(range(1, 49))
    assert [number for number in traps if number not in found and number not in without] == []


def test_a_trap_that_has_a_test_is_not_open_any_more():
    _, without = known_traps()
    assert sorted(set(without) & set(named_by_tests(FILES))) == []


def test_no_test_names_a_trap_that_nobody_knows():
    assert sorted(set(named_by_tests(FILES)) - set(known_traps()[0])) == []


def test_docstrings_are_read_as_people_write_them():
    folder = ROOT / "tests" / "unit"
    guard, grayscale = (
        next(folder.rglob(f"test_preprocessing_{name}.py")) for name in ("guard", "grayscale")
    )
    found = named_by_tests([guard, grayscale])
    name = f"{named(guard)}::test_what_is_no_frontal_chest_radiograph_has_a_reason"
    assert [number for number in (21, 22, 23, 24) if name in found.get(number, ())] == [21, 22, 23]
    assert found[5] == [f"{named(grayscale)}::test_window_functions_at_their_edges"]


def named(file: Path) -> str:
    return file.relative_to(ROOT / "tests").as_posix()

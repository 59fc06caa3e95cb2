"""What `make bench-preprocess` compares gives the same tensor on both sides, and its result can be shown."""

from __future__ import annotations

import json

import numpy as np
import pytest

from deploy import generate_docs
from hilum_preprocessing import decode, read_file
from hilum_preprocessing.spec.reduction import choose_reduction
from load_tests.preprocess import run
from load_tests.preprocess.cases import _reducing_spec, cases
from load_tests.preprocess.syntaxes import SYNTAXES, plugins_for


def test_both_sides_make_the_same_tensor(tmp_path):
    """After fp16, which has steps of 0.5 below 1024.

    Whichever plug-in of pydicom is installed here: any of them, where one is named.
    """
    wanted = cases(tmp_path, (300, 256), 256)
    assert len(wanted) == 20
    decodable = [case for case in wanted if case.decoder is None or plugins_for(case.decoder[0])]
    for case in decodable:
        theirs, ours = case.theirs().astype(np.float64), case.ours().astype(np.float64)
        assert np.abs(theirs - ours).max() <= 0.3, case.name
    assert len(decodable) >= 16


def test_a_row_is_measured_only_with_the_decoder_that_it_names(tmp_path, capsys):
    wanted = cases(tmp_path, (64, 64), 64)
    kept, said = run.measurable(wanted), capsys.readouterr().err
    for case in wanted:
        is_there = case.decoder is None or case.decoder[1] in plugins_for(case.decoder[0])
        assert (case in kept) == is_there
        assert (f"left out: {case.name}: " in said) != is_there


@pytest.mark.parametrize("name", [name for name, syntax in SYNTAXES.items() if syntax.chosen])
def test_pydicom_chooses_the_decoder_that_a_row_names(name):
    """Where all of its plug-ins are installed."""
    from pydicom.pixels.decoders.base import get_decoder

    decoder = get_decoder(SYNTAXES[name].uid)
    tried = [
        *decoder._available,
        *decoder._unavailable,
    ]  # each in the order in which pydicom names them
    if SYNTAXES[name].chosen not in decoder.available_plugins:
        pytest.skip(f"{SYNTAXES[name].chosen} is not installed here")
    assert tried[0] == SYNTAXES[name].chosen


def test_the_decoder_alone_gives_the_stored_values(tmp_path):
    """Else the best ratio that the table states would be of something else."""
    for case in cases(tmp_path, (64, 64), 64):
        if case.codec is not None and case.decoder is not None:
            stored = decode(read_file(tmp_path / f"{case.decoder[0]}.dcm")).array
            assert np.array_equal(case.codec(), stored), case.name


def test_the_reduced_row_is_reduced_at_the_size_that_is_measured():
    """Else its goal would be held against the exact decode."""
    assert choose_reduction(_reducing_spec(), (2500, 2048), 5) == 2


def test_the_result_can_be_shown(tmp_path, capsys):
    around = {
        "measured_at": "2026-01-01",
        "machine": {"cores": 2, "cpu": "any", "load_average_before": 0.0},
    }
    rows = [run.measured(case, 1) for case in cases(tmp_path, (300, 256), 256)[:3]]
    goals = run.goals_of(rows, {"one": 10.0, "two": 19.0})
    run.show(rows, goals)
    assert "largest error" in capsys.readouterr().out
    assert [goal.holds for goal in goals][-2:] == [True, True]
    result = tmp_path / "result.json"
    result.write_text(
        json.dumps(run.as_json(rows, goals, {"one": 10.0, "two": 19.0}, around, (300, 256)))
    )
    table = "\n".join(generate_docs.preprocess_table(result))
    assert all(row.name in table for row in rows)
    assert "1.90 times one" in table

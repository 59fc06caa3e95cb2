"""Reports of several kinds against the templates of PS3.16, and that their validator sees what is wrong; it is started once for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pydicom.dataset import Dataset

from hilum.report import build_report
from testing.phantoms.phantom import make_study
from tests.support.reports import sr_gate
from tests.support.reports.heat_maps import explained
from tests.support.reports.read_back import items
from tests.support.reports.report_cases import CASES, TWO, rewritten
from tests.support.reports.report_variants import GOLDEN, VARIANTS, make
from tests.support.reports.results import CONTEXT, make_release

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore::UserWarning:pydicom"),
]


def with_a_heat_map(folder: Path) -> bytes:
    job, sources = explained(
        make_study(21, "CR", TWO, rows=96, columns=128), make_release(), folder
    )
    report = build_report(job, make_release(), CONTEXT, ("sr", "json", "heatmap"), sources)
    assert report.heat_map_left_out is None
    return report.documents[0].content


REPORTS: Mapping[str, Callable[[Path], bytes]] = {
    **{
        name: lambda _, name=name: CASES[name]()[1].content
        for name in ("dx_untrained_with_unused_lateral", "cr_superseding")
    },
    **{name: lambda _, name=name: make(VARIANTS[name]).sr.content for name in GOLDEN},
    "with_a_heat_map": with_a_heat_map,
}


def plain_chest(damaged: Dataset) -> None:
    (procedure,) = items(damaged, "121058")
    procedure.ConceptCodeSequence[0].CodeValue = "399208008"


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, sr_gate.Verdict]:
    """By report, and of two that are wrong, which come first.

    Those after it must not inherit what was said of it.
    """
    folder = tmp_path_factory.mktemp("reports")
    wrong = folder / "wrong_procedure.dcm"
    wrong.write_bytes(CASES["sc_calibrated"]()[1].content)
    rewritten(wrong, plain_chest)
    (folder / "nothing.dcm").touch()
    files = {"wrong_procedure": wrong, "nothing": folder / "nothing.dcm"}
    for name, content in REPORTS.items():
        files[name] = folder / f"{name}.dcm"
        files[name].write_bytes(content(folder))
    return dict(zip(files, sr_gate.judge_templates(list(files.values())), strict=True))


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_follows_the_templates(name: str, verdicts: Mapping[str, sr_gate.Verdict]) -> None:
    assert verdicts[name].complaints == ()


def test_the_template_validator_sees_a_wrong_procedure(
    verdicts: Mapping[str, sr_gate.Verdict],
) -> None:
    assert any("context group" in line for line in verdicts["wrong_procedure"].complaints)


def test_a_validator_that_says_nothing_is_no_verdict(
    verdicts: Mapping[str, sr_gate.Verdict],
) -> None:
    assert "no sign of life" in verdicts["nothing"].complaints

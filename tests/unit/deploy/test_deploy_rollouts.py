"""What dashboard and alerts say of rollouts, asked of Prometheus's own engine.

Queries give the numbers that their titles promise.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.reports.promtool import DEPLOY, require_promised

PANELS = {
    panel["title"]: panel
    for panel in json.loads((DEPLOY / "grafana/dashboards/hilum.json").read_text())["panels"]
}
PAIR, QUIET = 'release="chest@1", shadow="chest@2"', 'release="lung@1", shadow="lung@2"'
ROLLOUT = 'alias="chest", candidate="chest@2", mode="shadow", serving="chest@1"'
# A second pair compares as many studies and never disagrees: its flips have no series at all.
SERIES = {
    f'hilum_rollout{{{ROLLOUT}, state="running"}}': "1+0x2000",
    'hilum_prepare_seconds_count{release="chest@1"}': "0+120x2000",
    f"hilum_shadow_studies_total{{{PAIR}}}": "0+60x2000",
    f"hilum_shadow_studies_total{{{QUIET}}}": "0+60x2000",
    f'hilum_shadow_flips_total{{{PAIR}, finding="effusion"}}': "0+15x2000",
    f'hilum_shadow_flips_total{{{PAIR}, finding="nodule"}}': "0+15x2000",
    f'hilum_shadow_score_difference_bucket{{{PAIR}, le="0.25"}}': "0+0x2000",
    f'hilum_shadow_score_difference_bucket{{{PAIR}, le="0.5"}}': "0+60x2000",
    f'hilum_shadow_score_difference_bucket{{{PAIR}, le="+Inf"}}': "0+60x2000",
    # Two hosts, each of which says the same of the one ledger.
    **{
        f'hilum_queue_items{{stage="compare", priority="reanalysis", destination="", state="due", instance="{host}"}}': (
            "300+0x2000"
        )
        for host in "ab"
    },
}

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed (apt-get install prometheus)",
)


def promtool(tmp_path: Path, series: dict[str, str], **asked: Any) -> None:
    """What is asked of these series, one value a minute, is answered so."""
    given = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": "1m", "input_series": given, **asked}
    require_promised(test, tmp_path)


@pytest.mark.parametrize(
    ("title", "samples"),
    [
        ("Rollouts", [{f'{{{ROLLOUT}, state="running"}}': 1}]),
        ("Images prepared, by release", [{'{release="chest@1"}': 2}]),
        ("Flips in a study that a shadow read along", [{f"{{{PAIR}}}": 0.5, f"{{{QUIET}}}": 0}]),
        (
            "Difference of scores, shadow and reported",
            [{f"{{{PAIR}}}": 0.375}, {f"{{{PAIR}}}": 0.4875}],
        ),
        ("Studies that wait to be compared", [{'{state="due"}': 300}]),
    ],
)
def test_a_panel_shows_what_its_title_says(
    title: str, samples: list[dict[str, float]], tmp_path: Path
) -> None:
    expressions = [
        target["expr"].replace("$__rate_interval", "5m") for target in PANELS[title]["targets"]
    ]
    assert len(expressions) == len(samples)
    asked = [
        {
            "expr": expression,
            "eval_time": "30m",
            "exp_samples": [{"labels": name, "value": value} for name, value in found.items()],
        }
        for expression, found in zip(expressions, samples, strict=True)
    ]
    promtool(tmp_path, SERIES, promql_expr_test=asked)


def alert(
    name: str, at: str, labels: dict[str, str] | None, summary: str = "", description: str = ""
) -> dict[str, Any]:
    """Raised with these words, or (labels None) not."""
    raised = {
        "exp_labels": {"severity": "ticket", **(labels or {})},
        "exp_annotations": {"summary": summary, "description": description},
    }
    return {"eval_time": at, "alertname": name, "exp_alerts": [] if labels is None else [raised]}


def test_a_shadow_that_disagrees_or_falls_behind_for_a_day_is_said(tmp_path: Path) -> None:
    disagrees = alert(
        "HilumShadowDisagrees",
        "30m",
        {"release": "chest@1", "shadow": "chest@2"},
        "chest@2 and chest@1 decide differently 0.5 times in a study",
        "`hilum rollout show` says about which findings. Nothing of the shadow is reported.",
    )
    behind = alert(
        "HilumShadowBehind",
        "1441m",
        {},
        "300 studies wait to be compared, and a night was not enough",
        "The shadow costs more than this machine has to spare: `hilum rollout stop`, or another"
        " analyser.",
    )
    silent = [
        alert("HilumShadowBehind", "1439m", None),
        alert("HilumRolloutStuck", "30m", None),
        alert("HilumRolloutRefused", "30m", None),
    ]
    promtool(tmp_path, SERIES, alert_rule_test=[disagrees, behind, *silent])


def test_a_few_studies_are_no_disagreement(tmp_path: Path) -> None:
    few = {
        f"hilum_shadow_studies_total{{{PAIR}}}": "0+1x40",
        f'hilum_shadow_flips_total{{{PAIR}, finding="effusion"}}': "0+1x40",
    }
    promtool(tmp_path, few, alert_rule_test=[alert("HilumShadowDisagrees", "40m", None)])


def test_a_candidate_that_nobody_proves_and_one_that_is_refused_are_said(tmp_path: Path) -> None:
    labels = {"alias": "chest", "candidate": "chest@2"}
    stuck = alert(
        "HilumRolloutStuck",
        "11m",
        labels,
        "Nobody proves chest@2 for chest",
        "An analyser loads a candidate and either confirms or refuses it within a minute. GET"
        " /health/ready?role=analyse.",
    )
    refused = alert(
        "HilumRolloutRefused",
        "21m",
        labels,
        "chest@2 does not read for chest: it was not loaded in time, or gave wrong answers",
        "`hilum rollout show chest` says why. New studies are read as before.",
    )
    states = {
        f'hilum_rollout{{{ROLLOUT}, state="loading"}}': "1+0x19",
        f'hilum_rollout{{{ROLLOUT}, state="refused"}}': "_x19 1+0x19",
    }
    early = [alert("HilumRolloutStuck", "5m", None), alert("HilumRolloutRefused", "5m", None)]
    promtool(tmp_path, states, alert_rule_test=[*early, stuck, refused])

"""Every release of the repository gives a clean report and valid JSON.

Its names, codes and texts fit into both.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from hilum.models.manifest.catalogue import load_catalogue
from hilum.report import build_documents, json_schema, sr_text
from testing.phantoms.phantom import make_study, save
from tests.support.reports import sr_gate
from tests.support.reports.results import (
    CONTEXT,
    instance_of,
    reading_of,
    report_job,
    results_of,
    study_job,
)

RELEASES = load_catalogue(Path(__file__).parents[3] / "model_repository")


@pytest.mark.parametrize("name", RELEASES)
def test_a_release_of_the_repository_reports_cleanly(name, tmp_path):
    release = RELEASES[name]
    datasets = make_study(1, views=("PA",), rows=32, columns=32)
    instances = [instance_of(dataset) for dataset in datasets]
    logits = tuple(0.25 * number - 2 for number in range(len(release.labels)))
    (result,) = results_of(
        study_job(instances, [reading_of(instances[0], release, logits=logits)]), release
    )
    sr, plain = build_documents(report_job(instances, result), release, CONTEXT)
    Draft202012Validator(json_schema()).validate(json.loads(plain.content))
    report = tmp_path / "report.dcm"
    report.write_bytes(sr.content)
    sr_gate.assert_clean(
        report, [save(dataset, tmp_path / "source.dcm") for dataset in datasets], sr_gate.FAST
    )
    assert max(map(len, sr_text(sr.content).splitlines())) <= 80

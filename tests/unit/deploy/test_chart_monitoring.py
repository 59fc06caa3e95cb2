"""What the chart gives to Prometheus and KEDA rests on metrics that Hilum has.

No foreign schema is at hand for these kinds of the Prometheus operator (monitoring.coreos.com/v1)
and of KEDA (keda.sh/v1alpha1). Their required fields are written down here, unverified.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from deploy.chart import ROOT
from hilum.pipeline import STAGES
from tests.support.kubernetes.rendering import Object, example, named, of_kind, render

METRICS = (ROOT / "docs/reference/metrics.md").read_text()
RULES = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())


@pytest.fixture(scope="module")
def objects() -> list[Object]:
    (rendering,) = render([example("fleet")])
    assert rendering.error == ""
    return rendering.objects


def test_the_alerts_are_those_of_deploy_prometheus(objects: list[Object]) -> None:
    (rule,) = of_kind(objects, "PrometheusRule")
    assert rule["spec"] == RULES
    assert all(group["name"] and group["rules"] for group in rule["spec"]["groups"])


def test_the_scrape_has_the_job_that_the_alerts_ask_for(objects: list[Object]) -> None:
    (monitor,) = of_kind(objects, "ServiceMonitor")
    spec = monitor["spec"]
    service = named(objects, "Service", "hilum-metrics")
    assert spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    job = service["metadata"]["labels"][spec["jobLabel"]]
    asked = set(re.findall(r'job="(\w+)"', str(RULES)))
    assert asked == {job}
    (endpoint,) = spec["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["authorization"]["credentials"] == {"name": "hilum-scrape", "key": "token"}


def test_no_other_service_is_scraped(objects: list[Object]) -> None:
    (monitor,) = of_kind(objects, "ServiceMonitor")
    chosen = monitor["spec"]["selector"]["matchLabels"]
    found = [
        each["metadata"]["name"]
        for each in of_kind(objects, "Service")
        if chosen.items() <= each["metadata"]["labels"].items()
    ]
    assert found == ["hilum-metrics"]


def test_roles_are_scaled_by_metrics_and_stages_that_there_are(objects: list[Object]) -> None:
    scaled = of_kind(objects, "ScaledObject")
    assert len(scaled) == 3
    for each in scaled:
        for trigger in each["spec"]["triggers"]:
            _require_trigger(trigger)
            query = trigger["metadata"]["query"]
            for metric, selected in re.findall(r"(hilum_\w+)\{(.*?)\}", query):
                labels = _labels_of(metric)
                matched = dict(re.findall(r'(\w+)(?:=~|!=|=)"([^"]*)"', selected))
                assert matched.pop("namespace") == "hilum", "of the scrape"
                assert set(matched) <= labels, (metric, matched)
                assert set(matched.get("stage", "analyse").split("|")) <= set(STAGES)


@pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed (apt-get install prometheus)",
)
def test_prometheus_gives_the_number_that_keda_compares(
    objects: list[Object], tmp_path: Path
) -> None:
    """Two pods tell the same of the ledger, and it counts once; an empty queue is 0."""
    told = 'namespace="hilum",stage="analyse",priority="live",destination=""'
    series = {
        **{f'hilum_queue_items{{{told},state="due",pod="{pod}"}}': "40" for pod in "ab"},
        **{f'hilum_queue_oldest_age_seconds{{{told},pod="{pod}"}}': "33" for pod in "ab"},
        **{f'hilum_associations_open{{namespace="hilum",pod="{pod}"}}': "7" for pod in "ab"},
    }
    expected = {"listener": [14], "analyser": [33, 40], "dispatcher": [0, 0]}
    asked = [
        {"expr": trigger["metadata"]["query"], "eval_time": "1m", "exp_samples": [_sample(value)]}
        for role, values in expected.items()
        for trigger, value in zip(_triggers(objects, role), values, strict=True)
    ]
    file = tmp_path / "test.yml"
    inputs = [{"series": name, "values": f"{value}x9"} for name, value in series.items()]
    test = {"interval": "15s", "input_series": inputs, "promql_expr_test": asked}
    file.write_text(yaml.safe_dump({"tests": [test]}))
    done = subprocess.run(
        ["promtool", "test", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_role_that_is_scaled_has_no_number_of_replicas(objects: list[Object]) -> None:
    """Else each `helm upgrade` would set it back."""
    for each in of_kind(objects, "ScaledObject"):
        target = each["spec"]["scaleTargetRef"]
        deployment = named(objects, target["kind"], target["name"])
        assert target["apiVersion"] == deployment["apiVersion"]
        assert "replicas" not in deployment["spec"]
        assert 1 <= each["spec"]["minReplicaCount"] <= each["spec"]["maxReplicaCount"]
    assert named(objects, "Deployment", "hilum-api")["spec"]["replicas"] == 2


def _triggers(objects: list[Object], role: str) -> list[Object]:
    found: list[Object] = named(objects, "ScaledObject", f"hilum-{role}")["spec"]["triggers"]
    return found


def _sample(value: int) -> dict[str, object]:
    return {"labels": "{}", "value": value}


def _require_trigger(trigger: Object) -> None:
    assert trigger["type"] == "prometheus"
    assert trigger["metricType"] in ("Value", "AverageValue")
    metadata = trigger["metadata"]
    assert {"serverAddress", "query", "threshold"} <= set(metadata)
    assert all(isinstance(value, str) for value in metadata.values())
    assert float(metadata["threshold"]) > 0
    assert "hilum_" in metadata["query"]


def _labels_of(metric: str) -> set[str]:
    found = re.search(rf"^\| `{metric}` \| \w+ \| (.*?) \|", METRICS, flags=re.MULTILINE)
    assert found is not None, f"{metric} is no metric of Hilum"
    return set(re.findall(r"`(\w+)`", found[1]))

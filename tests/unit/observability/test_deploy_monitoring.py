"""Prometheus and Grafana files of deploy/: what they name must exist, and the alerts must fire."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from hilum.observability import telemetry
from tests.support.reports.metric_names import metric_names
from tests.support.reports.promtool import DEPLOY, require_promised

RULES = yaml.safe_load((DEPLOY / "prometheus/rules.yml").read_text())
DASHBOARD = json.loads((DEPLOY / "grafana/dashboards/hilum.json").read_text())
EXPRESSIONS = [rule["expr"] for group in RULES["groups"] for rule in group["rules"]]
EXPRESSIONS += [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_metrics_in_rules_and_dashboard_exist():
    named = {name for expression in EXPRESSIONS for name in re.findall(r"\bhilum_\w+", expression)}
    assert len(named) > 12
    assert named - metric_names() == set()


def test_labels_in_rules_and_dashboard_exist():
    labels = {
        label for metric in vars(telemetry).values() for label in getattr(metric, "_labelnames", ())
    }
    labels |= {label for _, names in telemetry.STATE_GAUGES.values() for label in names} | {"le"}
    lists = [
        found for expression in EXPRESSIONS for found in re.findall(r"\bby \(([^)]*)\)", expression)
    ]
    legends = [
        target["legendFormat"] for panel in DASHBOARD["panels"] for target in panel["targets"]
    ]
    grouped = {label.strip() for found in lists for label in found.split(",")}
    shown = {label for legend in legends for label in re.findall(r"{{(\w+)}}", legend)}
    assert len(grouped) > 3
    assert grouped | shown <= labels


def test_dashboard_panels_do_not_overlap():
    cells = [
        (panel["gridPos"]["x"] + dx, panel["gridPos"]["y"] + dy)
        for panel in DASHBOARD["panels"]
        for dx in range(panel["gridPos"]["w"])
        for dy in range(panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    ("kind", "file"), [("config --syntax-only", "prometheus.yml"), ("rules", "rules.yml")]
)
def test_promtool_accepts(kind: str, file: str):
    words = subprocess.run(
        ["promtool", "check", *kind.split(), DEPLOY / "prometheus" / file],
        capture_output=True,
        text=True,
        check=False,
    )
    assert words.returncode == 0, words.stdout + words.stderr


def test_prometheus_shows_a_token_that_compose_mounts():
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    jobs = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())["scrape_configs"]
    mounted = {volume.split(":")[1] for volume in compose["prometheus"]["volumes"]}
    assert [job["authorization"]["credentials_file"] for job in jobs] == [
        "/run/secrets/hilum_token"
    ]
    assert "/run/secrets/hilum_token" in mounted
    assert {
        target.split(":")[0]
        for job in jobs
        for group in job["static_configs"]
        for target in group["targets"]
    } <= set(compose)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_alerts_fire_and_stay_silent(tmp_path: Path):
    """A unit test of the rules by promtool.

    A stuck delivery raises its alert after 15 minutes, a healthy street none.
    """
    test = {
        "interval": "1m",
        "input_series": [
            {"series": 'up{job="hilum"}', "values": "1+0x30"},
            *(
                {
                    "series": (
                        'hilum_stuck_items{stage="deliver", destination="pacs",'
                        f' instance="{host}"}}'
                    ),
                    "values": "0 0 0 2+0x30",
                }
                for host in "ab"
            ),
            {"series": 'hilum_role_ready{role="receive"}', "values": "1+0x30"},
            {
                "series": 'hilum_certificate_expiry_timestamp_seconds{section="receive"}',
                "values": f"{29 * 86400 + 1200}+0x30",
            },
            {
                "series": (
                    'hilum_certificate_expiry_timestamp_seconds{section="destinations.pacs"}'
                ),
                "values": f"{31 * 86400}+0x30",
            },
            {"series": "hilum_archive_free_bytes", "values": "9e9+0x30"},
            {"series": "hilum_archive_reserve_bytes", "values": "2e9+0x30"},
        ],
        "alert_rule_test": [
            {"eval_time": "9m", "alertname": "HilumCertificateExpires", "exp_alerts": []},
            {
                "eval_time": "20m",
                "alertname": "HilumCertificateExpires",
                "exp_alerts": [certificate_alert()],
            },
            {"eval_time": "10m", "alertname": "HilumItemsStuck", "exp_alerts": []},
            {
                "eval_time": "20m",
                "alertname": "HilumItemsStuck",
                "exp_alerts": [stuck_alert()],
            },
            *(
                {"eval_time": "20m", "alertname": name, "exp_alerts": []}
                for name in ("HilumNotReady", "HilumGone", "HilumDiskAlmostFull")
            ),
        ],
    }
    require_promised(test, tmp_path)


NOT_PERMITTED = 'hilum_instances_received_total{outcome="rejection_note_not_permitted"}'
REFUSED, RESTARTS = (
    'hilum_instances_refused_total{status="0xA700"}',
    'hilum_process_restarts_total{role="analyser"}',
)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    ("series", "values", "name", "raised", "silent"),
    [
        (NOT_PERMITTED, "_x8 1x40", "HilumSenderNotPermitted", ["9m", "17m"], ["7m", "30m"]),
        (REFUSED, "_x8 40x40", "HilumImagesRefused", ["9m", "17m"], ["7m", "30m"]),
        (REFUSED, "0x8 40x40", "HilumImagesRefused", ["9m", "17m"], ["8m", "30m"]),
        (
            REFUSED,
            "_x8 40x20 _x15 3x20",
            "HilumImagesRefused",
            ["9m", "46m"],
            ["30m", "43m", "60m"],
        ),
        (REFUSED, "40x20 _x15 40x20", "HilumImagesRefused", [], ["15m", "36m", "37m", "45m"]),
        (REFUSED, "40x20 _x15 41x20", "HilumImagesRefused", ["37m"], ["15m", "55m"]),
        (RESTARTS, "9x20 _x20 9x20", "HilumProcessesRestart", [], ["41m", "50m"]),
        (REFUSED, "40x15 2x20", "HilumImagesRefused", ["17m", "24m"], ["14m", "30m"]),
        (REFUSED, "_x8 0x40", "HilumImagesRefused", [], ["9m", "30m"]),
        (RESTARTS, "_x8 4x40", "HilumProcessesRestart", ["9m", "22m"], ["7m", "30m"]),
        (RESTARTS, "_x8 2 3 4x40", "HilumProcessesRestart", ["10m", "22m"], ["9m", "30m"]),
        (RESTARTS, "_x8 3x40", "HilumProcessesRestart", [], ["9m", "20m", "30m"]),
    ],
    ids=[
        "a note",
        "first",
        "later",
        "after a pause",
        "a gap",
        "in a gap",
        "crashes before a gap",
        "after a restart",
        "none",
        "crashes",
        "more of them",
        "a few",
    ],
)
def test_what_was_before_the_first_scrape_is_said_and_not_for_ever(
    series: str, values: str, name: str, raised: list[str], silent: list[str], tmp_path: Path
):
    """A counter with labels has no series before it counts, so that Prometheus may see it begin with any number."""
    (rule,) = (
        rule for group in RULES["groups"] for rule in group["rules"] if rule.get("alert") == name
    )
    label, value = re.search(r'(\w+)="(\w+)"', series).groups()
    said = {
        key: text.replace(f"{{{{ $labels.{label} }}}}", value)
        for key, text in rule["annotations"].items()
    }
    alerts = [{"exp_labels": {"severity": "ticket", label: value}, "exp_annotations": said}]
    asked = [{"eval_time": at, "alertname": name, "exp_alerts": alerts} for at in raised]
    asked += [{"eval_time": at, "alertname": name, "exp_alerts": []} for at in silent]
    test = {
        "interval": "1m",
        "input_series": [{"series": series, "values": values}],
        "alert_rule_test": asked,
    }
    require_promised(test, tmp_path)


RUNNING = 'hilum_campaign_state{campaign="old", source="pacs", state="running"}'
READ = 'hilum_campaign_series{campaign="old", state="read"}'
DEAD = 'hilum_campaign_series{campaign="old", state="dead"}'
OUTSIDE_HOURS = 'hilum_source_waiting{source="pacs", cause="hours"}'
AWAY = 'hilum_source_waiting{source="pacs", cause="outage"}'


def campaign_labels(alert: str) -> dict[str, str]:
    """The labels of an alert on campaigns beside its name."""
    labels = {"severity": "ticket"}
    if alert != "HilumSourceAway":
        labels["campaign"] = "old"
    if alert != "HilumCampaignDead":
        labels["source"] = "pacs"
    return labels


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    ("series", "name", "raised", "silent"),
    [
        ({RUNNING: "1x200", READ: "5x200"}, "HilumCampaignStuck", ["75m"], ["50m"]),
        ({RUNNING: "1x200", READ: "5+1x200"}, "HilumCampaignStuck", [], ["75m", "150m"]),
        (
            {RUNNING: "1x200", READ: "5x200", OUTSIDE_HOURS: "1x80 0x120"},
            "HilumCampaignStuck",
            ["155m"],
            ["75m", "130m"],
        ),
        ({RUNNING: "0x80 1x120", READ: "5x200"}, "HilumCampaignStuck", ["155m"], ["75m", "130m"]),
        ({RUNNING: "0x200", READ: "5x200"}, "HilumCampaignStuck", [], ["75m", "150m"]),
        ({READ: "97x20", DEAD: "3x20"}, "HilumCampaignDead", ["5m"], []),
        ({READ: "96x20", DEAD: "3x20"}, "HilumCampaignDead", [], ["5m"]),
        ({READ: "990x20", DEAD: "9x20"}, "HilumCampaignDead", [], ["5m"]),
        ({AWAY: "1x60"}, "HilumSourceAway", ["20m"], ["10m"]),
        ({AWAY: "0x60", OUTSIDE_HOURS: "1x60"}, "HilumSourceAway", [], ["20m"]),
    ],
    ids=[
        "nothing ends",
        "series end",
        "outside its hours",
        "it was paused",
        "it is over",
        "three of a hundred",
        "below a hundred",
        "less than one of a hundred",
        "the source is away",
        "the source rests",
    ],
)
def test_alerts_of_campaigns_fire_and_stay_silent(
    series: dict[str, str], name: str, raised: list[str], silent: list[str], tmp_path: Path
):
    """Two hosts say the same, and it counts once."""
    alerts = [{"exp_labels": campaign_labels(name), "exp_annotations": campaign_words(name)}]
    asked = [{"eval_time": at, "alertname": name, "exp_alerts": alerts} for at in raised]
    asked += [{"eval_time": at, "alertname": name, "exp_alerts": []} for at in silent]
    given = [
        {"series": f'{key[:-1]}, instance="{host}"}}', "values": values}
        for key, values in series.items()
        for host in "ab"
    ]
    test = {"interval": "1m", "input_series": given, "alert_rule_test": asked}
    require_promised(test, tmp_path)


CLOCKS = 'hilum_host_problems{fault="clock"}'
NAMES = 'hilum_host_problems{fault="name"}'
VERSIONS = 'hilum_host_problems{fault="version"}'
SETTINGS = 'hilum_host_problems{fault="settings"}'
ARCHIVES = 'hilum_host_problems{fault="archive"}'
STORE = "hilum_archive_away{}"
TICKET = {"severity": "ticket"}
PAGE = {"severity": "page"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    ("series", "values", "name", "labels", "raised", "silent"),
    [
        (CLOCKS, "0x10 2x20 0x20", "HilumClockDiffers", TICKET, ["14m"], ["9m", "12m", "35m"]),
        (NAMES, "0x10 2x20 0x20", "HilumHostNameTwice", PAGE, ["13m"], ["9m", "11m", "35m"]),
        (
            VERSIONS,
            "2x60 0x20",
            "HilumHostsDoNotFit",
            {**TICKET, "fault": "version"},
            ["31m"],
            ["29m", "65m"],
        ),
        (SETTINGS, "2x40", "HilumHostsDoNotFit", {**TICKET, "fault": "settings"}, ["31m"], []),
        (ARCHIVES, "2x40", "HilumHostsDoNotFit", {**TICKET, "fault": "archive"}, ["31m"], []),
        (CLOCKS, "2x40", "HilumHostsDoNotFit", {}, [], ["35m"]),
        (NAMES, "2x40", "HilumHostsDoNotFit", {}, [], ["35m"]),
        (STORE, "0x5 1x20 0x20", "HilumArchiveAway", PAGE, ["12m"], ["4m", "9m", "30m"]),
    ],
    ids=[
        "clock",
        "name",
        "version",
        "settings",
        "archive",
        "a clock alone",
        "a name alone",
        "object store",
    ],
)
def test_alerts_of_hosts_fire_and_stay_silent(
    series: str,
    values: str,
    name: str,
    labels: dict[str, str],
    raised: list[str],
    silent: list[str],
    tmp_path: Path,
):
    """Each host says it of all hosts, and it counts once; of an object store each has its own view."""
    (rule,) = (
        rule for group in RULES["groups"] for rule in group["rules"] if rule.get("alert") == name
    )
    said = {
        key: text.replace("{{ $value }}", "2").replace(
            "{{ $labels.fault }}", labels.get("fault", "")
        )
        for key, text in rule["annotations"].items()
    }
    hosts = ["a", "b"]
    of_each = [{"instance": host} for host in hosts] if series == STORE else [{}]
    alerts = [{"exp_labels": {**labels, **own}, "exp_annotations": said} for own in of_each]
    asked = [{"eval_time": at, "alertname": name, "exp_alerts": alerts} for at in raised]
    asked += [{"eval_time": at, "alertname": name, "exp_alerts": []} for at in silent]
    joint = "" if series.endswith("{}") else ", "
    given = [
        {"series": f'{series[:-1]}{joint}instance="{host}"}}', "values": values} for host in hosts
    ]
    require_promised({"interval": "1m", "input_series": given, "alert_rule_test": asked}, tmp_path)


def campaign_words(name: str) -> dict[str, str]:
    """The annotations of an alert, with its labels and three of a hundred."""
    (rule,) = (
        rule for group in RULES["groups"] for rule in group["rules"] if rule.get("alert") == name
    )
    values = {
        "{{ $labels.campaign }}": "old",
        "{{ $labels.source }}": "pacs",
        "{{ $value | humanizePercentage }}": "3%",
    }
    said = {}
    for key, text in rule["annotations"].items():
        for placeholder, value in values.items():
            text = text.replace(placeholder, value)  # noqa: PLW2901 - one after the other
        said[key] = text
    return said


def certificate_alert() -> dict[str, dict[str, str]]:
    return {
        "exp_labels": {"severity": "ticket", "section": "receive"},
        "exp_annotations": {
            "summary": "The certificate of [receive] expires in 29d 0h 0m 0s",
            "description": (
                "TLS with it fails from then on. Put a new one in its place; [triton],"
                " [audit.syslog] and [archive] need a restart then. `hilum check` says its day."
            ),
        },
    }


def stuck_alert() -> dict[str, dict[str, str]]:
    return {
        "exp_labels": {"severity": "ticket", "stage": "deliver", "destination": "pacs"},
        "exp_annotations": {
            "summary": "2 items of deliver pacs need a person",
            "description": (
                "GET /api/v1/queues says for which reason. Then `hilum requeue deliver`."
            ),
        },
    }


def test_grafana_provisioning_points_at_what_compose_mounts():
    source = yaml.safe_load(
        (DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text()
    )["datasources"][0]
    assert source["url"] == "http://prometheus:9090"
    assert {panel["datasource"]["uid"] for panel in DASHBOARD["panels"]} == {source["uid"]}
    provider = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/hilum.yaml").read_text())[
        "providers"
    ][0]
    assert (
        f"./grafana/dashboards:{provider['options']['path']}:ro"
        in yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["grafana"]["volumes"]
    )


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize(
    ("urgent", "live", "fires"),
    [(11, 10, True), (10, 10, False), (11, 8, False), (0, 100, False)],
    ids=["more than half", "half", "too few studies", "none is urgent"],
)
def test_a_priority_that_most_studies_have_is_told(
    urgent: int, live: int, fires: bool, tmp_path: Path
):
    """Two hosts say the same, and it counts once; old studies do not count."""
    rows = {"urgent": urgent, "live": live, "reanalysis": 1000}
    given = [
        {
            "series": f'hilum_recent_studies{{priority="{name}", instance="{host}"}}',
            "values": f"{count}x30",
        }
        for name, count in rows.items()
        for host in "ab"
    ]
    words = {
        "summary": f"{urgent} studies of the last hour are urgent: more than half of all",
        "description": (
            "The priority has lost its meaning: see which rules, or orders of the worklist, are"
            " urgent (docs/operate/worklist.md)."
        ),
    }
    alerts = [{"exp_labels": {"severity": "ticket"}, "exp_annotations": words}] if fires else []
    asked = [{"eval_time": "20m", "alertname": "HilumMostStudiesUrgent", "exp_alerts": alerts}]
    test = {"interval": "1m", "input_series": given, "alert_rule_test": asked}
    require_promised(test, tmp_path)

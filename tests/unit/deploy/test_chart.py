"""Policies over every object that the chart renders, for each example of values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from deploy.chart import EXAMPLES, ROOT, Rendering, in_words
from hilum.cli.frame import app
from hilum.settings import Settings, load
from hilum.settings.own_paths import paths_named
from hilum.supervisor import supervisor
from tests.support.kubernetes.rendering import (
    Object,
    containers,
    example,
    named,
    of_kind,
    pods,
    render,
)

NAMES = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
SERVING = ("Deployment", "StatefulSet")


@pytest.fixture(scope="module")
def renderings() -> dict[str, Rendering]:
    found = render([example(name) for name in NAMES], is_checked=True)
    return dict(zip(NAMES, found, strict=True))


@pytest.fixture(params=NAMES)
def objects(renderings: Mapping[str, Rendering], request: pytest.FixtureRequest) -> list[Object]:
    """The objects of each example in turn."""
    rendering = renderings[request.param]
    assert rendering.error == ""
    return rendering.objects


@pytest.mark.parametrize("name", NAMES)
def test_the_api_of_the_oldest_and_of_the_newest_version_takes_each_object(
    renderings: Mapping[str, Rendering], name: str
) -> None:
    assert renderings[name].invalid == []


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_what_make_chart_prints(
    renderings: Mapping[str, Rendering], name: str
) -> None:
    page = (ROOT / "docs/operate/kubernetes.md").read_text()
    assert f"\n{name}.yaml: {in_words(renderings[name])}\n" in page


def test_no_container_may_more_than_it_needs(objects: list[Object]) -> None:
    for name, pod in pods(objects):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        assert spec["enableServiceLinks"] is False, name
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] == _user_of_the_image(), name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec), name
        assert not [volume for volume in spec["volumes"] if "hostPath" in volume], name
        for container, _ in containers(pod):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, (name, container["name"])


def test_each_container_has_requests_and_limits(objects: list[Object]) -> None:
    for name, pod in pods(objects):
        for container, _ in containers(pod):
            for kind in ("requests", "limits"):
                given = container["resources"][kind]
                assert {"cpu", "memory"} <= set(given), (name, container["name"], kind)


def test_each_image_has_a_tag_or_a_digest(objects: list[Object]) -> None:
    for _, pod in pods(objects):
        for container, _ in containers(pod):
            assert re.fullmatch(r".+(:[\w.-]+|@sha256:[0-9a-f]{64})", container["image"])
            assert not container["image"].endswith(":latest")


def test_each_container_that_serves_has_three_probes(objects: list[Object]) -> None:
    for each in of_kind(objects, *SERVING):
        (container,) = each["spec"]["template"]["spec"]["containers"]
        ports = {port["name"] for port in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            found = container[probe]
            assert "exec" in found or found["httpGet"]["port"] in ports


def test_each_mount_has_its_volume_and_a_folder_that_is_written_is_a_volume(
    objects: list[Object],
) -> None:
    for name, pod in pods(objects):
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
        claims = _own_claims(objects, name)
        for container, _ in containers(pod):
            paths = {mount["mountPath"] for mount in container["volumeMounts"]}
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes | claims
            assert "/tmp" in paths, (name, container["name"])


def test_secrets_stand_nowhere_but_in_secrets(objects: list[Object]) -> None:
    """No object of the chart is one, and a variable with a secret refers to one."""
    assert of_kind(objects, "Secret") == []
    for name, pod in pods(objects):
        for container, _ in containers(pod):
            for entry in container["env"]:
                if re.search("TOKEN$|PASSWORD|LEDGER__URL", entry["name"]):
                    assert set(entry["valueFrom"]["secretKeyRef"]) == {"name", "key"}, name


def test_each_role_has_a_deployment_a_budget_and_its_probe(objects: list[Object]) -> None:
    judged = {"listener": "receive", "analyser": "analyse", "dispatcher": "deliver"}
    for role in ("listener", "analyser", "dispatcher", "api"):
        deployment = named(objects, "Deployment", f"hilum-{role}")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert container["args"] == ["serve", "--role", role]
        path = container["readinessProbe"]["httpGet"]["path"]
        assert role not in judged or f"role={judged[role]}" in path
        budget = named(objects, "PodDisruptionBudget", f"hilum-{role}")["spec"]
        assert budget["maxUnavailable"] == 1
        assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_every_selector_finds_pods_of_its_own_and_no_others(objects: list[Object]) -> None:
    labels = {name: pod["metadata"]["labels"] for name, pod in pods(objects)}
    for each in of_kind(objects, *SERVING):
        chosen = each["spec"]["selector"]["matchLabels"]
        assert _chosen(chosen, labels) == {each["metadata"]["name"]}
    for each in of_kind(objects, "PodDisruptionBudget"):
        chosen = each["spec"]["selector"]["matchLabels"]
        assert _chosen(chosen, labels) == {each["metadata"]["name"]}
    for each in of_kind(objects, "NetworkPolicy"):
        for chosen in _pod_selectors(each["spec"]):
            assert _chosen(chosen, labels), (each["metadata"]["name"], chosen)


def test_every_service_finds_pods_with_its_port(objects: list[Object]) -> None:
    for each in of_kind(objects, "Service"):
        found = [
            pod
            for _, pod in pods(objects)
            if each["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
        ]
        assert found, each["metadata"]["name"]
        for port in each["spec"]["ports"]:
            for pod in found:
                (container,) = pod["spec"]["containers"]
                assert port["targetPort"] in {each["name"] for each in container["ports"]}


def test_every_named_port_of_a_policy_is_one_of_its_pods(objects: list[Object]) -> None:
    for each in of_kind(objects, "NetworkPolicy"):
        chosen = each["spec"]["podSelector"]["matchLabels"]
        ports = {
            port["name"]
            for _, pod in pods(objects)
            if chosen.items() <= pod["metadata"]["labels"].items()
            for container in pod["spec"]["containers"]
            for port in container.get("ports", ())
        }
        for rule in each["spec"].get("ingress", ()):
            assert {port["port"] for port in rule["ports"]} <= ports


def test_senders_keep_their_addresses(objects: list[Object]) -> None:
    service = named(objects, "Service", "hilum-dicom")
    assert service["spec"]["externalTrafficPolicy"] == "Local"


def test_the_port_of_a_node_is_that_of_the_first_port_that_there_is() -> None:
    """Else senders that are set to it find nothing once DICOM is over TLS alone."""
    service = {"type": "NodePort", "nodePort": 31112}
    tls = {"secret": "hilum-dicom-tls"}
    plain, alone, both = render(
        [
            example("cpu", listener__service=service),
            example("cpu", listener__service=service, listener__tls=tls),
            example(
                "cpu", listener__service=service, listener__tls={**tls, "allowUnencrypted": True}
            ),
        ]
    )
    found = [
        {
            port["name"]: port.get("nodePort")
            for port in named(each.objects, "Service", "hilum-dicom")["spec"]["ports"]
        }
        for each in (plain, alone, both)
    ]
    assert found == [{"dicom": 31112}, {"dicom-tls": 31112}, {"dicom": 31112, "dicom-tls": None}]


def test_a_pod_has_the_time_to_finish_its_work(objects: list[Object]) -> None:
    """The hook, then the drain of `hilum serve`, then the embedded Triton, with something over."""
    needed = supervisor._DRAIN_SECONDS + Settings().triton.exit_timeout_seconds
    for each in of_kind(objects, "Deployment"):
        spec = each["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        hook = container.get("lifecycle", {}).get("preStop", {"exec": {"command": ["sleep", "0"]}})
        word, seconds = hook["exec"]["command"]
        assert word == "sleep"
        assert spec["terminationGracePeriodSeconds"] >= int(seconds) + needed + 10


@pytest.mark.parametrize("name", NAMES)
def test_hilum_loads_the_settings_of_each_container(
    renderings: Mapping[str, Rendering],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A variable with a typo ends this, and so does a file that no volume brings."""
    objects = renderings[name].objects
    file = tmp_path / "hilum.toml"
    file.write_text(named(objects, "ConfigMap", "hilum-settings")["data"]["hilum.toml"])
    for _, pod in pods(objects):
        for container, _ in containers(pod):
            if "hilum" not in container["image"].split("/")[-1]:
                continue
            with monkeypatch.context() as patch:
                for entry in container["env"]:
                    patch.setenv(entry["name"], entry.get("value", _SECRETS))
                settings = load(file)
            _require_files(settings, container)
            assert str(settings.site.state_dir) == "/var/lib/hilum"


def test_hilum_has_the_commands_of_each_container(objects: list[Object]) -> None:
    for _, pod in pods(objects):
        for container, _ in containers(pod):
            if "hilum" in container["image"].split("/")[-1]:
                _parse(container["args"])


def test_roles_wait_for_a_job_that_migrates_and_is_a_new_one_for_a_new_version() -> None:
    usual, again, newer, changed = render(
        [
            example("cpu"),
            example("cpu", analyser__replicas=2),
            example("cpu", image__tag="0.2.0"),
            example("cpu", settings="[site]\nname = 'Other'\n"),
        ]
    )
    names = [_job(each)["metadata"]["name"] for each in (usual, again, newer, changed)]
    assert names[0] == names[1], "an upgrade without a change there runs nothing"
    assert len(set(names)) == 3
    assert _job(usual)["spec"]["template"]["spec"]["containers"][0]["args"][0] == "migrate"
    for each in of_kind(usual.objects, "Deployment"):
        first = each["spec"]["template"]["spec"]["initContainers"][0]
        assert first["args"][:2] == ["ledger", "wait"]


def test_an_upgrade_stops_all_roles_first_where_that_is_asked_for() -> None:
    rolling, stopping = render([example("cpu"), example("cpu", upgrade__stopFirst=True)])
    for each in of_kind(rolling.objects, "Deployment"):
        assert each["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    for each in of_kind(stopping.objects, "Deployment"):
        assert each["spec"]["strategy"] == {"type": "Recreate"}
    assert _job(rolling)["metadata"]["name"] != _job(stopping)["metadata"]["name"], (
        "one that gave up because roles were at work does not run again"
    )


def test_analysers_know_each_triton_by_a_name_of_its_own(renderings: Mapping[str, Rendering]):
    objects = renderings["fleet"].objects
    pod = named(objects, "Deployment", "hilum-analyser")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    (urls,) = [
        yaml.safe_load(entry["value"])
        for entry in container["env"]
        if entry["name"] == "HILUM_TRITON__URLS"
    ]
    expected = [
        f"{each['metadata']['name']}-{number}.{each['spec']['serviceName']}.hilum.svc"
        ".cluster.local:8001"
        for each in of_kind(objects, "StatefulSet")
        for number in range(each["spec"]["replicas"])
    ]
    assert len(urls) == 3
    assert sorted(urls) == sorted(expected)
    assert named(objects, "Service", "hilum-triton")["spec"]["clusterIP"] == "None"


def test_a_pool_builds_its_plans_where_it_serves_them(renderings: Mapping[str, Rendering]) -> None:
    objects = renderings["fleet"].objects
    spec = named(objects, "StatefulSet", "hilum-triton-l4")["spec"]["template"]["spec"]
    models, plans = spec["initContainers"]
    (triton,) = spec["containers"]
    assert models["args"] == ["models", "build", "--profile", "tensorrt"]
    assert plans["image"] == triton["image"] == _image_of_compose()
    assert plans["args"] == ["python3", "/deploy/build_plans.py", "build", "/models/tensorrt"]
    assert triton["args"][:3] == ["/bin/sh", "/deploy/start.sh", "/models/tensorrt"]
    for container in (plans, triton):
        assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert spec["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-L4"}
    scripts = named(objects, "ConfigMap", "hilum-triton-scripts")["data"]
    for name, text in scripts.items():
        assert text.strip() == (ROOT / "deploy/tensorrt" / name).read_text().strip()


def test_a_triton_takes_the_options_that_compose_gives_it(renderings: Mapping[str, Rendering]):
    spec = named(renderings["fleet"].objects, "StatefulSet", "hilum-triton-a10")
    (triton,) = spec["spec"]["template"]["spec"]["containers"]
    compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
    command = compose["services"]["triton"]["command"]
    assert [word for word in triton["args"] if not word.startswith("--grpc-")] == command


_SECRETS = "postgresql+psycopg://hilum@/hilum"  # stands for the value of each Secret


def _user_of_the_image() -> int:
    found = re.search(r"useradd --uid (\d+)", (ROOT / "deploy/Dockerfile").read_text())
    assert found is not None
    return int(found[1])


def _image_of_compose() -> str:
    compose = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
    return str(compose["services"]["triton"]["image"])


def _own_claims(objects: list[Object], name: str) -> set[str]:
    """Volumes that a StatefulSet makes for each of its pods."""
    return {
        claim["metadata"]["name"]
        for each in of_kind(objects, "StatefulSet")
        if each["metadata"]["name"] == name
        for claim in each["spec"]["volumeClaimTemplates"]
    }


def _chosen(chosen: Mapping[str, str], labels: Mapping[str, Mapping[str, str]]) -> set[str]:
    return {name for name, given in labels.items() if chosen.items() <= given.items()}


def _pod_selectors(spec: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
    yield spec["podSelector"]["matchLabels"]
    for rule in (*spec.get("ingress", ()), *spec.get("egress", ())):
        for peer in (*rule.get("from", ()), *rule.get("to", ())):
            if "podSelector" in peer:
                yield peer["podSelector"]["matchLabels"]


def _require_files(settings: Settings, container: Object) -> None:
    mounted = [Path(mount["mountPath"]) for mount in container["volumeMounts"]]
    sections = {name: getattr(settings, name) for name in Settings.model_fields}
    for setting, path in paths_named(sections):
        if str(path).startswith(("/etc/hilum", "/srv")) and "models" not in container["args"]:
            assert any(path.is_relative_to(mount) for mount in mounted), (setting, path)


def _parse(words: list[str]) -> None:
    """Raises click's error for a command or an option that is not there."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    command.make_context(command.name, list(words))


def _job(rendering: Rendering) -> Object:
    (found,) = of_kind(rendering.objects, "Job")
    return found

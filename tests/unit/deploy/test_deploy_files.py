"""Files of deploy/ that no code imports: each is parsed, and what it names must exist."""

from __future__ import annotations

import configparser
import ipaddress
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import yaml

from hilum.models.manifest.catalogue import load_catalogue
from hilum.settings import DicomDestination, Settings, describe, load
from hilum.withheld_reports import in_place, refusals
from tests.support.rules.studies import facts, rule_of

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def instructions(path: Path) -> list[tuple[str, str]]:
    """Dockerfile instructions, continuation lines joined."""
    text = re.sub(r"\\\n", " ", path.read_text())
    lines = [
        line.strip()
        for line in text.splitlines()
        if line.strip() and not line.strip().startswith("#")
    ]
    return [(word.upper(), rest) for word, _, rest in (line.partition(" ") for line in lines)]


DOCKERFILE = instructions(DEPLOY / "Dockerfile")


def copied() -> Iterator[str]:
    """Paths of the build context that the Dockerfile copies."""
    for word, rest in DOCKERFILE:
        arguments = [item for item in shlex.split(rest) if not item.startswith("--")]
        if word == "COPY" and "--from" not in rest:
            yield from arguments[:-1]


def test_dockerfile_copies_only_what_exists_and_is_in_the_context():
    paths = list(copied())
    assert len(paths) >= 5
    assert [path for path in paths if not (ROOT / path).exists()] == []
    allowed = [
        line[1:]
        for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    assert [
        path
        for path in paths
        if not any(path == item or path.startswith(f"{item}/") for item in allowed)
    ] == []


def test_what_the_package_is_built_from_is_copied_before():
    """pyproject.toml names a readme and two source roots.

    Without them the build in the image fails.
    """
    assert {"pyproject.toml", "README.md", "server", "preprocessing"} <= set(copied())


def test_environment_in_dockerfile_compose_and_unit_names_settings():
    known = {"HILUM_" + name.upper().replace(".", "__") for name, *_ in describe()} | {
        "HILUM_CONFIG"
    }
    dockerfile = re.findall(r"\bHILUM_\w+(?==)", environment_of_image())
    compose = [
        name for service in COMPOSE["services"].values() for name in service.get("environment", {})
    ]
    unit = re.findall(r"\bHILUM_\w+(?==)", unit_file()["Service"]["Environment"])
    named = {name for name in (*dockerfile, *compose, *unit) if name.startswith("HILUM_")}
    assert len(named) >= 5
    assert named <= known


def test_compose_is_whole():
    services = COMPOSE["services"]
    assert {name: service.get("profiles", []) for name, service in services.items()} == {
        "models": [],
        "hilum": [],
        "triton": ["cpu"],
        "triton-gpu": ["gpu"],
        "postgres": ["postgresql"],
        "orthanc": ["pacs"],
        "prometheus": ["monitoring"],
        "grafana": ["monitoring"],
    }
    for name, service in services.items():
        assert service["image"], name
        assert set(service.get("depends_on", {})) <= set(services), name
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert (
                source in COMPOSE["volumes"] if not source.startswith(".") else is_there(source)
            ), volume


def test_compose_keeps_the_schema_of_its_specification():
    """The schema is that of docker-compose 1.29.2 on PyPI (Apache-2.0), which knew no `name` yet."""
    schema = json.loads((Path(__file__).parent / "compose_spec.json").read_text())
    content = {key: value for key, value in COMPOSE.items() if key != "name"}
    errors = jsonschema.Draft201909Validator(schema).iter_errors(content)
    assert [error.message for error in errors] == []
    broken = {**content, "services": {"hilum": {"prots": []}}}
    assert not jsonschema.Draft201909Validator(schema).is_valid(broken)


def test_profiles_of_compose_are_explained_and_one_triton_has_the_name():
    head = (DEPLOY / "compose.yaml").read_text().partition("\nname:")[0]
    profiles = {
        name for service in COMPOSE["services"].values() for name in service.get("profiles", [])
    }
    assert [name for name in sorted(profiles) if f"#   {name} " not in head] == []
    gpu, cpu = COMPOSE["services"]["triton-gpu"], COMPOSE["services"]["triton"]
    assert gpu["networks"]["triton"]["aliases"] == ["triton"]
    assert gpu["command"] == cpu["command"]


def test_postgres_of_compose_is_seen_by_hilum_only():
    services = COMPOSE["services"]
    assert "ports" not in services["postgres"]
    assert COMPOSE["networks"]["ledger"]["internal"] is True
    assert [name for name, item in services.items() if "ledger" in item.get("networks", [])] == [
        "hilum",
        "postgres",
    ]


def is_there(source: str) -> bool:
    """In the repository, or made by the steps at the head of the file."""
    return (DEPLOY / source).exists() or f"> deploy/{source.removeprefix('./')}" in (
        DEPLOY / "compose.yaml"
    ).read_text()


def test_compose_gives_prometheus_its_own_token_and_nobody_one_for_all():
    mounts = dict(volume.split(":")[:2] for volume in COMPOSE["services"]["prometheus"]["volumes"])
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())
    (job,) = (job for job in config["scrape_configs"] if job["job_name"] == "hilum")
    assert mounts["./secrets/prometheus_token"] == job["authorization"]["credentials_file"]
    assert "HILUM_API__TOKEN" not in (DEPLOY / "compose.yaml").read_text()
    assert "/deploy/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


def test_compose_publishes_only_dicom_beyond_loopback():
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == ["11112:11112"]


def test_compose_gives_hilum_time_to_drain_and_triton_the_built_models():
    hilum, triton = COMPOSE["services"]["hilum"], COMPOSE["services"]["triton"]
    assert int(hilum["stop_grace_period"].removesuffix("s")) > 30
    assert hilum["environment"]["HILUM_TRITON__URL"] == "triton:8001"
    assert COMPOSE["services"]["models"]["command"] == [
        "models",
        "build",
        "--profile",
        "onnxruntime",
    ]
    assert "--model-repository=/models/onnxruntime" in triton["command"]
    assert "models:/var/lib/hilum/models" in hilum["volumes"]


def test_triton_of_compose_sees_models_only_and_is_seen_by_hilum_only():
    services = COMPOSE["services"]
    triton = services["triton"]
    assert triton["volumes"] == ["models:/models:ro"], "the state volume holds all patients"
    assert "ports" not in triton
    assert triton["networks"] == ["triton"]
    assert COMPOSE["networks"]["triton"]["internal"] is True
    assert [
        name for name, service in services.items() if "triton" in service.get("networks", [])
    ] == ["triton", "triton-gpu", "hilum"]
    assert {"--http-address=127.0.0.1", "--allow-metrics=false"} <= set(triton["command"])
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", triton["user"])


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_a_service_of_compose_has_no_rights_that_it_does_not_need(name: str):
    service = COMPOSE["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["ulimits"] == {"core": 0}
    assert not {"privileged", "cap_add", "pid", "ipc", "devices"} & set(service)
    assert not any("docker.sock" in volume for volume in service.get("volumes", []))


def test_compose_has_no_default_password():
    """Each secret is a file that the steps at the head of compose.yaml make."""
    for service in COMPOSE["services"].values():
        mounted = {volume.split(":")[1] for volume in service.get("volumes", [])}
        secrets = {
            key: value
            for key, value in service.get("environment", {}).items()
            if re.search("PASSWORD|TOKEN|SECRET", key)
        }
        assert all(key.endswith("_FILE") for key in secrets), secrets
        assert set(secrets.values()) <= mounted
    assert "GF_SECURITY_ADMIN_PASSWORD__FILE" in COMPOSE["services"]["grafana"]["environment"]
    assert "POSTGRES_PASSWORD_FILE" in COMPOSE["services"]["postgres"]["environment"]
    assert (
        "./secrets/prometheus_token:/run/secrets/hilum_token:ro"
        in COMPOSE["services"]["prometheus"]["volumes"]
    )


def test_the_steps_of_compose_make_the_secrets(tmp_path: Path):
    lines = (DEPLOY / "compose.yaml").read_text().splitlines()
    steps = [
        line.removeprefix("#   ")
        for line in lines
        if re.match("#   (umask|printf|openssl|:) ", line)
    ]
    subprocess.run(["bash", "-euc", "\n".join(steps)], cwd=tmp_path, check=True)
    made = dict(line.split("=", 1) for line in (tmp_path / "deploy/.env").read_text().splitlines())
    used = set(re.findall(r"\$\{(\w+):", (DEPLOY / "compose.yaml").read_text()))
    assert set(made) == used | {"COMPOSE_PROFILES"}
    assert set(made["COMPOSE_PROFILES"].split(",")) == {"cpu", "monitoring"}
    password = (tmp_path / "deploy/secrets/postgres_password").read_text().strip()
    assert made["HILUM_LEDGER_URL"] == f"postgresql+psycopg://hilum:{password}@postgres/hilum"
    assert (tmp_path / "deploy/secrets/prometheus_token").read_text() == "", (
        "its token is made when Hilum runs"
    )
    assert len((tmp_path / "deploy/secrets/grafana_password").read_text().strip()) == 24
    assert (tmp_path / "deploy/.env").stat().st_mode & 0o077 == 0
    assert (tmp_path / "deploy/secrets").stat().st_mode & 0o077 == 0


def test_images_are_named_by_digest():
    images = [
        service["image"] for service in COMPOSE["services"].values() if service["image"] != "hilum"
    ]
    images += [
        rest.partition("=")[2]
        for word, rest in DOCKERFILE
        if word == "ARG" and rest.startswith("PYTHON_IMAGE=")
    ]
    assert len(images) == 7
    assert [
        image
        for image in images
        if not re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", image)
    ] == []


def test_triton_of_compose_is_newer_than_its_known_flaws():
    """NVIDIA's bulletins of August 2025: up to 25.06."""
    year, month = re.search(
        r"tritonserver:(\d+)\.(\d+)-py3", COMPOSE["services"]["triton"]["image"]
    ).groups()
    assert (int(year), int(month)) > (25, 6)


def unit_file() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read(DEPLOY / "systemd/hilum.service")
    return parser


def test_systemd_unit_is_hardened_and_patient():
    service = unit_file()["Service"]
    assert int(service["TimeoutStopSec"]) > 30
    assert service["ExecStart"].endswith("hilum serve")
    assert {
        service[key]
        for key in (
            "NoNewPrivileges",
            "ProtectHome",
            "PrivateTmp",
            "PrivateIPC",
            "RemoveIPC",
            "PrivateUsers",
        )
    } == {"yes"}
    assert service["ProtectSystem"] == "strict"
    assert service["ProtectProc"] == "invisible"
    assert service["CapabilityBoundingSet"] == service["AmbientCapabilities"] == ""
    assert (service["LimitCORE"], service["MemoryMax"], service["TasksMax"], service["UMask"]) == (
        "0",
        "80%",
        "8192",
        "0077",
    )


def test_shared_memory_of_the_unit_is_its_own_and_open_to_its_user():
    """The mode decides: a folder as TemporaryFileSystem= makes it is root's."""
    place, _, options = unit_file()["Service"]["TemporaryFileSystem"].partition(":")
    assert place == "/dev/shm"
    assert {"mode=1777", "nosuid", "nodev", "noexec"} <= set(options.split(","))


def test_the_unit_leaves_the_embedded_triton_what_it_shuts_itself_in_with():
    """Without capset(2) or Landlock it does not start.

    @privileged has the one, and an older @system-service lacks the others.
    """
    lines = re.findall(
        r"^SystemCallFilter=(.*)$", (DEPLOY / "systemd/hilum.service").read_text(), re.MULTILINE
    )
    assert lines[0].split() == ["@system-service"]
    assert {
        "landlock_create_ruleset",
        "landlock_add_rule",
        "landlock_restrict_self",
        "seccomp",
        "capset",
    } <= set(lines[-1].split())
    assert unit_file()["Service"]["SystemCallErrorNumber"] == "EPERM"


def test_the_unit_reaches_private_networks_and_no_others():
    service = unit_file()["Service"]
    assert service["IPAddressDeny"] == "any"
    networks = [
        ipaddress.ip_network(word) for word in service["IPAddressAllow"].split() if "/" in word
    ]
    assert len(networks) == 4
    assert all(network.is_private for network in networks)


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
@pytest.mark.parametrize("drop_ins", [(), ("gpu.conf",)], ids=["alone", "with a GPU"])
def test_the_unit_is_rated_below_two(tmp_path: Path, drop_ins: tuple[str, ...]):
    unit = tmp_path / "hilum.service"
    shutil.copy(DEPLOY / "systemd/hilum.service", unit)
    (tmp_path / "hilum.service.d").mkdir()
    for name in drop_ins:
        shutil.copy(DEPLOY / "systemd" / name, tmp_path / "hilum.service.d")
    words = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", unit],
        capture_output=True,
        text=True,
        check=False,
    )
    (score,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", words.stdout)
    assert float(score) < 2.0, words.stdout
    assert score == ("1.6" if drop_ins else "1.4"), "docs/operate/operations.md names both"


def steps() -> list[str]:
    """What docs/operate/operations.md has root do for the unit."""
    (block,) = re.findall(
        r"^```sh systemd\n(.*?)^```",
        (ROOT / "docs/operate/operations.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    return [re.sub(r" {2,}# .*", "", line) for line in block.splitlines()]


def test_the_steps_give_unit_commands_and_image_one_installation(tmp_path: Path):
    """Settings that only the unit had would leave `sudo -u hilum hilum ...` with another ledger, new and empty."""
    service, named = (
        unit_file()["Service"],
        dict(re.findall(r"(HILUM_\w+)=(\S+)", environment_of_image())),
    )
    assert re.findall(r"\bHILUM_\w+=\S+", service["Environment"]) == [
        "HILUM_CONFIG=/etc/hilum/hilum.toml"
    ]
    assert "WorkingDirectory" not in service
    (edit,) = (step for step in steps() if step.endswith(" > /etc/hilum/hilum.toml"))
    subprocess.run(edit.replace("/etc/hilum", str(tmp_path)), shell=True, cwd=ROOT, check=True)
    settings = load(tmp_path / "hilum.toml")
    assert (
        str(settings.site.state_dir)
        == f"/var/lib/{service['StateDirectory']}"
        == named["HILUM_SITE__STATE_DIR"]
    )
    assert str(settings.manifests_dir) == named["HILUM_MODELS__MANIFESTS"]
    assert f"cp -r model_repository {settings.manifests_dir.parent}/" in steps()
    assert [
        path
        for path in re.findall(r"\bdeploy/[\w/.]+", "\n".join(steps()))
        if not (ROOT / path).exists()
    ] == []


@pytest.mark.skipif(
    shutil.which("systemd-sysusers") is None, reason="systemd-sysusers is not installed"
)
def test_the_unit_runs_as_a_user_that_the_steps_make(tmp_path: Path):
    (tmp_path / "etc").mkdir()
    subprocess.run(
        ["systemd-sysusers", f"--root={tmp_path}", DEPLOY / "systemd/hilum.sysusers"],
        check=True,
        capture_output=True,
    )
    made = [line.split(":")[0] for line in (tmp_path / "etc/passwd").read_text().splitlines()]
    assert made == [unit_file()["Service"]["User"]]
    assert {step.split()[2] for step in steps() if step.startswith("sudo -u ")} == set(made)


def environment_of_image() -> str:
    return " ".join(rest for word, rest in DOCKERFILE if word == "ENV")


@pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)
def test_systemd_reads_the_unit(tmp_path: Path):
    program = tmp_path / "hilum"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "hilum.service"
    unit.write_text(
        (DEPLOY / "systemd/hilum.service").read_text().replace("/opt/hilum/bin/hilum", str(program))
    )
    words = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    assert [line for line in words.stderr.splitlines() if "hilum" in line] == []
    assert words.returncode == 0, words.stderr


def test_example_settings_load_and_are_the_defaults_but_for_the_destination():
    settings = load(DEPLOY / "hilum.toml")
    assert set(settings.destinations) == {"pacs"}
    default = Settings()
    assert settings.receive == default.receive
    assert settings.studies == default.studies
    assert settings.models == default.models


def test_reports_of_the_examples_releases_arrive_at_its_destination():
    settings = load(DEPLOY / "hilum.toml")
    releases = load_catalogue(ROOT / "model_repository", settings.active_releases)
    assert refusals(settings, in_place(settings, releases, [])) == []
    assert not DicomDestination().accept_untrained, (
        "who does not ask for them gets no results of untrained weights"
    )


def test_what_is_commented_out_in_the_example_is_right_too(tmp_path: Path):
    """Every `# name = value` with its comment sign removed must load as well."""
    text = re.sub(
        r"^# (?=\w+ += |\[(destinations|senders|commitment|sources|worklist\]|\[rules))",
        "",
        (DEPLOY / "hilum.toml").read_text(),
        flags=re.MULTILINE,
    )
    path = tmp_path / "hilum.toml"
    path.write_text(text)
    settings = load(path)
    assert set(settings.destinations) == {"pacs", "outbox", "archive", "fhir", "ris", "worklist"}
    assert settings.triton.url == "triton:8001"
    assert settings.worklist.address == "RIS@ris.example.org:104"
    assert rule_of(settings, facts("MOBILE_DR", Modality="DX")) == "mobile"
    assert settings.senders["ARCHIVE"].transfer_syntaxes == (
        "JPEG2000Lossless",
        "ExplicitVRLittleEndian",
    )


@pytest.mark.parametrize("script", ["deploy/setup.sh", "deploy/debian-packages.sh", ".ci/run"])
def test_scripts_are_executable_and_parse(script: str):
    path = ROOT / script
    assert path.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", path], check=True)
    assert "set -euo pipefail" in path.read_text()


def test_makefile_targets_are_described_and_run_something_that_exists():
    text = (ROOT / "Makefile").read_text()
    phony = set(re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)[1].split())
    assert phony == set(re.findall(r"^([a-z-]+):.*##", text, re.MULTILINE))
    assert [
        path
        for path in re.findall(r"\b(?:deploy|tests)/[\w/.-]+", text)
        if not (ROOT / path).exists()
    ] == []

"""What the image may be: pinned, without root, compilers and secrets, with its lists and a health check."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from hilum.settings import Settings
from load_tests.proof.container.dockerfile import Instruction, command, pairs, read
from load_tests.proof.container.inventory import COMPONENTS, LICENCES

ROOT = Path(__file__).resolve().parents[3]
FILE = read((ROOT / "deploy/Dockerfile").read_text(encoding="utf-8"))
BUILD, LAST = FILE.stages


def only(word: str) -> Instruction:
    (found,) = (each for each in LAST.instructions if each.word == word)
    return found


def test_every_base_is_named_by_digest_and_none_is_the_latest():
    for stage in FILE.stages:
        assert re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", stage.base)
        assert ":latest" not in stage.base


def test_it_runs_as_a_user_with_a_number_that_kubernetes_can_check():
    assert only("USER").rest == "10001:10001"
    words = [each.word for each in LAST.instructions]
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert not [each for each in LAST.instructions[words.index("USER") :] if each.word == "RUN"]


def test_its_health_is_asked_at_the_port_of_the_settings():
    asked = only("HEALTHCHECK")
    assert f"127.0.0.1:{Settings().api.port}/health/live" in asked.rest
    assert set(asked.flags) == {"--interval", "--timeout", "--start-period"}


def test_its_ports_are_those_of_the_settings_and_its_volume_the_state_folder():
    settings = Settings()
    assert only("EXPOSE").rest.split() == [str(settings.receive.port), str(settings.api.port)]
    assert f"HILUM_SITE__STATE_DIR={only('VOLUME').rest}" in only("ENV").rest


def test_it_ends_as_docker_stops_it():
    assert only("STOPSIGNAL").rest == "SIGTERM"
    assert command(only("ENTRYPOINT").rest) == ["hilum"]


def test_packages_are_installed_while_it_is_made_and_not_in_its_last_stage():
    programs = {"apt-get", "apt", "pip", "curl", "wget", "git"}
    runs = [each.rest for each in LAST.instructions if each.word == "RUN"]
    assert not [word for rest in runs for word in shlex.split(rest) if word in programs]
    assert any("apt-get install" in each.rest for each in BUILD.instructions)


def test_what_the_last_stage_gets_is_hilum_and_its_lists():
    copied = {
        (each.flags.get("--from", "the context"), *each.rest.split())
        for each in LAST.instructions
        if each.word == "COPY"
    }
    assert copied == {
        ("build", "/opt/hilum", "/opt/hilum"),
        ("build", "/sbom", str(Path(COMPONENTS).parent)),
        ("the context", "model_repository", "/usr/share/hilum/model_repository"),
    }
    assert Path(COMPONENTS).parent == Path(LICENCES).parent


def test_no_program_keeps_the_rights_of_another_user():
    assert any("-perm /6000" in each.rest for each in LAST.instructions if each.word == "RUN")


@pytest.mark.parametrize("stage", FILE.stages, ids=["build", "last"])
def test_no_secret_is_an_argument_or_a_variable(stage):
    names = [
        each.rest.partition("=")[0]
        for each in stage.instructions
        if each.word in ("ARG", "ENV", "LABEL")
    ]
    assert not [name for name in names if re.search("PASS|TOKEN|SECRET|KEY|CREDENTIAL", name, re.I)]
    text = " ".join(str(each) for each in stage.instructions)
    assert not re.search(r"https?://[^/\s]+@", text), "an address with a password"


def test_labels_say_what_it_is_and_of_which_commit_and_base():
    known = {"REVISION": "abc", "PYTHON_IMAGE": FILE.arguments["PYTHON_IMAGE"]}
    labels = pairs(only("LABEL").rest, known)
    prefix = "org.opencontainers.image."
    assert labels[f"{prefix}revision"] == "abc"
    assert labels[f"{prefix}licenses"] == "Apache-2.0"
    assert labels[f"{prefix}base.name"] == LAST.base


def test_time_does_not_change_its_bytes():
    """`SOURCE_DATE_EPOCH` for what is made, and bytecode that holds no time."""
    for stage in FILE.stages:
        assert [
            each for each in stage.instructions if str(each).startswith("ARG SOURCE_DATE_EPOCH=")
        ]
    text = " ".join(str(each) for each in BUILD.instructions)
    assert "PIP_NO_COMPILE=1" in text
    assert "--invalidation-mode unchecked-hash" in text


def test_both_variants_of_torch_have_a_lock():
    """The arguments for a GPU stand in the Dockerfile's remarks."""
    named = re.findall(r"TORCH_LOCK=([\w.-]+)", (ROOT / "deploy/Dockerfile").read_text())
    assert set(named) == {"torch-cpu.txt", "torch-cuda.txt"}
    assert [name for name in named if not (ROOT / "deploy/lock" / name).exists()] == []

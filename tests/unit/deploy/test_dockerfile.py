"""The interpreter of deploy/Dockerfile that `make image-proof` uses: what it reads, what it refuses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from load_tests.proof.container import installation
from load_tests.proof.container.context import Context, NotInContext
from load_tests.proof.container.dockerfile import NotUnderstood, command, filled, pairs, read

ROOT = Path(__file__).resolve().parents[3]


def test_the_image_of_the_repository_is_understood():
    first, second = read((ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")).stages
    assert (first.name, second.name) == ("build", "")
    assert first.base == second.base


def test_stages_have_a_base_a_name_and_their_instructions():
    found = read(
        "ARG A=base:1\nFROM ${A} AS one\nRUN make \\\n  # a remark\n  all\nFROM $A\nUSER 7\n"
    )
    assert dict(found.arguments) == {"A": "base:1"}
    one, last = found.stages
    assert (one.base, one.name, [str(each) for each in one.instructions]) == (
        "base:1",
        "one",
        ["RUN make all"],
    )
    assert (last.base, last.name) == ("base:1", "")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ADD https://example.org/x /x", "ADD is not carried out here"),
        ("RUN --mount=type=cache,target=/x true", "RUN --mount"),
        ("COPY --chown=1:1 a b", "COPY --chown"),
        ("ONBUILD RUN true", "ONBUILD is not"),
    ],
)
def test_what_would_be_done_otherwise_by_docker_is_refused(line: str, said: str):
    with pytest.raises(NotUnderstood, match=said):
        read(f"FROM base\n{line}\n")


def test_a_file_without_a_base_is_refused():
    with pytest.raises(NotUnderstood, match="without FROM"):
        read("ARG A=1\n")


def test_values_are_put_in_and_an_unknown_name_is_refused():
    assert filled("$A/${B}", {"A": "x", "B": "y"}) == "x/y"
    assert pairs('PATH=/new:$PATH NAME="two words"', {"PATH": "/old"}) == {
        "PATH": "/new:/old",
        "NAME": "two words",
    }
    with pytest.raises(NotUnderstood, match="C has no value"):
        filled("${C}", {})


def test_a_command_has_the_json_form():
    assert command('["hilum", "serve"]') == ["hilum", "serve"]
    with pytest.raises(NotUnderstood, match="JSON form"):
        command("hilum serve")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    for name in ("kept/a.py", "kept/deep/b.so", "kept/c.so.1", "state/ledger.sqlite", "alone.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "ignore").write_text("# remark\n*\n!kept\n!alone.toml\n**/*.so*\n")
    return Context.of(tmp_path, tmp_path / "ignore")


def test_the_context_has_what_the_last_matching_rule_lets_through(context: Context):
    assert list(context.files("kept")) == ["kept/a.py"]
    assert list(context.files("alone.toml")) == ["alone.toml"]


def test_a_path_outside_the_context_cannot_be_copied(context: Context):
    with pytest.raises(NotInContext, match="state is not in the build context"):
        list(context.files("state"))


@pytest.mark.parametrize(
    "path",
    [
        ".venv/bin/python",
        ".git/config",
        ".env",
        "state/ledger.sqlite",
        "dist/wheelhouse/torch.whl",
        "tests/support/objects/x.dcm",
        "load_tests/results/proof.json",
        "deploy/secrets/prometheus_token",
        "deploy/.env",
        "deploy/hilum.toml",
        "server/hilum/receive/storage/transfer.so",
        "server/hilum/__pycache__/x.pyc",
        "preprocessing/hilum_preprocessing.egg-info/PKG-INFO",
        "shared/data/nih_png/x.png",
    ],
)
def test_the_context_of_the_image_is_without_state_secrets_and_test_data(path: str):
    assert not Context.of(ROOT, ROOT / "deploy/Dockerfile.dockerignore").has(path)


def test_the_steps_without_a_network_take_wheels_by_hash_from_the_folder():
    said = installation.steps()
    assert "--require-hashes" in said
    assert "PIP_NO_INDEX=1" in said
    assert set(re.findall(r"-r (\S+)", said)) == {"torch-cpu.txt", "server.txt"}

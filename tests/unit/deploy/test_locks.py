"""The lock files: exact, whole, and what pyproject.toml asks for."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from deploy import write_locks

FOLDER = Path(write_locks.ROOT) / "deploy" / "lock"
SCRIPTS = (
    "deploy/setup.sh",
    "deploy/Dockerfile",
    "deploy/write_locks.py",
    "docs/models/profiles.md",
    "tests/integration/models/test_tensorrt_rtx.py",
)


ENTRY = re.compile(r"([a-z0-9-]+)==([\w.]+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)")
ALL = sorted(path.name for path in FOLDER.glob("*.txt"))


def pins(name: str) -> dict[str, str]:
    return write_locks.pins_of((FOLDER / name).read_text())


@pytest.mark.parametrize("name", ALL)
def test_a_lock_is_exact_pins_with_hashes_and_names_no_index(name: str):
    text = re.sub(r"^#.*\n", "", (FOLDER / name).read_text(), flags=re.MULTILINE)
    left = ENTRY.sub("", text)
    assert left.strip() == "", "a line that is no pin with hashes"
    assert len(pins(name)) == len(ENTRY.findall(text)) > 0


def test_a_pin_without_a_hash_would_be_noticed():
    assert ENTRY.sub("", "torch==2.13.0\n").strip() != ""
    assert write_locks.hashes_of("one==1\ntwo==2 \\\n    --hash=sha256:" + "a" * 64) == {
        "one": set(),
        "two": {"a" * 64},
    }


@pytest.mark.parametrize("name", write_locks.LOCKS)
def test_a_lock_pins_what_pyproject_asks_for(name: str):
    pinned = pins(name)
    for requirement in write_locks.declared(write_locks.LOCKS[name]):
        if requirement.name in write_locks.APART:
            continue
        version = pinned.get(write_locks.canonical(requirement.name))
        assert version, f"{requirement.name} is not in {name}: make lock"
        assert requirement.specifier.contains(version), f"{requirement} and {version} in {name}"


@pytest.mark.parametrize("name", write_locks.LOCKS)
def test_a_lock_is_closed_and_holds_nothing_else(name: str):
    """Names, not versions: a developer's environment may be newer for a while, what it requires must be pinned."""
    assert (
        set(pins(name))
        == set(write_locks.closure(write_locks.declared(write_locks.LOCKS[name])))
        - write_locks.APART
    )


def test_the_build_has_a_lock_of_its_own():
    assert set(pins("build.txt")) == set(write_locks.closure(write_locks.built_with()))
    assert pins("build.txt").items() <= pins("dev.txt").items(), (
        "set-up builds with it, without pip's build environment"
    )


@pytest.mark.parametrize("group", write_locks.GROUPS)
def test_a_group_is_pinned_as_pyproject_asks_for_it(group: str):
    groups = tomllib.loads((write_locks.ROOT / "pyproject.toml").read_text())["dependency-groups"]
    assert set(groups) == {*write_locks.GROUPS, "triton"}, "the lock of triton has its own test"
    for requirement in map(Requirement, groups[group]):
        assert requirement.specifier.contains(pins(f"{group}.txt")[requirement.name])


def test_both_locks_agree():
    server, dev = pins("server.txt"), pins("dev.txt")
    assert server.items() <= dev.items()
    assert "pytest" not in server


def test_both_builds_of_torch_are_one_version_and_bring_nothing_that_the_server_has():
    """A local version (2.13.0+cpu) would lock GPU machines out."""
    library = tomllib.loads((write_locks.ROOT / "preprocessing/pyproject.toml").read_text())
    (torch,) = (
        requirement
        for requirement in map(Requirement, library["project"]["dependencies"])
        if requirement.name == "torch"
    )
    assert set(pins("torch-cpu.txt")) == {"torch"}
    assert pins("torch-cpu.txt")["torch"] == pins("torch-cuda.txt")["torch"]
    assert torch.specifier.contains(pins("torch-cpu.txt")["torch"])
    assert not set(pins("torch-cuda.txt")) & set(pins("dev.txt"))
    assert "torch" not in write_locks.lock_text(())


@pytest.mark.parametrize("name", ["Makefile", *SCRIPTS])
def test_what_installs_checks_hashes_and_asks_one_index(name: str):
    """With a second index, the one with the higher version of a name answers for it, also of a name that is not its own."""
    text = (write_locks.ROOT / name).read_text()
    assert "extra-index-url" not in text.lower()
    assert "trusted-host" not in text
    installs = [
        line
        for line in text.splitlines()
        if re.search(r"pip\b.* install\b", line) and "-r" in line.split()
    ]
    unchecked = [
        line for line in installs if not re.search(r"--require-hashes|PIP_LOCKED|LOCKED\)", line)
    ]
    assert unchecked == [] or "PIP_REQUIRE_HASHES=1" in text


def test_a_file_with_another_hash_is_refused(tmp_path: Path):
    """Of pip itself, with the options of the set-up: no index is asked."""
    wheel = tmp_path / "closed-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            "closed-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: closed\nVersion: 1.0\n"
        )
        archive.writestr(
            "closed-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("closed-1.0.dist-info/RECORD", "")
    lock = tmp_path / "lock.txt"
    right = sha256(wheel.read_bytes()).hexdigest()
    done = []
    for value in (right, "0" * 64):
        lock.write_text(f"closed==1.0 \\\n    --hash=sha256:{value}\n")
        options = [
            "--no-deps",
            "--require-hashes",
            "--only-binary",
            ":all:",
            "--no-index",
            "--find-links",
            tmp_path,
            "--target",
            tmp_path / value,
        ]
        done.append(
            subprocess.run(
                [sys.executable, "-m", "pip", "install", *options, "-r", lock],
                capture_output=True,
                text=True,
                check=False,
            )
        )
    assert done[0].returncode == 0, done[0].stderr
    assert done[1].returncode != 0
    assert "DO NOT MATCH THE HASHES" in done[1].stderr, "deploy/setup.sh looks for these words"

"""The lock files: exact, whole, and what pyproject.toml asks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from deploy import write_locks

FOLDER = Path(write_locks.ROOT) / "deploy" / "lock"


def pins(name: str) -> dict[str, str]:
    lines = [line for line in (FOLDER / name).read_text().splitlines() if not line.startswith("#")]
    found = [re.fullmatch(r"([a-z0-9-]+)==([\w.]+)", line) for line in lines]
    assert all(found), f"not an exact pin in {name}"
    return {match[1]: match[2] for match in found if match}


@pytest.mark.parametrize("name", write_locks.LOCKS)
def test_a_lock_pins_what_pyproject_asks_for(name: str):
    pinned = pins(name)
    for requirement in write_locks.declared(write_locks.LOCKS[name]):
        version = pinned.get(write_locks.canonical(requirement.name))
        assert version, f"{requirement.name} is not in {name}: make lock"
        assert requirement.specifier.contains(version), f"{requirement} and {version} in {name}"


@pytest.mark.parametrize("name", write_locks.LOCKS)
def test_a_lock_is_closed_and_holds_nothing_else(name: str):
    """Names, not versions: a developer's environment may be newer for a while, what it requires must be pinned."""
    assert set(pins(name)) == set(write_locks.closure(write_locks.declared(write_locks.LOCKS[name])))


def test_both_locks_agree():
    server, dev = pins("server.txt"), pins("dev.txt")
    assert server.items() <= dev.items()
    assert "pytest" not in server


def test_a_local_version_is_not_pinned():
    """torch 2.13.0+cpu would lock GPU machines out."""
    assert "+" not in write_locks.lock_text(("server",))
    assert write_locks.closure([Requirement("torch")])["torch"] == pins("server.txt")["torch"]

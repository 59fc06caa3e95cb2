"""Bundles before two validators of others. Neither finds all that may be wrong, so both are asked.

fhir.resources knows FHIR's structure and primitive types (R4B; these resources are R4's). npm's
fhir has the profiles of R4 and the codes that they require.
"""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.fhir.bundles import CASES, Bundle, analysed
from tests.support.models.releases import REPOSITORY

_HERE: Final = REPOSITORY / "tests/support/fhir"
_PYTHON: Final = REPOSITORY / ".venv/peers/bin/python"
_NODE_MODULES: Final = REPOSITORY / ".venv/fhir"


def _models() -> list[str]:
    found = list(Path(_PYTHON).parents[1].glob("lib/*/site-packages/fhir"))
    if not found:
        pytest.skip("fhir.resources is in .venv/peers: make test installs it")
    return [str(_PYTHON), str(_HERE / "r4b_models.py")]


def _profiles() -> list[str]:
    node = shutil.which("node")
    if node is None or not (_NODE_MODULES / "node_modules/fhir").exists():
        pytest.skip("npm's fhir is in .venv/fhir: make test installs it where node and npm are")
    return [node, str(_HERE / "r4_profiles.js"), str(_NODE_MODULES)]


every_validator = pytest.mark.parametrize("validator", [_models, _profiles])


def problems(command: list[str], bundles: list[Bundle]) -> list[str]:
    done = subprocess.run(
        command, input=json.dumps(bundles), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


@every_validator
def test_every_kind_of_result_is_valid(validator: Callable[[], list[str]]) -> None:
    found = problems(validator(), [made() for made in CASES.values()])

    assert dict(zip(CASES, found, strict=True)) == dict.fromkeys(CASES, "")


def broken(number: int, change: Callable[[dict[str, Any]], object]) -> Bundle:
    bundle = copy.deepcopy(analysed())
    change(bundle["entry"][number]["resource"])
    return bundle


OBSERVATION: Final = 2
DEVICE: Final = 0
BROKEN: Final = {
    "code outside its list": broken(OBSERVATION, lambda item: item.update(status="bogus")),
    "missing": broken(OBSERVATION, lambda item: item.pop("code")),
    "unknown": broken(OBSERVATION, lambda item: item.update(probability=1)),
    "two values": broken(OBSERVATION, lambda item: item.update(valueString="a")),
    "no instant": broken(OBSERVATION, lambda item: item.update(issued="2026")),
    "empty": broken(DEVICE, lambda item: item.update(manufacturer="")),
}


@pytest.mark.parametrize(
    ("validator", "misses"),
    [
        (_models, {"code outside its list"}),
        (_profiles, {"two values", "no instant", "empty"}),
    ],
)
def test_each_validator_finds_what_the_other_misses(
    validator: Callable[[], list[str]], misses: set[str]
) -> None:
    found = problems(validator(), list(BROKEN.values()))

    silent = {name for name, text in zip(BROKEN, found, strict=True) if not text}
    assert silent == misses

"""Library and server under each version of Python that pyproject.toml names.

Whichever has an environment here: `make pythons` makes those of 3.12 and 3.13.
"""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parents[3]
VERSIONS = ("3.11", "3.12", "3.13")
SOURCES = (ROOT, ROOT / "server", ROOT / "preprocessing")


@pytest.fixture(scope="module", params=VERSIONS)
def python(request: pytest.FixtureRequest) -> Path:
    """An interpreter of this version whose environment has the server's packages."""
    version = request.param
    folders = (ROOT / ".venv", ROOT / f"state/python{version}")
    for folder in folders:
        if (folder / f"lib/python{version}/site-packages/highdicom").is_dir():
            return folder / "bin/python"
    pytest.skip(f"no environment of Python {version} with the server's packages: make pythons")


def run(python: Path, *arguments: str) -> str:
    """Standard output. The sources come first, so that no environment needs them installed."""
    done = subprocess.run(
        [python, "-W", "error::SyntaxWarning", *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, SOURCES))},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_an_image_a_report_and_a_received_object(python: Path) -> None:
    lines = dict(
        line.split(" ", 1)
        for line in run(python, "-m", "tests.support.server.other_python").splitlines()
    )
    assert lines.pop("python") in VERSIONS
    assert lines == {
        "modules": "True",
        "settings": "True",
        "tensor": "(1, 224, 224)",
        "sr": "1.2.840.10008.5.1.4.1.1.88.34",
        "received": "1",
    }


def test_the_command_explains_itself(python: Path) -> None:
    assert "triton" in run(python, "-m", "hilum", "--help")
    assert "install" in run(python, "-m", "hilum", "triton", "--help")


@pytest.mark.parametrize("project", ["pyproject.toml", "preprocessing/pyproject.toml"])
def test_both_distributions_name_these_versions_and_no_other(project: str) -> None:
    found = tomllib.loads((ROOT / project).read_text(encoding="utf-8"))["project"]
    named = SpecifierSet(found["requires-python"])
    minors = [f"3.{minor}" for minor in range(8, 20)]
    assert tuple(each for each in minors if named.contains(f"{each}.0")) == VERSIONS
    languages = [each for each in found["classifiers"] if "Python" in each]
    assert languages == [f"Programming Language :: Python :: {each}" for each in VERSIONS]

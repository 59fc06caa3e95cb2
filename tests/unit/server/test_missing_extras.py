"""An installation without an extra.

Each command says in one sentence which one is missing and how to install it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from hilum.missing_extra import EXTRAS, sentence

ROOT = Path(__file__).resolve().parents[3]
_OPTIONAL = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
# tensorrt-rtx is installed from a lock of its own, as its message says.
EXTRAS_OF_COMMANDS = ("embedded", "models")

_WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Without(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Without())
sys.argv = ["hilum", *{arguments!r}]
from hilum.__main__ main_import
main()
""".replace("main_import", "import main")


def modules_of(extra: str) -> set[str]:
    return {module for module, brought_by in EXTRAS.items() if brought_by == extra}


def run(missing: set[str], *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = _WITHOUT.format(missing=missing, arguments=arguments)
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=120,
    )


@pytest.mark.parametrize(
    "arguments", [("models", "new", "chest.onnx"), ("models", "build", "densenet121_untrained@1")]
)
def test_without_the_build_tools_a_command_that_needs_them_names_their_extra(tmp_path, arguments):
    settings = (
        f'[site]\nstate_dir = "{tmp_path}/state"\n[models]\nmanifests = "{ROOT}/model_repository"\n'
    )
    (tmp_path / "hilum.toml").write_text(settings, encoding="utf-8")
    (tmp_path / "chest.onnx").write_bytes(b"")
    answer = run(modules_of("models"), *arguments, cwd=tmp_path)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.endswith('it comes with the extra "models": pip install "hilum[models]"\n')
    assert "Traceback" not in answer.stderr


def test_a_module_of_no_extra_is_a_bug_and_shows_its_traceback(tmp_path):
    answer = run({"tomllib"}, "check", cwd=tmp_path)
    assert answer.returncode == 1
    assert "Traceback" in answer.stderr
    assert sentence(ModuleNotFoundError(name="hilum.gone")) is None


@pytest.mark.parametrize("extra", EXTRAS_OF_COMMANDS)
def test_each_package_of_an_extra_has_its_modules_in_the_table(extra):
    packages = packages_distributions()
    for requirement in _OPTIONAL[extra]:
        name = re.match(r"[\w.-]+", requirement).group()
        provided = {
            module
            for module, distributions in packages.items()
            if _plain(name) in map(_plain, distributions)
        }
        assert provided, f"{name} is not installed here"
        assert provided & EXTRAS.keys(), f"{name} ({', '.join(sorted(provided))}) is in no row"


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()

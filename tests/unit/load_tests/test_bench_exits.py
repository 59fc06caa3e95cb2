"""That a program of the Makefile which holds figures against goals tells its caller by its exit code."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from load_tests.bench import report
from testing.serving import REPOSITORY

_MODULES = sorted(
    set(re.findall(r"-m (load_tests[.\w]+)", (REPOSITORY / "Makefile").read_text(encoding="utf-8")))
)


def test_all_programs_are_looked_at() -> None:
    assert {
        "load_tests.load.run",
        "load_tests.proof",
        "load_tests.bench.report",
    } <= set(_MODULES)
    assert len(_MODULES) >= 15


@pytest.mark.parametrize("name", _MODULES)
def test_main_gives_an_exit_code_that_the_process_ends_with(name: str) -> None:
    path = REPOSITORY / name.replace(".", "/")
    tree = ast.parse(
        (path / "__main__.py" if path.is_dir() else path.with_suffix(".py")).read_text(
            encoding="utf-8"
        )
    )
    main = next(
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "main"
    )
    assert main.returns is not None
    assert ast.unparse(main.returns) == "int"
    assert ast.unparse(tree.body[-1]).endswith("sys.exit(main())")


def test_a_run_ends_as_its_goals_say(tmp_path: Path) -> None:
    code = report.main(["--rounds", "1", "--result", str(tmp_path / "result.json")])
    goals = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))["goals"]
    assert code == (0 if all(goal["holds"] for goal in goals) else 1)

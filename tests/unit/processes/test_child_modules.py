"""Each role's process has a module with `run`."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

from hilum.processes import child


@pytest.mark.parametrize("role", child._MODULES)
def test_the_module_of_a_role_has_its_run(role: str) -> None:
    found = find_spec(f"hilum.processes.{child._MODULES[role]}")

    assert found is not None
    assert found.origin is not None
    module = ast.parse(Path(found.origin).read_text(encoding="utf-8"))
    assert "run" in {item.name for item in module.body if isinstance(item, ast.FunctionDef)}

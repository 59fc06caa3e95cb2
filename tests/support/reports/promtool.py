"""Unit tests of the alert rules, by Prometheus's own promtool."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"


def require_promised(test: dict[str, Any], folder: Path) -> None:
    """Fail unless promtool finds for these series what a test of its format expects."""
    path = folder / "test.yml"
    path.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(DEPLOY / "prometheus/rules.yml")],
                "evaluation_interval": "1m",
                "tests": [test],
            }
        )
    )
    done = subprocess.run(
        ["promtool", "test", "rules", path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

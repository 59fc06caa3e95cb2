"""The chart, rendered by the real Helm in its own environment."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import yaml

from deploy.chart import EXAMPLES, ROOT, Rendering

PROGRAM = ROOT / ".venv/chart/bin/python"
Object = dict[str, Any]


def render(asked: Sequence[Mapping[str, Any]], *, is_checked: bool = False) -> list[Rendering]:
    """One rendering for each set of values; `is_checked`: by the schemas of Kubernetes, too.

    Skips the test where Helm's library is not installed; fails it when CI=true.
    """
    if not PROGRAM.exists():
        missing = "Helm's library is not installed (make chart)"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    done = subprocess.run(
        [PROGRAM, ROOT / "deploy/chart.py", "--json", *(["--check"] if is_checked else [])],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [Rendering(**each) for each in json.loads(done.stdout)]


def example(name: str, **changes: Any) -> dict[str, Any]:
    """The values of an example; each change is a dotted path with two underscores for the dot."""
    values: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    for place, value in changes.items():
        *above, last = place.split("__")
        here = values
        for part in above:
            here = here.setdefault(part, {})
        here[last] = value
    return copy.deepcopy(values)


def of_kind(objects: Sequence[Object], *kinds: str) -> list[Object]:
    """Objects of these kinds."""
    return [each for each in objects if each["kind"] in kinds]


def named(objects: Sequence[Object], kind: str, name: str) -> Object:
    """The one object of a kind with this name."""
    (found,) = [each for each in of_kind(objects, kind) if each["metadata"]["name"] == name]
    return found


def pods(objects: Sequence[Object]) -> Iterator[tuple[str, Object]]:
    """The pod templates, each with the name of the object that makes such pods."""
    for each in of_kind(objects, "Deployment", "StatefulSet", "Job"):
        yield each["metadata"]["name"], each["spec"]["template"]


def containers(pod: Object) -> Iterator[tuple[Object, bool]]:
    """Containers of a pod template, and whether each begins before the pod works."""
    for container in pod["spec"].get("initContainers", []):
        yield container, True
    for container in pod["spec"]["containers"]:
        yield container, False

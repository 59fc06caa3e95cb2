"""Render the Kubernetes chart with the real Helm, and check it against the schemas of the API.

`make chart` does it for each file of `deploy/kubernetes/values` and writes `state/chart/*.yaml`.
With `--json` it answers tests: a JSON list of values on standard input, a list of `Rendering` on
standard output; objects are checked only with `--check`, too. It runs in `.venv/chart`, which holds Helm's library and the schemas.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
CHART: Final = ROOT / "deploy/kubernetes/hilum"
EXAMPLES: Final = ROOT / "deploy/kubernetes/values"
RENDERED: Final = ROOT / "state/chart"
# The oldest version that the chart permits, and the newest that has schemas here.
VERSIONS: Final = ("1.27", "1.37")
# Kinds of operators, of which Kubernetes has no schema.
_INFORMATION: Final = 1  # of Helm's linter: no icon
FOREIGN: Final = ("monitoring.coreos.com/", "keda.sh/")


@dataclass(frozen=True, slots=True)
class Rendering:
    """The objects for one set of values, or why there are none. `invalid`: what no API takes."""

    objects: list[dict[str, Any]]
    invalid: list[str]
    error: str = ""


def main() -> int:
    """Exit status 0: every rendering is valid, and Helm's linter has no complaint."""
    if "--json" in sys.argv:
        asked = json.load(sys.stdin)
        renderings = _renderings(asked, is_checked="--check" in sys.argv)
        json.dump([asdict(each) for each in renderings], sys.stdout)
        return 0
    problems = list(_linted())
    RENDERED.mkdir(parents=True, exist_ok=True)
    files = sorted(EXAMPLES.glob("*.yaml"))
    values = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]
    for file, rendering in zip(files, _renderings(values), strict=True):
        problems += [
            f"{file.name}: {each}" for each in (*rendering.invalid, rendering.error) if each
        ]
        text = yaml.safe_dump_all(rendering.objects, sort_keys=False)
        (RENDERED / file.name).write_text(text, encoding="utf-8")
        print(f"{file.name}: {in_words(rendering)}")
    for problem in problems:
        print(f"chart: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _renderings(asked: list[Mapping[str, Any]], *, is_checked: bool = True) -> Iterator[Rendering]:
    helm = importlib.import_module("helm_python")
    with helm.Chart.load(str(CHART)) as chart:
        for values in asked:
            try:
                files = chart.render(dict(values), name="hilum", namespace="hilum")
            except helm.HelmError as error:
                yield Rendering([], [], str(error))
                continue
            objects = [
                each
                for name, text in sorted(files.items())
                if name.endswith(".yaml")
                for each in yaml.safe_load_all(text)
                if each
            ]
            checked = objects if is_checked else []
            yield Rendering(objects, [problem for each in checked for problem in _problems(each)])


def _problems(rendered: Mapping[str, Any]) -> Iterator[str]:
    """Why a version of Kubernetes would refuse the object; an unknown field is such a reason."""
    if rendered["apiVersion"].startswith(FOREIGN):
        return
    schemas = importlib.import_module("kubernetes_validate")
    for version in VERSIONS:
        try:
            schemas.validate(rendered, version, strict=True)
        except schemas.ValidationError as error:
            where = ".".join(map(str, error.path))
            name = f"{rendered['kind']} {rendered['metadata']['name']}"
            yield f"Kubernetes {version}: {name}: {where}: {error.message}"


def _linted() -> Iterator[str]:
    """Complaints of `helm lint` with the values of the first example."""
    helm = importlib.import_module("helm_python")
    example = next(iter(sorted(EXAMPLES.glob("*.yaml"))))
    values = yaml.safe_load(example.read_text(encoding="utf-8"))
    for finding in helm.lint(str(CHART), values)["messages"]:
        if finding["severity"] > _INFORMATION:
            yield f"lint: {finding['path']}: {finding['error']}"


def in_words(rendering: Rendering) -> str:
    """Return how many objects there are, and by what they were checked."""
    foreign = sum(each["apiVersion"].startswith(FOREIGN) for each in rendering.objects)
    checked = len(rendering.objects) - foreign
    beside = f", {foreign} of operators without a schema here" if foreign else ""
    return f"{checked} objects, checked for Kubernetes {' and '.join(VERSIONS)}{beside}"


if __name__ == "__main__":
    sys.exit(main())

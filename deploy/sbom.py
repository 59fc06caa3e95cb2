"""`make sbom`: the packages of the server as CycloneDX JSON, and a table of their licences.

Written to dist/. The packages are those that this environment has of the extras in
deploy/lock/server.txt, and all of the embedded Triton's environment, with the shared libraries in
their wheels. Exit status 1: a licence is not in deploy/licences.toml.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from deploy.write_locks import LOCKS, ROOT, canonical, closure, declared, triton_pins
from hilum.triton import installation

SBOM: Final = ROOT / "dist/sbom.cdx.json"
LICENCES: Final = ROOT / "dist/licences.txt"
_TOOLS: Final = ROOT / ".venv/tools/bin"
_PACKAGES: Final = Path(sysconfig.get_path("platlib"))
_VALIDATE: Final = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
sys.exit(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read()))
"""

Component = dict[str, Any]


class NotWritten(Exception):
    """Why there is no list, for people."""


@dataclass(frozen=True, slots=True)
class Rules:
    """deploy/licences.toml."""

    allowed: frozenset[str]
    concluded: Mapping[str, str]
    accepted: Mapping[str, Mapping[str, str]]

    def allows(self, name: str, licence: str) -> bool:
        """Whether a licence (SPDX, or a classifier) may stand for this package."""
        alone = self.accepted.get(name, {}).get("licence")
        return any(
            all(part.strip("() ") in {*self.allowed, alone} for part in choice.split(" AND "))
            for choice in licence.split(" OR ")
        )


def main() -> int:
    """Exit status 0: written, and every licence is allowed."""
    rules = read_rules()
    try:
        document = document_of(rules)
        _validate(document)
    except NotWritten as reason:
        print(f"sbom: {reason}", file=sys.stderr)
        return 1
    SBOM.parent.mkdir(exist_ok=True)
    SBOM.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    rows = list(licences_of(document))
    LICENCES.write_text(table(rows), encoding="utf-8")
    print(
        f"{SBOM.relative_to(ROOT)}: {len(document['components'])} packages, {len(rows)} licences in"
        f" {LICENCES.relative_to(ROOT)}"
    )
    refused = not_allowed(rows, rules)
    for line in refused:
        print(f"sbom: not an allowed licence (deploy/licences.toml): {line}", file=sys.stderr)
    return 1 if refused else 0


def read_rules() -> Rules:
    """Which licences pass."""
    found = tomllib.loads((ROOT / "deploy/licences.toml").read_text(encoding="utf-8"))
    return Rules(frozenset(found["allowed"]), found["concluded"], found["accepted"])


def read_parts() -> list[dict[str, str]]:
    """deploy/native_parts.toml."""
    found: list[dict[str, str]] = tomllib.loads(
        (ROOT / "deploy/native_parts.toml").read_text(encoding="utf-8")
    )["part"]
    return found


def document_of(rules: Rules) -> Component:
    """The CycloneDX document. Raises NotWritten."""
    if (triton := installation.find()) is None:
        raise NotWritten(f"the embedded Triton is not installed: {installation.COMMAND}")
    document = _environment(Path(sys.executable))
    theirs = _environment(triton.python)
    kept = {
        each["bom-ref"]: each
        for each in (
            *_wanted(theirs, triton_pins(), triton.packages, rules),
            # A package of both, in one version, is listed as this environment has it.
            *_wanted(document, closure(declared(LOCKS["server.txt"])), _PACKAGES, rules),
        )
    }
    references = {*kept, document["metadata"]["component"]["bom-ref"]}
    links = {each["ref"]: each for each in (*theirs["dependencies"], *document["dependencies"])}
    return {
        **document,
        "components": list(kept.values()),
        "dependencies": _among(references, list(links.values())),
    }


def _wanted(
    document: Component, names: Iterable[str], packages: Path, rules: Rules
) -> Iterator[Component]:
    """The packages of these names, with their parts. `packages`: the folder that has them."""
    found = {canonical(component["name"]): component for component in document["components"]}
    if missing := {*names} - found.keys():
        raise NotWritten(f"cyclonedx-py does not see {', '.join(sorted(missing))}")
    for name in names:
        _complete(found[name], packages, rules)
        yield found[name]


def licences_of(document: Component) -> Iterator[tuple[str, str, str]]:
    """Name, version and licence of each package, and of each part that we know by hand."""
    for component in document["components"]:
        yield canonical(component["name"]), component["version"], _licence(component)
        for part in component.get("components", []):
            if "version" in part:
                yield part["name"], part["version"], _licence(part)


def not_allowed(rows: list[tuple[str, str, str]], rules: Rules) -> list[str]:
    """Packages whose licence no rule names, and those that name none."""
    return [
        f"{name}: {licence or 'none named'}"
        for name, _, licence in rows
        if not licence or not rules.allows(name, licence)
    ]


def table(rows: list[tuple[str, str, str]]) -> str:
    """Columns for people."""
    return "".join(f"{name:40} {version:18} {licence}\n" for name, version, licence in sorted(rows))


def _environment(python: Path) -> Component:
    """What cyclonedx-py sees in an environment: more than the server needs."""
    options = [
        "--pyproject",
        "pyproject.toml",
        "--output-reproducible",
        "--spec-version",
        "1.6",
        "--no-validate",
        "--output-file",
        "-",
    ]
    done = subprocess.run(
        [_TOOLS / "cyclonedx-py", "environment", *options, python],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if done.returncode:
        raise NotWritten(done.stderr[-2000:])
    found: Component = json.loads(done.stdout)
    return found


def _among(references: set[str], dependencies: list[Component]) -> list[Component]:
    kept = [each for each in dependencies if each["ref"] in references]
    return [
        {**each, "dependsOn": [name for name in each.get("dependsOn", []) if name in references]}
        for each in kept
    ]


def _complete(component: Component, packages: Path, rules: Rules) -> None:
    name = canonical(component["name"])
    if not component.get("licenses") and name in rules.concluded:
        component["licenses"] = [
            {"license": {"id": rules.concluded[name], "acknowledgement": "concluded"}}
        ]
    parts = [*_known_parts(name, packages), *_libraries(component, packages)]
    known = {each["hashes"][0]["content"] for each in parts if "version" in each}
    if parts:
        component["components"] = [
            each for each in parts if "version" in each or each["hashes"][0]["content"] not in known
        ]


def _known_parts(name: str, packages: Path) -> Iterator[Component]:
    """Of deploy/native_parts.toml. Raises NotWritten where the wheel is another one."""
    if name != "nvidia-pytriton":
        return
    for part in read_parts():
        files = list(packages.glob(part["file"]))
        if len(files) != 1:
            raise NotWritten(
                f"{part['file']} of deploy/native_parts.toml is there {len(files)} times: see what"
                " the new wheel has"
            )
        yield {
            **_file(files[0], packages),
            "type": "library",
            "name": part["name"],
            "version": part["version"],
            "licenses": [{"license": {"id": part["licence"], "acknowledgement": "concluded"}}],
            "externalReferences": [{"type": "distribution", "url": part["source"]}],
        }


def _libraries(component: Component, packages: Path) -> Iterator[Component]:
    """Shared libraries that lie in the folder of the wheel (auditwheel's name for it)."""
    folder = packages / f"{re.sub(r'[-.]+', '_', component['name'])}.libs"
    yield from (_file(path, packages) for path in sorted(folder.glob("*.so*")))


def _file(path: Path, packages: Path) -> Component:
    place = str(path.relative_to(packages))
    return {
        "type": "file",
        "bom-ref": place,
        "name": place,
        "hashes": [{"alg": "SHA-256", "content": sha256(path.read_bytes()).hexdigest()}],
    }


def _licence(component: Component) -> str:
    """What the metadata say; of several entries all count."""
    entries = component.get("licenses") or []
    found = [
        entry.get("expression") or entry["license"].get("id") or entry["license"]["name"]
        for entry in entries
    ]
    named = [
        licence for licence in found if not licence.startswith("License ::")
    ]  # a classifier beside it says less
    return " AND ".join(dict.fromkeys(named or found))


def _validate(document: Component) -> None:
    done = subprocess.run(
        [_TOOLS / "python", "-c", _VALIDATE],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    if done.returncode:
        raise NotWritten(f"not valid by the schema of CycloneDX 1.6: {done.stderr[-2000:]}")


if __name__ == "__main__":
    sys.exit(main())

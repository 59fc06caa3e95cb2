"""`make sbom`: what a server consists of as CycloneDX JSON, and a table of the licences.

Written to server/hilum/sbom/, so that the wheel and the image bring them (`hilum sbom`). The
packages are those of the locks: torch for CPU, deploy/lock/server.txt, and the environment of the
embedded Triton. Each has the SHA-256 of its wheel, and of each program and library in the wheel.
Exit status 1: a licence is not in deploy/licences.toml, or a bundled library not in
deploy/native_parts.toml.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

from deploy import wheelhouse
from deploy.write_locks import FOLDER, ROOT, TRITON, canonical, pins_of
from hilum import __version__, sbom
from hilum.triton import installation

_TOOLS: Final = ROOT / ".venv/tools/bin"
_OURS: Final = "hilum-preprocessing"
_ELF: Final = b"\x7fELF"
_GROUP: Final = re.compile(r"\(([^()]*)\)")  # an innermost one of an SPDX expression
_ALLOWED: Final = "allowed"
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
        known = {*self.allowed, self.accepted.get(name, {}).get("licence"), _ALLOWED}
        while (simpler := _GROUP.sub(lambda group: _judged(group[1], known), licence)) != licence:
            licence = simpler
        return _judged(licence, known) == _ALLOWED


def main() -> int:
    """Exit status 0: written, and every licence is allowed."""
    rules = read_rules()
    try:
        wheelhouse.fetch()
        document = document_of(rules)
        validate(document)
    except (NotWritten, wheelhouse.NotFetched) as reason:
        print(f"sbom: {reason}", file=sys.stderr)
        return 1
    rows = list(licences_of(document))
    sbom.COMPONENTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    sbom.LICENCES.write_text(table(rows), encoding="utf-8")
    print(
        f"{sbom.COMPONENTS.relative_to(ROOT)}: {len(document['components'])} packages,"
        f" {len(rows)} licences in {sbom.LICENCES.relative_to(ROOT)}"
    )
    refused = not_allowed(rows, rules)
    for line in refused:
        print(f"sbom: not an allowed licence (deploy/licences.toml): {line}", file=sys.stderr)
    return 1 if refused else 0


def _judged(choices: str, known: Container[str | None]) -> str:
    """Judge an expression without parentheses. In SPDX, AND binds closer than OR."""
    is_allowed = any(
        all(part.strip() in known for part in choice.split(" AND "))
        for choice in choices.split(" OR ")
    )
    return _ALLOWED if is_allowed else "not allowed"


def read_rules() -> Rules:
    """Which licences pass."""
    found = tomllib.loads((ROOT / "deploy/licences.toml").read_text(encoding="utf-8"))
    return Rules(frozenset(found["allowed"]), found["concluded"], found["accepted"])


@dataclass(frozen=True, slots=True)
class Parts:
    """deploy/native_parts.toml."""

    known: tuple[Mapping[str, str], ...]
    licences: Mapping[str, str]

    def of(self, wheel: Path, own_licences: list[Component]) -> Iterator[Component]:
        """The programs and libraries in a wheel. Raises NotWritten for a library without a row."""
        with ZipFile(wheel) as archive:
            files = {
                name: archive.read(name) for name in archive.namelist() if _is_elf(archive, name)
            }
        self._require_each_once(wheel, files)
        for name, content in sorted(files.items()):
            yield {
                "type": "file",
                "bom-ref": f"{wheel.name}/{name}",
                "name": name,
                "hashes": [_hash(sha256(content).hexdigest())],
                "licenses": own_licences,
                **self._row(name),
            }

    def _require_each_once(self, wheel: Path, files: Iterable[str]) -> None:
        for part in self.known if wheel.name.startswith("nvidia_pytriton") else ():
            found = [name for name in files if fnmatch(name, part["file"])]
            if len(found) != 1:
                raise NotWritten(
                    f"{part['file']} of deploy/native_parts.toml is there {len(found)} times: see"
                    " what the new wheel has"
                )

    def _row(self, name: str) -> Component:
        """What is known by hand about a file; empty: it is the package's own."""
        for part in self.known:
            if fnmatch(name, part["file"]):
                return {
                    "type": "library",
                    "name": part["name"],
                    "version": part["version"],
                    "licenses": _concluded(part["licence"]),
                    "externalReferences": [{"type": "distribution", "url": part["source"]}],
                    "evidence": {"occurrences": [{"location": name}]},
                }
        library = library_name(name)
        if library in self.licences:
            return {"licenses": _concluded(self.licences[library])}
        if ".libs/" in name:
            raise NotWritten(
                f"{name}: a library without a licence; give {library} a row in [library] of"
                " deploy/native_parts.toml"
            )
        return {}


def read_parts() -> Parts:
    """What is known by hand."""
    found = tomllib.loads((ROOT / "deploy/native_parts.toml").read_text(encoding="utf-8"))
    return Parts(tuple(found["part"]), found["library"])


def library_name(path: str) -> str:
    """The file's name without what auditwheel and versions add: libpq-e9b5c9ac.so.5.18 → libpq."""
    return re.split(r"-[0-9a-f]{8}|\.so", path.rpartition("/")[2])[0]


def wanted() -> dict[str, dict[str, str]]:
    """Environment of the server → name → version, as the locks have them."""
    return {
        "server": _pins(FOLDER / wheelhouse.TORCH_LOCK) | _pins(FOLDER / "server.txt"),
        "triton": _pins(TRITON),
    }


def document_of(rules: Rules) -> Component:
    """The CycloneDX document, of the wheels in dist/wheelhouse. Raises NotWritten."""
    if (triton := installation.find()) is None:
        raise NotWritten(f"the embedded Triton is not installed: {installation.COMMAND}")
    document = _environment(Path(sys.executable))
    theirs = _environment(triton.python)
    pins = wanted()
    kept: dict[str, Component] = {}
    for name, seen in (("triton", theirs), ("server", document)):
        for component in _wanted(seen, pins[name]):
            # A package of both, in one version, is listed as this environment has it.
            kept[f"{canonical(component['name'])}=={_release(component)}"] = component
    parts = read_parts()
    wheels = wheelhouse.wheels()
    for component in kept.values():
        _complete(component, wheels, parts, rules)
        component["properties"] = _properties(component, pins)
    root = _root(document)
    references = {root["bom-ref"], *(part["bom-ref"] for part in root["components"])}
    references |= {component["bom-ref"] for component in kept.values()}
    links = {each["ref"]: each for each in (*theirs["dependencies"], *document["dependencies"])}
    return {
        **document,
        "metadata": {**document["metadata"], "component": root},
        "components": [kept[key] for key in sorted(kept)],
        "dependencies": _among(references, list(links.values())),
    }


def _pins(lock: Path) -> dict[str, str]:
    return pins_of(lock.read_text(encoding="utf-8"))


def _wanted(document: Component, pins: Mapping[str, str]) -> Iterator[Component]:
    """The packages of these pins. Raises NotWritten where the environment has another one."""
    found = {canonical(component["name"]): component for component in document["components"]}
    for name, version in pins.items():
        if name not in found or _release(found[name]) != version:
            raise NotWritten(
                f"cyclonedx-py does not see {name} {version}, which a lock names: make setup"
            )
        yield found[name]


def _release(component: Component) -> str:
    """A local version (+cpu) names a build."""
    return str(component["version"]).split("+")[0]


def _root(document: Component) -> Component:
    """Hilum itself, and the library of this repository. Their wheels hold this very document."""
    components = document["components"]
    (ours,) = (each for each in components if canonical(each["name"]) == _OURS)
    root: Component = document["metadata"]["component"]
    return {**root, "version": __version__, "components": [_without_paths(ours)]}


def _without_paths(component: Component) -> Component:
    """Without the folder of the checkout, which is this machine's."""
    return {key: each for key, each in component.items() if key != "externalReferences"}


def _properties(component: Component, pins: Mapping[str, Mapping[str, str]]) -> list[Component]:
    """In which environments of the server it is."""
    name = canonical(component["name"])
    version = _release(component)
    return [
        {"name": "hilum:environment", "value": environment}
        for environment, its_pins in sorted(pins.items())
        if its_pins.get(name) == version
    ]


def licences_of(document: Component) -> Iterator[tuple[str, str, str]]:
    """Name, version and licence of each package, and of each part that has another licence."""
    for component in document["components"]:
        own = _licence(component)
        yield canonical(component["name"]), component["version"], own
        for part in component.get("components", []):
            if "version" in part:
                yield part["name"], part["version"], _licence(part)
            elif (licence := _licence(part)) != own or ".libs/" in part["name"]:
                yield library_name(part["name"]), f"in {canonical(component['name'])}", licence


def not_allowed(rows: list[tuple[str, str, str]], rules: Rules) -> list[str]:
    """Packages whose licence no rule names, and those that name none."""
    return [
        f"{name}: {licence or 'none named'}"
        for name, _, licence in rows
        if not licence or not rules.allows(name, licence)
    ]


def table(rows: list[tuple[str, str, str]]) -> str:
    """Columns for people."""
    lines = {f"{name:40} {version:22} {licence}\n" for name, version, licence in rows}
    return "".join(sorted(lines))


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


def _complete(
    component: Component,
    wheels: Mapping[tuple[str, str], Path],
    parts: Parts,
    rules: Rules,
) -> None:
    name = canonical(component["name"])
    if (wheel := wheels.get((name, _release(component)))) is None:
        raise NotWritten(f"dist/wheelhouse has no wheel of {name} {_release(component)}")
    if not component.get("licenses") and name in rules.concluded:
        component["licenses"] = _concluded(rules.concluded[name])
    component["hashes"] = [_hash(wheelhouse.digest(wheel))]
    if found := list(parts.of(wheel, component.get("licenses", []))):
        component["components"] = found


def _is_elf(archive: ZipFile, name: str) -> bool:
    with archive.open(name) as file:
        return file.read(len(_ELF)) == _ELF


def _hash(value: str) -> Component:
    return {"alg": "SHA-256", "content": value}


def _concluded(licence: str) -> list[Component]:
    return [{"expression": licence, "acknowledgement": "concluded"}]


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
    several = dict.fromkeys(named or found)
    return " AND ".join(
        f"({each})" if len(several) > 1 and " OR " in each else each for each in several
    )


def validate(document: Component) -> None:
    """By the schema that the CycloneDX library of Python brings. Raises NotWritten."""
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

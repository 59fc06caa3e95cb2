"""`make sbom`: each package of the locks with licence and hash, and the libraries that a wheel hides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest
from typer.testing import CliRunner

from deploy import sbom, wheelhouse, write_locks
from deploy.sbom import Component
from hilum import __version__
from hilum.cli import app
from hilum.sbom import COMPONENTS, LICENCES
from hilum.triton import installation


@pytest.fixture(scope="module")
def document() -> Component:
    return json.loads(COMPONENTS.read_text(encoding="utf-8"))


def every(components: list[Component]) -> Iterator[Component]:
    for component in components:
        yield component
        yield from every(component.get("components", []))


def release(component: Component) -> tuple[str, str]:
    return write_locks.canonical(component["name"]), component["version"].split("+")[0]


def named(document: Component, name: str) -> Component:
    (found,) = (each for each in document["components"] if each["name"] == name)
    return found


def test_a_foreign_library_finds_the_shipped_document_valid(document: Component):
    if not (sbom._TOOLS / "cyclonedx-py").exists():
        pytest.skip("the CycloneDX library is not installed: make .venv/tools/.set-up")
    few = [named(document, name) for name in ("certifi", "psycopg-binary", "nvidia-pytriton")]
    sbom.validate({**document, "components": few})  # of all the schema takes half a minute
    with pytest.raises(sbom.NotWritten, match="not valid"):
        sbom.validate({**document, "components": [], "bomFormat": "other"})


def test_the_shipped_document_lists_the_pins_of_the_locks(document: Component):
    """Red where a lock has changed: make sbom."""
    pinned = {pin for pins in sbom.wanted().values() for pin in pins.items()}
    assert {release(component) for component in document["components"]} == pinned, "make sbom"


def test_the_hash_of_each_package_is_one_that_its_lock_accepts(document: Component):
    accepted: dict[tuple[str, str], set[str]] = {}
    for lock in wheelhouse.locks().values():
        text = lock.read_text(encoding="utf-8")
        pins = write_locks.pins_of(text)
        for name, hashes in write_locks.hashes_of(text).items():
            accepted.setdefault((name, pins[name]), set()).update(hashes)
    assert [
        component["name"]
        for component in document["components"]
        if component["hashes"][0]["content"] not in accepted[release(component)]
    ] == [], "make sbom"


def test_each_package_says_in_which_environment_it_is(document: Component):
    said = {
        (property_["value"], *release(component))
        for component in document["components"]
        for property_ in component["properties"]
        if property_["name"] == "hilum:environment"
    }
    assert said == {
        (environment, name, version)
        for environment, pins in sbom.wanted().items()
        for name, version in pins.items()
    }


def test_the_document_is_of_this_version_and_names_no_folder_of_a_machine(document: Component):
    component = document["metadata"]["component"]
    assert (component["name"], component["version"]) == ("hilum", __version__)
    assert [part["name"] for part in component["components"]] == ["hilum-preprocessing"]
    assert "file://" not in COMPONENTS.read_text(encoding="utf-8")


def test_every_package_program_and_library_has_a_licence_and_a_hash(document: Component):
    assert [
        component["name"]
        for component in every(document["components"])
        if not component.get("licenses") or component["hashes"][0]["alg"] != "SHA-256"
    ] == []


def test_each_reference_stands_once(document: Component):
    references = [component["bom-ref"] for component in every(document["components"])]
    assert len(references) == len(set(references))


def test_what_needs_what_names_only_what_is_listed(document: Component):
    root = document["metadata"]["component"]
    listed = {component["bom-ref"] for component in every([root, *document["components"]])}
    assert {
        name for each in document["dependencies"] for name in (each["ref"], *each["dependsOn"])
    } <= listed


def test_the_programs_and_libraries_in_the_wheel_of_triton_are_listed_with_their_bytes(
    document: Component,
):
    triton = named(document, "nvidia-pytriton")
    found = installation.find()
    assert found is not None
    parts = {
        part.get("evidence", {}).get("occurrences", [{"location": part["name"]}])[0]["location"]: (
            part["hashes"][0]["content"]
        )
        for part in triton["components"]
    }
    assert "pytriton/tritonserver/bin/tritonserver" in parts
    assert len([name for name in parts if name.startswith("nvidia_pytriton.libs/")]) > 40
    assert {name: wheelhouse.digest(found.packages / name) for name in parts} == parts


def test_a_library_knows_its_version_in_its_own_bytes():
    """What deploy/native_parts.toml says by hand, against the files.

    A new wheel must not keep old numbers.
    """
    found = installation.find()
    assert found is not None
    spelled = {"tritonserver": "2.51"}  # of 2.51.0 the compiler stores the end apart
    for part in sbom.read_parts().known:
        (file,) = found.packages.glob(part["file"])
        version = spelled.get(part["name"], part["version"])
        assert version.encode() in file.read_bytes() or file.name.endswith(version), part


def a_wheel(folder: Path, *names: str) -> Path:
    path = folder / "example-1-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, b"\x7fELF" + name.encode())
        archive.writestr("example/module.py", "pass")
    return path


def test_a_bundled_library_has_its_own_licence_and_a_module_that_of_its_package(tmp_path: Path):
    wheel = a_wheel(tmp_path, "example.libs/libpq-e9b5c9ac.so.5.18", "example/fast.abi3.so")
    own = [{"license": {"id": "MIT"}}]
    library, module = sbom.read_parts().of(wheel, own)
    assert library["licenses"] == [{"expression": "PostgreSQL", "acknowledgement": "concluded"}]
    assert (module["name"], module["licenses"]) == ("example/fast.abi3.so", own)


def test_a_bundled_library_without_a_licence_is_refused(tmp_path: Path):
    wheel = a_wheel(tmp_path, "example.libs/libnew-e9b5c9ac.so.1")
    with pytest.raises(sbom.NotWritten, match=r"give libnew a row in \[library\]"):
        list(sbom.read_parts().of(wheel, []))


def test_every_licence_is_allowed_and_none_is_missing(document: Component):
    rows = list(sbom.licences_of(document))
    assert len(rows) > len(document["components"]), "the libraries of others count too"
    assert sbom.not_allowed(rows, sbom.read_rules()) == []


def test_the_table_of_licences_is_that_of_the_document(document: Component):
    rows = list(sbom.licences_of(document))
    assert LICENCES.read_text(encoding="utf-8") == sbom.table(rows)


def test_a_licence_that_no_rule_names_is_said(document: Component):
    rules = sbom.read_rules()
    strict = replace(rules, allowed=rules.allowed - {"MIT"}, accepted={})
    said = sbom.not_allowed(list(sbom.licences_of(document)), strict)
    assert {"psycopg: LGPL-3.0-only", "pydicom: MIT", "certifi: MPL-2.0"} <= set(said)


@pytest.mark.parametrize(
    ("name", "licence", "is_allowed"),
    [
        ("any", "MIT", True),
        ("any", "Apache-2.0 AND (BSD-2-Clause)", True),
        ("any", "GPL-3.0-only OR MIT", True),
        ("any", "MIT AND GPL-3.0-only", False),
        ("any", "GPL-3.0-only AND (MIT OR Zlib)", False),
        ("any", "(GPL-3.0-only OR MIT) AND (Zlib OR (MIT AND ISC))", True),
        ("any", "License :: Other/Proprietary License", False),
        ("psycopg", "LGPL-3.0-only", True),
        ("any", "LGPL-3.0-only", False),
        ("any", "", False),
    ],
)
def test_of_alternatives_one_must_be_allowed_and_of_several_all(
    name: str, licence: str, is_allowed: bool
):
    assert (sbom.not_allowed([(name, "1", licence)], sbom.read_rules()) == []) == is_allowed


def test_two_licences_of_one_package_count_both_where_one_is_a_choice():
    licences = [
        {"expression": "Apache-2.0 OR MIT"},
        {"license": {"id": "GPL-3.0-only"}},
    ]
    component = {"name": "any", "version": "1", "licenses": licences}
    rows = list(sbom.licences_of({"components": [component]}))
    said = sbom.not_allowed(rows, sbom.read_rules())
    assert said == ["any: (Apache-2.0 OR MIT) AND GPL-3.0-only"]


def test_no_copyleft_is_allowed_for_all_and_each_exception_has_its_reason():
    rules = sbom.read_rules()
    assert not [licence for licence in rules.allowed if "GPL" in licence or "MPL" in licence]
    assert all(entry["why"] for entry in rules.accepted.values())


def test_the_command_prints_the_document_and_the_licences(document: Component):
    printed = CliRunner().invoke(app, ["sbom"])
    assert json.loads(printed.stdout) == document
    licences = CliRunner().invoke(app, ["sbom", "--licences"])
    assert licences.stdout == LICENCES.read_text(encoding="utf-8")

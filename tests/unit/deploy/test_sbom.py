"""`make sbom`: every package of the server with its licence, and the libraries that a wheel hides."""

from __future__ import annotations

import importlib.metadata
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from deploy import sbom, write_locks
from deploy.sbom import Component
from hilum.triton import installation


@pytest.fixture(scope="module")
def document() -> Component:
    if not (sbom._TOOLS / "cyclonedx-py").exists():
        pytest.skip("cyclonedx-py is not installed: make .venv/tools/.set-up")
    return sbom.document_of(sbom.read_rules())


def _packages_of_triton() -> Path:
    found = installation.find()
    assert found is not None
    return found.packages


def test_the_document_is_valid_by_the_schema_of_cyclonedx(document: Component):
    """Of a few packages: the schema takes its time."""
    few = [
        component
        for component in document["components"]
        if component["name"] in ("certifi", "nvidia-pytriton", "torch")
    ]
    sbom._validate({**document, "components": few})
    with pytest.raises(sbom.NotWritten, match="not valid"):
        sbom._validate({**document, "components": [], "bomFormat": "other"})


def test_each_package_that_the_server_has_here_is_listed_in_its_version(document: Component):
    listed = {
        (write_locks.canonical(component["name"]), component["version"])
        for component in document["components"]
    }
    wanted = write_locks.closure(write_locks.declared(write_locks.LOCKS["server.txt"]))
    ours = {(name, importlib.metadata.version(name)) for name in wanted}
    assert listed == ours | set(write_locks.triton_pins().items())
    assert document["metadata"]["component"]["name"] == "hilum"
    assert {name for name, _ in listed} >= {"hilum-preprocessing", "nvidia-pytriton"}
    assert "pytest" not in {name for name, _ in listed}


def test_both_environments_are_listed_and_each_package_once(document: Component):
    references = [component["bom-ref"] for component in document["components"]]
    assert len(references) == len(set(references))
    versions = [each["version"] for each in document["components"] if each["name"] == "numpy"]
    assert sorted(version[0] for version in versions) == ["1", "2"]


def test_what_needs_what_names_only_what_is_listed(document: Component):
    listed = {component["bom-ref"] for component in document["components"]} | {
        document["metadata"]["component"]["bom-ref"]
    }
    assert {
        name for each in document["dependencies"] for name in (each["ref"], *each["dependsOn"])
    } <= listed


def test_the_libraries_in_the_wheel_of_triton_are_listed_with_their_bytes(document: Component):
    (triton,) = (
        component for component in document["components"] if component["name"] == "nvidia-pytriton"
    )
    parts = {part["name"]: part for part in triton["components"]}
    versions = {name: part["version"] for name, part in parts.items() if "version" in part}
    assert versions["tritonserver"] == "2.51.0"
    assert (versions["curl"], versions["libssh"], versions["libarchive"], versions["libxml2"]) == (
        "7.81.0",
        "0.9.6",
        "3.6.0",
        "2.9.13",
    )
    folder = _packages_of_triton()
    found = {
        sha256(path.read_bytes()).hexdigest()
        for path in (folder / "nvidia_pytriton.libs").glob("*.so*")
    }
    assert found <= {part["hashes"][0]["content"] for part in triton["components"]}
    for part in triton["components"]:
        assert (
            part["hashes"][0]["content"]
            == sha256((folder / part["bom-ref"]).read_bytes()).hexdigest()
        )


def test_a_library_knows_its_version_in_its_own_bytes():
    """What deploy/native_parts.toml says by hand, against the files.

    A new wheel must not keep old numbers.
    """
    folder = _packages_of_triton()
    spelled = {"tritonserver": "2.51"}  # of 2.51.0 the compiler stores the end apart
    for part in sbom.read_parts():
        (file,) = folder.glob(part["file"])
        version = spelled.get(part["name"], part["version"])
        assert version.encode() in file.read_bytes() or file.name.endswith(version), part


def test_every_licence_is_allowed_and_none_is_missing(document: Component):
    rows = list(sbom.licences_of(document))
    assert len(rows) > len(document["components"]), "the parts known by hand count too"
    assert sbom.not_allowed(rows, sbom.read_rules()) == []


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


def test_no_copyleft_is_allowed_for_all_and_each_exception_has_its_reason():
    rules = sbom.read_rules()
    assert not [licence for licence in rules.allowed if "GPL" in licence or "MPL" in licence]
    assert all(entry["why"] for entry in rules.accepted.values())

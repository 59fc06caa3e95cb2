"""Two distributions: both wheels are built, and the preprocessing library stands alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from hilum import sbom
from hilum.triton import installation

HAS_COMPILER = any(map(shutil.which, ("cc", "gcc", "clang")))
ROOT = Path(__file__).resolve().parents[3]
_PREPARE = """
import sys
from hilum_preprocessing import InputSpec, prepare
from hilum_preprocessing.resize import compiled
spec = InputSpec.from_mapping({"recipe": "torchxrayvision_224"})
print(tuple(prepare(sys.argv[1], spec).tensor.shape), compiled.loaded()[0] is not None)
assert not [name for name in sys.modules if name.partition(".")[0] in ("hilum", "sqlalchemy")]
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Name of the distribution → its wheel, built with the packages that are here."""
    folder = tmp_path_factory.mktemp("wheels")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    sources = [str(ROOT / "preprocessing"), str(ROOT)]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", str(folder), *sources],
        check=True,
    )
    return {path.name.split("-")[0]: path for path in folder.glob("*.whl")}


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def requirements(wheel: Path) -> Iterator[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    yield from (line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line)


def test_each_package_is_in_one_wheel_with_its_compiled_library(wheels: dict[str, Path]) -> None:
    library, server = names(wheels["hilum_preprocessing"]), names(wheels["hilum"])
    assert {name.split("/")[0] for name in library} >= {"hilum_preprocessing"}
    assert not [name for name in library if name.startswith("hilum/")]
    assert not [name for name in server if name.startswith("hilum_preprocessing/")]
    if HAS_COMPILER:
        assert "hilum_preprocessing/resize/resize.so" in library
        assert "hilum/receive/storage/transfer.so" in server


def test_the_server_brings_the_library_of_its_own_version(wheels: dict[str, Path]) -> None:
    version = wheels["hilum_preprocessing"].name.split("-")[1]
    assert f"hilum-preprocessing=={version}" in set(requirements(wheels["hilum"]))
    needed = {
        line.split("<")[0].split(">")[0] for line in requirements(wheels["hilum_preprocessing"])
    }
    assert needed == {"numpy", "torch", "pydicom", "imagecodecs", "pillow"}


def test_the_server_brings_the_lock_of_the_embedded_triton(wheels: dict[str, Path]) -> None:
    assert f"hilum/triton/{installation.LOCK.name}" in names(wheels["hilum"])


def test_the_server_brings_the_lists_of_what_it_consists_of(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels["hilum"]) as archive:
        for path in (sbom.COMPONENTS, sbom.LICENCES):
            assert archive.read(f"hilum/sbom/{path.name}") == path.read_bytes()


def test_the_library_alone_prepares_an_image(wheels: dict[str, Path], tmp_path: Path) -> None:
    """A clean environment that sees the library's five dependencies, and neither Hilum nor more."""
    from testing.phantoms.phantom import make_study

    (image,) = make_study(3, views=("PA",), rows=512, columns=448)
    image.save_as(tmp_path / "pa.dcm", enforce_file_format=True)
    folder = tmp_path / "clean"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    options = ["--quiet", "--no-deps", "--no-index", str(wheels["hilum_preprocessing"])]
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", *options], check=True
    )
    link_dependencies(folder)
    done = subprocess.run(
        [python, "-I", "-c", _PREPARE, tmp_path / "pa.dcm"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"(1, 224, 224) {HAS_COMPILER}\n"


def link_dependencies(folder: Path) -> None:
    """Link what the library's requirements and theirs hold here: a copy of torch takes a minute."""
    from importlib import metadata

    from deploy.write_locks import closure

    ours = Path(str(metadata.distribution("numpy").locate_file("")))
    (packages,) = (folder / "lib").glob("python3.*/site-packages")
    for name in closure(map(Requirement, metadata.requires("hilum-preprocessing") or ())):
        for file in metadata.distribution(name).files or ():
            top = file.parts[0]
            if top != ".." and (ours / top).exists() and not (packages / top).exists():
                (packages / top).symlink_to(ours / top)

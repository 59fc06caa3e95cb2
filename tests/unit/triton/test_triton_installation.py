"""The environment of the embedded Triton: what is wrong with one, and how one is made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy import write_locks
from hilum.triton import installation
from hilum.triton.installation import Installation


def an_environment(folder: Path, *, numpy: str = "1.26.4", python: str = "3.11") -> Installation:
    """An environment's layout, with the metadata of numpy and no program but a link to ours."""
    packages = folder / f"lib/python{python}/site-packages"
    metadata = packages / f"numpy-{numpy}.dist-info/METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: numpy\nVersion: {numpy}\n")
    (folder / "bin").mkdir()
    (folder / "bin/python").symlink_to(sys.executable)
    (folder / "pyvenv.cfg").write_text("home = /opt/python/bin\nversion = 3.11.2\n")
    (folder / "lock.sha256").write_text(installation._digest())
    return Installation(folder, python)


def test_an_environment_with_numpy_1_is_no_problem(tmp_path: Path) -> None:
    found = an_environment(tmp_path)
    assert installation.problem(found) is None
    assert installation.find(tmp_path) == found
    assert found.base == Path("/opt/python")


@pytest.mark.parametrize("version", ["2.0.0", "2.4.6", "10.0"])
def test_numpy_2_is_a_problem_with_its_remedy(tmp_path: Path, version: str) -> None:
    said = installation.problem(an_environment(tmp_path, numpy=version))
    assert said is not None
    assert f"wrong tensors with numpy {version}" in said
    assert said.endswith("hilum triton install.")


def test_a_missing_environment_is_a_problem_with_its_remedy(tmp_path: Path) -> None:
    assert installation.find(tmp_path / "none") is None
    assert "hilum triton install" in (installation.problem(None) or "")


def test_an_environment_of_another_lock_is_a_problem(tmp_path: Path) -> None:
    found = an_environment(tmp_path)
    (tmp_path / "lock.sha256").write_text("0" * 64)
    assert "other packages" in (installation.problem(found) or "")


def test_an_environment_whose_python_was_removed_is_a_problem(tmp_path: Path) -> None:
    found = an_environment(tmp_path)
    found.python.unlink()
    found.python.symlink_to(tmp_path / "gone")
    assert "is gone" in (installation.problem(found) or "")


def test_what_is_up_to_date_is_left_alone(tmp_path: Path) -> None:
    found = an_environment(tmp_path)
    said: list[str] = []
    assert installation.install(said.append, tmp_path) == found
    assert said == [f"{tmp_path} has the packages of lock.txt already"]


def test_without_an_index_it_is_refused_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(installation.NotInstalled, match="is there a way to the package index"):
        installation.install(lambda _: None, tmp_path / "triton")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_installation_leaves_the_old_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    found = an_environment(tmp_path / "triton")
    (found.folder / "lock.sha256").write_text("0" * 64)
    with pytest.raises(installation.NotInstalled):
        installation.install(lambda _: None, found.folder)
    assert found.version_of("numpy") == "1.26.4"


def test_the_old_environment_comes_back_where_the_new_one_cannot_take_its_place(
    tmp_path: Path,
) -> None:
    found = an_environment(tmp_path / "triton")
    with pytest.raises(FileNotFoundError):
        installation._exchange(tmp_path / "none", found.folder, tmp_path / "old")
    assert installation.problem(found) is None
    assert not (tmp_path / "old").exists()


def test_without_pip_it_is_refused_with_the_remedy(tmp_path: Path) -> None:
    """In a Python of its own that has no pip: the script needs the standard library alone."""
    python = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", python], check=True)
    done = subprocess.run(
        [python / "bin/python", installation.__file__],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"triton: pip is not installed in {python}:")
    assert "ensurepip" in done.stderr


def test_the_lock_holds_the_versions_of_the_engines_here_and_numpy_1() -> None:
    """A release is checked by the engine that serves it."""
    pins = write_locks.pins_of(installation.LOCK.read_text(encoding="utf-8"))
    server = write_locks.pins_of((write_locks.FOLDER / "server.txt").read_text(encoding="utf-8"))
    assert pins == write_locks.triton_pins()
    own = {"numpy": "1.26.4", "nvidia-pytriton": "0.7.0"}
    assert own.items() <= pins.items()
    assert {name: version for name, version in pins.items() if name not in own}.items() <= (
        server.items()
    )


def test_every_pin_has_a_wheel_for_each_python_of_the_environment() -> None:
    """numpy 1.26.4 has none for 3.13: Triton's stub for it is of no use."""
    assert installation.PYTHONS == ("3.11", "3.12")
    assert all(write_locks.hashes_of(installation.LOCK.read_text(encoding="utf-8")).values())

"""Finding and preparing the embedded tritonserver, and saying why it cannot run."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hilum.errors import ConfigurationError
from hilum.triton import command, launcher, leftovers, runtime
from hilum.triton.installation import Installation
from hilum.triton.server import EmbeddedTriton

SERVER = str(Path(launcher.__file__).parents[2])


def _fake_wheel(root: Path) -> runtime.Wheel:
    """A wheel's layout with text for binaries: what `prepare` copies, without 20 MB."""
    backend, stub = root / "backends/python", root / "stubs/triton_python_backend_stub"
    for path in (
        root / "bin/tritonserver",
        backend / "libtriton_python.so",
        backend / "triton_python_backend_utils.py",
        stub,
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
    home = Installation(root, "3.11")
    (root / "pyvenv.cfg").write_text("home = /usr/bin\n")
    return runtime.Wheel(
        "0.7.0", root / "bin/tritonserver", backend, root / "caches", root / "libs", stub, home
    )


@pytest.mark.parametrize(
    ("found", "is_fine"),
    [
        (("glibc", "2.36"), True),
        (("glibc", "2.35"), True),
        (("glibc", "2.34"), False),
        (("", ""), False),
    ],
)
def test_an_old_libc_is_a_problem_with_its_remedy(found: tuple[str, str], is_fine: bool) -> None:
    problem = runtime.glibc_problem(found)
    assert (problem is None) == is_fine
    assert problem is None or "Debian 12" in problem


def test_a_missing_or_incomplete_wheel_is_a_problem_with_its_remedy(tmp_path: Path) -> None:
    assert "hilum triton install" in (runtime.wheel_problem(None) or "")
    wheel = _fake_wheel(tmp_path)
    assert runtime.wheel_problem(wheel) is None
    wheel.stub.unlink()
    assert "lacks" in (runtime.wheel_problem(wheel) or "")


def test_the_runtime_folder_holds_the_stub_beside_its_library(tmp_path: Path) -> None:
    folder = runtime.prepare(_fake_wheel(tmp_path / "wheel"), tmp_path / "state")
    backend = folder / "backends/python"
    assert sorted(path.name for path in backend.iterdir()) == [
        "libtriton_python.so",
        "triton_python_backend_stub",
        "triton_python_backend_utils.py",
    ]
    assert os.access(backend / "triton_python_backend_stub", os.X_OK)
    assert runtime.prepare(_fake_wheel(tmp_path / "wheel"), tmp_path / "state") == folder
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


@pytest.mark.parametrize("left", ["triton_python_backend_stub", "libtriton_python.so"])
def test_a_runtime_folder_that_is_not_whole_is_made_again(tmp_path: Path, left: str) -> None:
    """A power cut once left names without bytes, and tritonserver did not start until somebody deleted the folder."""
    wheel = _fake_wheel(tmp_path / "wheel")
    wheel.stub.write_bytes(b"a stub")
    (wheel.backend / "libtriton_python.so").write_bytes(b"a library")
    folder = runtime.prepare(wheel, tmp_path / "state")
    (folder / "backends/python" / left).write_bytes(b"")
    assert runtime.prepare(wheel, tmp_path / "state") == folder
    assert (folder / "backends/python/triton_python_backend_stub").read_bytes() == b"a stub"
    assert (folder / "backends/python/libtriton_python.so").read_bytes() == b"a library"
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_the_server_sees_none_of_our_settings_or_secrets(tmp_path: Path) -> None:
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n")
    code = (
        "from hilum.triton import installation, runtime; from pathlib import Path; p = Path('/x');"
        f"home = installation.Installation(Path({str(tmp_path)!r}), '3.11');"
        "e = runtime.environment("
        "runtime.Wheel('1', p, p, p, Path('/libs'), p, home), Path('/own'));"
        "print(*(f'{k}={e[k]}' for k in sorted(e)), sep='\\n')"
    )
    given = {
        "HILUM_API__TOKEN": "secret",
        "PGPASSWORD": "secret",
        "OTEL_EXPORTER_OTLP_HEADERS": "secret",
        "PYTHONPATH": str(tmp_path),
    }
    given |= {
        "LD_LIBRARY_PATH": "/theirs",
        "PATH": "/usr/bin",
        "OMP_NUM_THREADS": "2",
        "LC_ALL": "C",
        "PYTHONUSERBASE": "/base",
    }
    code = f"import sys; sys.path.append({SERVER!r}); {code}"
    output = subprocess.run(
        [sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True
    )
    assert output.stdout.splitlines() == [
        "HOME=/own",
        "LC_ALL=C",
        "LD_LIBRARY_PATH=/libs:/theirs",
        "OMP_NUM_THREADS=2",
        f"PATH={tmp_path}/bin:/usr/bin",
        "TMPDIR=/own",
    ]


def test_there_is_no_port_and_no_model_is_loaded_unasked(tmp_path: Path) -> None:
    line = list(command.arguments(tmp_path, ["a__1", "b__2"], tmp_path, tmp_path, "p-", 15.0))
    options = list(itertools.pairwise(line))
    assert {
        ("--allow-http", "false"),
        ("--allow-metrics", "false"),
        ("--grpc-address", "unix:grpc"),
    } <= set(options)
    assert ("--model-control-mode", "explicit") in options
    assert [value for name, value in options if name == "--load-model"] == ["a__1", "b__2"]
    assert ("--backend-config", "python,shm-region-prefix-name=p-") in options


def test_nobody_listening_is_not_ready(tmp_path: Path) -> None:
    assert not command.is_ready(tmp_path)


def test_a_name_that_is_too_long_for_a_socket_is_known() -> None:
    assert command.fits(Path("/" + "x" * 99))
    assert not command.fits(Path("/" + "x" * 101))


def test_a_name_with_signs_of_a_uri_is_quoted() -> None:
    assert command.url(Path("/var/a #b?c%20")) == "unix:/var/a%20%23b%3Fc%2520/grpc:1"


def test_regions_that_others_may_read_are_found(tmp_path: Path) -> None:
    prefix = leftovers.prefix(tmp_path)
    files = {mode: Path("/dev/shm", f"{prefix}{mode:o}") for mode in (0o600, 0o640, 0o604)}
    try:
        for mode, file in files.items():
            file.touch()
            file.chmod(mode)
        assert sorted(leftovers.open_to_others(prefix)) == sorted([files[0o604], files[0o640]])
    finally:
        for file in files.values():
            file.unlink()


def test_regions_of_another_installation_are_left_alone(tmp_path: Path) -> None:
    ours, theirs = leftovers.prefix(tmp_path / "a"), leftovers.prefix(tmp_path / "b")
    assert ours != theirs
    region = Path("/dev/shm", f"{ours}test")
    region.write_bytes(b"left behind")
    try:
        assert leftovers.sweep(theirs) == []
        assert region.exists()
        assert leftovers.sweep(ours) == [region.name]
    finally:
        region.unlink(missing_ok=True)


def test_a_region_in_use_is_no_leftover(tmp_path: Path) -> None:
    import mmap

    prefix = leftovers.prefix(tmp_path)
    region = Path("/dev/shm", f"{prefix}test")
    region.write_bytes(b"x" * mmap.PAGESIZE)
    try:
        with region.open("r+b") as handle, mmap.mmap(handle.fileno(), 0):
            assert leftovers.unmapped(prefix) == []
        assert leftovers.unmapped(prefix) == [region]
    finally:
        region.unlink()


def test_a_release_that_is_not_built_is_named(tmp_path: Path) -> None:
    server = EmbeddedTriton(tmp_path / "models", tmp_path / "state", ["densenet__1"])
    with pytest.raises(
        ConfigurationError, match=r"densenet__1 is not built in .*: run `hilum models build`"
    ):
        server.start()
    assert server.pid is None
    assert server.poll() is None
    assert server.stop() is None


def test_the_launcher_refuses_to_start_without_its_parent() -> None:
    done = subprocess.run(
        [sys.executable, launcher.__file__, "1", "{}", "/bin/echo", "started"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    code = (
        "import os; from hilum.triton.sandbox import Sandbox; limits = Sandbox((),"
        f" ()).dump();os.execv({sys.executable!r}, [{sys.executable!r}, {launcher.__file__!r},"
        " str(os.getppid()), limits, '/bin/echo', 'started'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "started\n")

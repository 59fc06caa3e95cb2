"""The sandbox of the embedded tritonserver: each rule, and kernels that offer less."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hilum.triton import sandbox, seccomp
from hilum.triton.sandbox import Sandbox
from hilum.triton.server import _port

SERVER = str(Path(sandbox.__file__).parents[2])
PYTHON = (SERVER, sys.prefix, sys.base_prefix, *sandbox.library_folders())
WITHOUT_LANDLOCK = 'seccomp.restrict([seccomp.Denial("landlock_create_ruleset", errno.ENOSYS)])'
WITHOUT_SECCOMP = (
    'seccomp.restrict([seccomp.Denial("prctl", errno.EINVAL, ((0, seccomp._EQ, 21, 0),))])'
)

pytestmark = pytest.mark.skipif(sandbox.problem() is not None, reason=str(sandbox.problem()))


def said_by(*lines: str) -> str:
    """Standard output of these statements in a process of their own."""
    code = "\n".join(
        [
            "import errno, os, socket, sys",
            f"sys.path.append({SERVER!r})",
            "from hilum.triton import sandbox, seccomp",
            *lines,
        ]
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def error_of(statement: str) -> list[str]:
    return [
        "try:",
        f"    {statement}",
        "    print('worked')",
        "except OSError as error: print(errno.errorcode[error.errno])",
    ]


def in_sandbox(*statements: str, limits: Sandbox | None = None) -> list[str]:
    found = limits or Sandbox(PYTHON, ())
    return said_by(
        f"sandbox.Sandbox.load({found.dump()!r}).enter()",
        *(line for each in statements for line in error_of(each)),
    ).splitlines()


def test_nothing_is_connected_to_and_only_unix_streams_are_made() -> None:
    made = [
        f"socket.socket(socket.{family}, socket.{kind})"
        for family, kind in (("AF_UNIX", "SOCK_STREAM"), ("AF_UNIX", "SOCK_DGRAM"))
    ]
    made += [f"socket.socket(socket.{family})" for family in ("AF_INET", "AF_INET6", "AF_NETLINK")]
    connected = "socket.socket(socket.AF_UNIX).connect('/nowhere')"
    assert in_sandbox(*made, connected) == [
        "worked",
        "EACCES",
        "EAFNOSUPPORT",
        "EAFNOSUPPORT",
        "EAFNOSUPPORT",
        "EACCES",
    ]


def test_a_collector_is_connected_to_and_no_other_kind_of_network_is_used() -> None:
    limits = Sandbox(PYTHON, (), collector_port=9)
    connected = "socket.create_connection(('127.0.0.1', 9))"
    elsewhere = "socket.create_connection(('127.0.0.1', 10))"
    found = in_sandbox(connected, elsewhere, "socket.socket(socket.AF_NETLINK)", limits=limits)
    assert found == [
        "ECONNREFUSED",
        "EACCES" if sandbox.landlock.version() >= 4 else "ECONNREFUSED",
        "EAFNOSUPPORT",
    ]


def test_no_mode_for_others_is_set_by_any_call(tmp_path: Path) -> None:
    made = f"os.close(os.open({str(tmp_path / 'made')!r}, os.O_CREAT | os.O_WRONLY, 0o666))"
    modes = [
        f"os.chmod({str(tmp_path / 'made')!r}, {mode:#o})"
        for mode in (0o600, 0o604, 0o620, 0o610, 0o700)
    ]
    fchmod = f"os.fchmod(os.open({str(tmp_path / 'made')!r}, os.O_WRONLY), 0o644)"
    limits = Sandbox(PYTHON, (str(tmp_path),))
    assert in_sandbox(made, *modes, fchmod, limits=limits) == [
        "worked",
        "worked",
        "EPERM",
        "EPERM",
        "EPERM",
        "worked",
        "EPERM",
    ]
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o700


def test_a_kernel_without_landlock_still_has_the_filter(tmp_path: Path) -> None:
    (tmp_path / "ledger").touch()
    entered = [
        WITHOUT_LANDLOCK,
        f"sandbox.Sandbox.load({Sandbox((), ()).dump()!r}).enter()",
        "print(sandbox.landlock.version())",
    ]
    attempts = [
        *error_of(f"open({str(tmp_path / 'ledger')!r})"),
        *error_of("socket.socket(socket.AF_INET)"),
    ]
    assert said_by(*entered, *attempts).splitlines() == ["0", "worked", "EAFNOSUPPORT"]


def test_without_seccomp_or_its_library_it_is_said_what_to_do() -> None:
    assert said_by(WITHOUT_SECCOMP, "print(sandbox.problem())").startswith(
        "The embedded Triton cannot be shut in here"
    )
    assert "apt install libseccomp2" in str(sandbox.problem(library="libseccomp.so.0"))


def test_no_capability_is_left_to_root_but_reading() -> None:
    status = (
        "print(*(line.split()[1] for line in open('/proc/self/status') if"
        " line.startswith(('CapPrm', 'CapEff', 'CapAmb'))))"
    )
    limits = Sandbox(PYTHON, ()).dump()
    found = said_by(f"sandbox.Sandbox.load({limits!r}).enter()", status)
    reading = f"{4 if os.geteuid() == 0 else 0:016x}"
    assert found.split() == [reading, reading, "0" * 16]


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("", 0),
        ("http://collector/v1/traces", 80),
        ("https://collector/v1", 443),
        ("http://[::1]:4318/v1", 4318),
    ],
)
def test_the_collectors_port_is_that_of_its_address(url: str, port: int) -> None:
    assert _port(url) == port


def test_every_call_that_is_denied_has_a_number_here() -> None:
    """One that libseccomp did not know would be left out, without a word."""
    library = seccomp._library()
    young = {"fchmodat2"}  # Linux 6.6
    calls = {
        denial.call
        for has_collector in (False, True)
        for denial in seccomp.denials(has_collector=has_collector)
    }
    assert {
        call for call in calls - young if library.seccomp_syscall_resolve_name(call.encode()) < 0
    } == set()
    assert errno.EPERM in {denial.error for denial in seccomp.denials(has_collector=False)}

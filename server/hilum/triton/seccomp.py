"""A seccomp filter for the embedded tritonserver (seccomp(2)), made by libseccomp.

Standard library only, as the launcher runs without site-packages.
"""

from __future__ import annotations

import ctypes
import errno
import socket
import stat
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

LIBRARY: Final = "libseccomp.so.2"
# seccomp.h
_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_NE = 1
_EQ = 4
_GT = 6
_MASKED_EQ = 7
_CTL_SSB = 7
_CTL_OPTIMIZE = 8
_BINARY_TREE: Final = 2
# prctl(2): no filter can be set where asking for one fails.
_PR_GET_SECCOMP: Final = 21
_OTHERS: Final = (
    stat.S_IRGRP,
    stat.S_IWGRP,
    stat.S_IXGRP,
    stat.S_IROTH,
    stat.S_IWOTH,
    stat.S_IXOTH,
)
_CHANGES_MODE: Final = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2}
_TYPE: Final = 0xF  # of a socket, beside SOCK_CLOEXEC and SOCK_NONBLOCK
_NEVER: Final = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp"),  # other processes
    *(
        "io_uring_setup",
        "io_uring_enter",
        "io_uring_register",
    ),  # sockets and files past this filter
    *(
        "unshare",
        "setns",
        "mount",
        "umount2",
        "move_mount",
        "fsopen",
        "open_tree",
        "pivot_root",
        "chroot",
    ),
    *("bpf", "perf_event_open", "userfaultfd", "open_by_handle_at"),
    *("keyctl", "add_key", "request_key"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
)


class _Condition(ctypes.Structure):
    """The condition on one argument (scmp_arg_cmp)."""

    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("a", ctypes.c_uint64),
        ("b", ctypes.c_uint64),
    )


class Denial(NamedTuple):
    """A system call that fails with this error, if all conditions hold.

    A condition: (number of the argument, comparison, datum, datum), as scmp_arg_cmp.
    """

    call: str
    error: int
    conditions: tuple[tuple[int, int, int, int], ...] = ()


def is_available() -> bool:
    """Whether this kernel or the container's own filter lets a process have one."""
    return int(ctypes.CDLL(None).prctl(_PR_GET_SECCOMP, 0, 0, 0, 0)) >= 0


def is_installed(library: str) -> bool:
    """Whether a library of this name is installed."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def denials(*, has_collector: bool) -> Iterator[Denial]:
    """Return all calls that fail.

    `has_collector`: spans are posted over TCP, so it may connect.
    """
    yield from (Denial(call, errno.EPERM) for call in _NEVER)
    # boost makes a region of shared memory by the umask, then sets 0644 by fchmod and ignores the
    # result.
    for call, argument in _CHANGES_MODE.items():
        yield from (
            Denial(call, errno.EPERM, ((argument, _MASKED_EQ, bit, bit),)) for bit in _OTHERS
        )
    yield from _with_collector() if has_collector else _without_network()


def _without_network() -> Iterator[Denial]:
    """Return the denials without a collector.

    The server listens on one Unix socket and connects to no network and to nothing on this machine.
    """
    yield Denial("connect", errno.EACCES)
    yield Denial("socket", errno.EAFNOSUPPORT, ((0, _NE, socket.AF_UNIX, 0),))
    for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        yield Denial(
            "socket", errno.EACCES, ((0, _EQ, socket.AF_UNIX, 0), (1, _MASKED_EQ, _TYPE, kind))
        )


def _with_collector() -> Iterator[Denial]:
    """Return the denials with a collector.

    Unix sockets, IPv4 and IPv6 are allowed. Landlock limits the ports.
    """
    kept = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
    for family in range(max(kept) + 1):
        if family not in kept:
            yield Denial("socket", errno.EAFNOSUPPORT, ((0, _EQ, family, 0),))
    yield Denial("socket", errno.EAFNOSUPPORT, ((0, _GT, max(kept), 0),))


def restrict(denied: Iterator[Denial] | Sequence[Denial]) -> None:
    """Make these calls fail in this process and its children, for good. Raises OSError.

    Programs that it starts gain no privileges, either (no_new_privs).
    """
    library = _library()
    context = library.seccomp_init(_ALLOW)
    if not context:
        raise OSError(errno.ENOMEM, "libseccomp makes no filter")
    # Without SECCOMP_FILTER_FLAG_SPEC_ALLOW kernels before 5.16 slow the process down.
    library.seccomp_attr_set(context, _CTL_SSB, 1)
    library.seccomp_attr_set(context, _CTL_OPTIMIZE, _BINARY_TREE)
    for denial in denied:
        _add(library, context, denial)
    _require(library.seccomp_load(context), "the kernel takes no seccomp filter")
    library.seccomp_release(context)


def _add(library: ctypes.CDLL, context: int, denial: Denial) -> None:
    number = library.seccomp_syscall_resolve_name(denial.call.encode())
    if number < 0:  # a call that is younger than the library
        return
    conditions = (_Condition * len(denial.conditions))(
        *(_Condition(*each) for each in denial.conditions)
    )
    added = library.seccomp_rule_add_array(
        context, _ERRNO | denial.error, number, len(conditions), conditions
    )
    _require(added, f"libseccomp takes no rule for {denial.call}")


def _require(result: int, problem: str) -> None:
    if result < 0:
        raise OSError(-result, problem)


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(LIBRARY)
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_attr_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
    library.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.c_void_p,
    ]
    library.seccomp_load.argtypes = library.seccomp_release.argtypes = [ctypes.c_void_p]
    return library

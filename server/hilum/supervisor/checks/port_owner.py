"""The owner of a TCP port of this machine: this server, another Hilum, or another program.

Linux shows the process of a listening socket to root and to the user of that process. Where it is
hidden from us, as for a process in a container, the port is probed in its own protocol.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydicom.uid import ImplicitVRLittleEndian
from pynetdicom.sop_class import Verification

from hilum import IMPLEMENTATION_CLASS_UID
from hilum.deliver.connection import ConnectionLost
from hilum.deliver.scu import negotiation
from hilum.deliver.scu.connection import SocketReader
from hilum.dicom import pdu
from hilum.services.state_dir import LOCKS, is_held
from hilum.settings import Settings

_SECONDS: Final = 3.0
_LISTENS: Final = "0A"  # TCP_LISTEN of Linux
_LOCK: Final = re.compile(rf"(?P<state>.*)/run/{LOCKS.replace('*', '[a-z]+')}")
_CALLING: Final = "HILUM_CHECK"
# Our own listener may respond in these ways as well: it knows its senders by title or certificate.
_REJECTS: Final = f"a DICOM server that rejects {_CALLING}"
_SILENT_IN_TLS: Final = "a program that does not answer in DICOM with TLS"


@dataclass(frozen=True, slots=True)
class PortOwner:
    """The program that listens there; `words` end the sentence "the port is taken by"."""

    is_this_server: bool
    words: str


def owner_of(settings: Settings, host: str, port: int, protocol: str) -> PortOwner:
    """Return the owner of a port that cannot be bound. `protocol`: a key of `PROBES`."""
    holders = list(_holders(port))
    states = {state for pid in holders for state in _states(pid)}
    if settings.site.state_dir.resolve() in states:
        return PortOwner(is_this_server=True, words="the running server of this state folder")
    if states:
        return PortOwner(
            is_this_server=False,
            words=f"another Hilum, with the state folder {', '.join(map(str, sorted(states)))}",
        )
    stranger = PROBES[protocol](host, port)
    is_unclear = stranger in {_REJECTS, _SILENT_IN_TLS} and not holders and is_held(settings)
    if stranger is None or is_unclear:
        return _unseen_hilum(settings)
    names = sorted({f"{_name(pid)} (process {pid})" for pid in holders})
    return PortOwner(
        is_this_server=False, words=f"{', '.join(names)}: {stranger}" if names else stranger
    )


def _unseen_hilum(settings: Settings) -> PortOwner:
    """Return a Hilum whose processes are hidden from this user, or behind a proxy of containers."""
    if is_held(settings):
        return PortOwner(
            is_this_server=True,
            words="a Hilum, as it seems by the running server of this state folder",
        )
    return PortOwner(
        is_this_server=False, words="another Hilum: no server runs with this state folder"
    )


def _holders(port: int) -> Iterator[int]:
    """Return processes that hold a listening socket of this port, as far as this user sees them."""
    wanted = {f"socket:[{inode}]" for inode in _inodes(port)}
    for folder in Path("/proc").iterdir() if wanted else ():
        if folder.name.isdigit() and not wanted.isdisjoint(_open_files(int(folder.name))):
            yield int(folder.name)


def _inodes(port: int) -> Iterator[str]:
    """Return the inodes of listening sockets, from proc_pid_net(5)."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:  # a kernel without IPv6
            continue
        for row in rows:
            fields = row.split()
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _open_files(pid: int) -> set[str]:
    """Return the targets of a process's descriptors.

    It is empty if we may not look, or if the process is gone.
    """
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return set()
    found = set()
    for descriptor in descriptors:
        with contextlib.suppress(OSError):  # closed meanwhile
            found.add(str(descriptor.readlink()))
    return found


def _states(pid: int) -> Iterator[Path]:
    """Return the state folders whose supervisor this process is."""
    yield from (
        Path(found["state"]) for file in _open_files(pid) if (found := _LOCK.fullmatch(file))
    )


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "a program that has ended since"


def _ask_dicom(host: str, port: int) -> str | None:
    """Probe by an association (PS3.8 9.3): its acceptance names the implementation."""
    return _by_association(
        host, port, lambda plain: plain, "a program that does not answer in DICOM"
    )


def _ask_dicom_tls(host: str, port: int) -> str | None:
    """Probe by an association through TLS; the name in the certificate does not matter here."""
    return _by_association(host, port, _unverified().wrap_socket, _SILENT_IN_TLS)


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _by_association(
    host: str, port: int, secured: Callable[[socket.socket], socket.socket], silent: str
) -> str | None:
    try:
        with socket.create_connection((host, port), _SECONDS) as plain, secured(plain) as connected:
            wire = SocketReader(connected, _SECONDS)
            wire.send(
                [negotiation.request(_CALLING, "ANY-SCP", [(Verification, ImplicitVRLittleEndian)])]
            )
            kind, whole = wire.receive()
    except (OSError, ConnectionLost):
        return silent
    if kind == pdu.ASSOCIATE_RJ:
        return _REJECTS
    if kind != pdu.ASSOCIATE_AC:
        return silent
    return (
        None
        if IMPLEMENTATION_CLASS_UID.encode() in whole
        else f"a DICOM server that is no Hilum{_version_name(whole)}"
    )


def _version_name(accepted: bytes) -> str:
    """Return the Implementation Version Name (PS3.7 D.3.3.2.4) in brackets, or an empty text."""
    found = re.search(rb"\x55\x00\x00([\x01-\x10])([\x20-\x7e]{1,16})", accepted)
    return f" ({found[2][: found[1][0]].decode('ascii').strip()})" if found else ""


def _ask_http(host: str, port: int) -> str | None:
    """Probe by the health endpoint, which Hilum serves without authentication."""
    return _by_health(http.client.HTTPConnection(host, port, timeout=_SECONDS))


def _ask_https(host: str, port: int) -> str | None:
    """Probe by the health endpoint through TLS; the name in the certificate does not matter."""
    return _by_health(
        http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=_unverified())
    )


def _by_health(connection: http.client.HTTPConnection) -> str | None:
    try:
        connection.request("GET", "/health/live")
        said = json.loads(connection.getresponse().read(1024))
    except (OSError, http.client.HTTPException):
        return "a program that does not answer in HTTP"
    except ValueError:
        said = None
    finally:
        connection.close()
    return None if said == {"status": "alive"} else "a web server that is no Hilum"


PROBES: Final[Mapping[str, Callable[[str, int], str | None]]] = {
    "dicom": _ask_dicom,
    "dicom_tls": _ask_dicom_tls,
    "http": _ask_http,
    "https": _ask_https,
}
"""The probe of each protocol: it returns a description of the program, None for a Hilum."""

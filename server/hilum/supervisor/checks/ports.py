"""Ports: free, used by the running server or by another program; and the setting of each."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from hilum.errors import ConfigurationError
from hilum.processes.sockets import bind
from hilum.settings import Settings
from hilum.supervisor.checks.check import Check, accepts

if TYPE_CHECKING:
    from hilum.supervisor.checks.port_owner import PortOwner

_LOWEST: Final = 1024  # below it only root may bind
_TRIED: Final = 100
_WILDCARDS: Final[Mapping[str, str]] = {
    # Compared, not bound.
    "0.0.0.0": "127.0.0.1",  # noqa: S104
    "::": "::1",
}


@dataclass(frozen=True, slots=True)
class ConfiguredPort:
    """A port of the settings: its place in them, and its protocol."""

    section: str
    name: str
    host: str
    number: int
    protocol: Literal["dicom", "dicom_tls", "http", "https"]

    @property
    def title(self) -> str:
        """The name in checks."""
        return f"{self.section} {self.name.replace('_', ' ')}"

    def advice(self, ports: Sequence[ConfiguredPort]) -> str:
        """Return the setting to change, in the file or in the environment, with a free number.

        `ports`: all of the settings.
        """
        return (
            f"set {self.section}.{self.name} (HILUM_{self.section.upper()}__{self.name.upper()}),"
            f" such as {self._other(ports)}"
        )

    def _other(self, ports: Sequence[ConfiguredPort]) -> int:
        """Return the next free port that any user may bind and that no other setting uses."""
        begin = max(self.number, _LOWEST - 1)
        given = {port.number for port in ports}
        nearby = [
            _LOWEST + (begin + step - _LOWEST) % (65536 - _LOWEST) for step in range(1, _TRIED + 1)
        ]
        return next(
            (number for number in nearby if number not in given and _is_free(self, number)),
            nearby[0],
        )


def api_port(settings: Settings) -> ConfiguredPort:
    """Return the port of REST, health and metrics."""
    api = settings.api
    return ConfiguredPort("api", "port", api.host, api.port, "https" if api.is_tls else "http")


def dicom_ports(settings: Settings) -> list[ConfiguredPort]:
    """Return the ports on which a listener accepts associations."""
    receive = settings.receive
    found = (
        [ConfiguredPort("receive", "port", receive.host, receive.port, "dicom")]
        if receive.allow_unencrypted
        else []
    )
    if receive.tls_port:
        found.append(
            ConfiguredPort("receive", "tls_port", receive.host, receive.tls_port, "dicom_tls")
        )
    return found


def _ports(settings: Settings) -> list[ConfiguredPort]:
    return [*dicom_ports(settings), api_port(settings)]


def port_checks(settings: Settings) -> list[Check]:
    """Check for every port whether the server can listen there, or does."""
    ports = _ports(settings)
    clashes = {
        port.title: said
        for number, port in enumerate(ports)
        if (said := _clash(port, ports[:number], ports))
    }
    return [
        (
            Check(port.title, ok=False, detail=clashes[port.title])
            if port.title in clashes
            else port_check(settings, port)
        )
        for port in ports
    ]


def require_distinct(ports: Sequence[ConfiguredPort]) -> None:
    """Raise ConfigurationError where the settings give one number to two ports of one server."""
    if problems := [
        said for number, port in enumerate(ports) if (said := _clash(port, ports[:number], ports))
    ]:
        raise ConfigurationError(problems)


def _clash(
    port: ConfiguredPort, others: Sequence[ConfiguredPort], ports: Sequence[ConfiguredPort]
) -> str | None:
    for other in others:
        share_address = port.host == other.host or not {port.host, other.host}.isdisjoint(
            _WILDCARDS
        )
        if port.number == other.number and share_address:
            where = f"{port.section}: cannot listen on {port.host} port {port.number}"
            return (
                f"{where}: {other.section}.{other.name} has the same number; {port.advice(ports)}."
            )
    return None


def port_check(settings: Settings, port: ConfiguredPort) -> Check:
    """Check whether the server can listen there, or does."""
    where = f"{port.host}:{port.number}"
    try:
        bind(port.section, port.host, port.number, port.name).close()
    except ConfigurationError as error:
        owner = _owner(settings, port, error)
        if owner is None:
            return Check(port.title, ok=False, detail="; ".join(error.problems))
        if owner.is_this_server:
            return Check(port.title, ok=True, detail=f"{where} is in use by {owner.words}")
        advice = f"Stop it, or {port.advice(_ports(settings))}."
        return Check(
            port.title, ok=False, detail=f"{where} is taken by {owner.words}", advice=advice
        )
    return Check(port.title, ok=True, detail=f"{where} is free, so no server runs there now")


def bind_port(settings: Settings, port: ConfiguredPort) -> socket.socket:
    """Return a listening socket.

    Raises ConfigurationError with the program that listens there, and the remedy.
    """
    try:
        return bind(port.section, port.host, port.number, port.name)
    except ConfigurationError as error:
        owner = _owner(settings, port, error)
        if owner is None:
            raise
        problem = (
            f"{port.section}: cannot listen on {port.host} port {port.number}: it is taken by"
            f" {owner.words}"
        )
        raise ConfigurationError(
            [f"{problem}; {_way_out(owner, port.advice(_ports(settings)))}."]
        ) from error


def _owner(settings: Settings, port: ConfiguredPort, error: ConfigurationError) -> PortOwner | None:
    """Return the program that listens there.

    None: no program answers, or the address is not of this machine.
    """
    cause = error.__cause__
    host = _WILDCARDS.get(port.host, port.host)
    if (
        isinstance(cause, OSError)
        and cause.errno in {errno.EADDRINUSE, errno.EACCES}
        and accepts(host, port.number)
    ):
        # Pynetdicom, which a supervisor does not need.
        from hilum.supervisor.checks.port_owner import (  # noqa: PLC0415
            owner_of,
        )

        return owner_of(settings, host, port.number, port.protocol)
    return None


def _is_free(port: ConfiguredPort, number: int) -> bool:
    try:
        bind(port.section, port.host, number, port.name).close()
    except ConfigurationError:
        return False
    return True


def _way_out(owner: PortOwner, advice: str) -> str:
    if owner.is_this_server:  # another role: each supervisor has an API port of its own
        return (
            "stop it and run both roles in one server, as in `--role listener,dispatcher`, or"
            f" {advice}, for one of the two"
        )
    return f"stop it, or {advice}"

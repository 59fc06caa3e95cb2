"""Listening sockets, and the remedy when one cannot be bound."""

from __future__ import annotations

import errno
import os
import socket

from hilum.errors import ConfigurationError

_BACKLOG = 512  # the kernel keeps this many connections while a listener restarts


def bind(section: str, host: str, port: int, name: str = "port") -> socket.socket:
    """Return a listening TCP socket. Raises ConfigurationError with the setting to change."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = (
            error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        )
        problem = (
            f"{section}: cannot listen on {host} port {port} ({reason});"
            f" {_advice(section, name, error.errno)}."
        )
        raise ConfigurationError([problem]) from error


def _advice(section: str, name: str, number: int | None) -> str:
    if number == errno.EADDRINUSE:
        return f"another program listens there: stop it or set {section}.{name}"
    if number == errno.EACCES:
        return (
            f"this user may not bind it: set {section}.{name} above 1023, or grant"
            " CAP_NET_BIND_SERVICE"
        )
    return f"set {section}.host to an address of this machine"

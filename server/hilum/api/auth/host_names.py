"""The Host header of a request that shows no token: only our own names are answered.

A page in a browser on this machine could reach us under a name of its own (DNS rebinding). It
cannot do so under an address.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Final

from fastapi import Request

from hilum.settings import Api

# RFC 9110 7.2, without characters that no host name has; raw, because URL parsers find a host in
# more than that.
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]{1,5})?")


def has_own_name(request: Request, api: Api) -> bool:
    """Return whether the request was sent to an address or to one of our host names."""
    given = request.headers.getlist("host")
    found = _HOST.fullmatch(given[0]) if len(given) == 1 else None
    return found is not None and _is_own((found[1] or found[2]).lower().removesuffix("."), api)


def _is_own(name: str, api: Api) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in {
            "localhost",
            socket.gethostname().lower(),
            api.host.lower(),
            *(known.lower() for known in api.names),
        }
    return True

"""One address for two listeners: HAProxy in TCP mode, which asks each listener whether it is ready.

Hospitals use HAProxy, an F5 or a NetScaler in this place. A listener that dies gets no new
connection once it has failed a check. Rules of nftables would go on sending half of them there.
"""

from __future__ import annotations

from load_tests.fleet.host import FleetHost
from load_tests.fleet.topology import API_PORT, DICOM_PORT, of_role
from testing.serving import environment_without_settings

_LINES = """\
global
    maxconn 512

defaults
    mode tcp
    timeout connect 3s
    timeout client 1h
    timeout server 1h
    retries 2
    option redispatch

frontend dicom
    bind {address}:{port}
    default_backend listeners

backend listeners
    balance roundrobin
    option httpchk
    http-check send meth GET uri /health/ready?role=receive ver HTTP/1.1 hdr Host {address}
    default-server check port {api_port} inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
"""


def start(host: FleetHost) -> None:
    """Write its settings and start it on the host."""
    lines = _LINES.format(address=host.spec.address, port=DICOM_PORT, api_port=API_PORT)
    servers = [
        f"    server {spec.name} {spec.address}:{DICOM_PORT}" for spec in of_role("listener")
    ]
    file = host.folder / "haproxy.cfg"
    file.write_text("\n".join([lines.rstrip(), *servers, ""]), encoding="utf-8")
    host.spawn("haproxy", "-db", "-f", str(file), environment=environment_without_settings())

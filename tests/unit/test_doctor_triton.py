"""`hilum check` on Tritons that somebody else runs."""

from __future__ import annotations

import socket
from pathlib import Path

from hilum.settings import Settings
from hilum.supervisor.doctor import examine
from load_tests.serving import free_ports


def test_each_triton_of_the_settings_is_looked_at(tmp_path: Path) -> None:
    gone, receive, api = free_ports(3)
    with socket.create_server(("127.0.0.1", 0)) as there:
        urls = [f"127.0.0.1:{there.getsockname()[1]}", f"127.0.0.1:{gone}"]
        sections = {"site": {"state_dir": tmp_path}, "receive": {"port": receive}, "api": {"port": api}, "triton": {"urls": urls}}
        found = [check for check in examine(Settings(**sections)) if check.name == "triton"]
    assert [(check.detail, check.ok) for check in found] == [(urls[0], True), (urls[1], False)]
    assert "start that Triton" in found[1].advice

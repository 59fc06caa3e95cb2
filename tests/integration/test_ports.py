"""A port that is taken is said at the start, before anything runs."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from load_tests.serving import Hilum
from tests.support.installation import free_ports, hilum_with
from tests.support.models import Tiny, make_tiny


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny(tmp_path_factory.mktemp("tiny"))


def refusal(server: Hilum) -> subprocess.CompletedProcess[str]:
    return subprocess.run(server.command("serve"), capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("section", ["receive", "api"])
def test_a_taken_port_refuses_the_start_and_names_the_setting(tmp_path: Path, tiny: Tiny, section: str) -> None:
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as taken:
        port = taken.getsockname()[1]
        done = refusal(hilum_with(tmp_path, tiny, {}, **{section: {"port": port}}))
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert f"{section}: cannot listen on 127.0.0.1 port {port}" in said
    assert f"set {section}.port" in said
    assert "process_started" not in said

"""The page "Two hosts", as far as it can be checked without its hosts.

`make proof PROOF=two_hosts` follows it word by word.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hilum.settings import load
from load_tests.fleet.two_hosts import SPECS
from testing.serving import REPOSITORY

PAGE = (REPOSITORY / "docs/operate/two_hosts.md").read_text(encoding="utf-8")


def files() -> dict[str, str]:
    """Files that the page has its reader write."""
    return dict(
        re.findall(r"^```(?:toml|conf|cfg) (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    )


def test_each_block_of_commands_names_a_host_of_the_testbed():
    named = re.findall(r"^```console ?(\S*)$", PAGE, re.MULTILINE)
    assert set(named) == {spec.name for spec in SPECS}


def test_the_table_gives_the_addresses_of_the_testbed():
    for spec in SPECS:
        assert f"`{spec.name}`" in PAGE
        assert spec.address in PAGE


def test_its_settings_are_valid(tmp_path: Path):
    path = tmp_path / "hilum.toml"
    path.write_text(files()["hilum.toml"], encoding="utf-8")
    settings = load(path)
    assert settings.ledger_url.endswith("target_session_attrs=read-write")


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not installed")
def test_haproxy_takes_its_file(tmp_path: Path):
    path = tmp_path / "haproxy.cfg"
    path.write_text(files()["haproxy.cfg"], encoding="utf-8")
    done = subprocess.run(
        ["haproxy", "-c", "-f", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

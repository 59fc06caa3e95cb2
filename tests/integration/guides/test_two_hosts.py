"""The page "Two hosts", followed word by word on hosts that are network namespaces."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from load_tests.fleet.isolation import problem, run_alone
from testing.serving import REPOSITORY
from tests.support.ledger.postgres import require_postgresql
from tests.support.models.triton import require_triton
from tests.support.peers.peers import missing

PAGE = REPOSITORY / "docs/operate/two_hosts.md"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_page_ends_with_a_report_after_a_host_and_the_primary_are_lost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if reason := problem():
        pytest.skip(reason)
    require_postgresql()
    require_triton()
    if shutil.which("haproxy") is None:
        missing("haproxy is not installed (Debian package haproxy)")
    status = run_alone("tests.support.server.two_hosts", [str(PAGE), str(tmp_path)])
    said = capfd.readouterr()
    assert status == 0, said.err
    assert said.out.splitlines()[-1] == """grep -c '"state": "delivered"' third.json"""

"""The API as a real server: stops when asked, says what to do when its port is taken, and is scraped by a real Prometheus."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from hilum.api.serve import serve_api
from hilum.errors import ConfigurationError
from hilum.processes.sockets import bind
from hilum.settings import Api
from hilum.store.ledger import Ledger
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.street import Clock, Street
from tests.support.machine.waiting import wait_for
from tests.support.peers.peers import free_port, require_program, wait_for_port
from tests.support.server.api_client import open_rig, settings_for


@dataclass
class Served:
    """A running API process."""

    url: str
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def headers(self) -> dict[str, str]:
        """With the token of the host."""
        return {"Authorization": f"Bearer {(self.folder / 'run/api-token').read_text()}"}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    ledger = Ledger(migrated_sqlite(tmp_path), Clock(time.time() - 60))
    Street(ledger, Clock(time.time() - 60)).walk("1.2.3", 1)
    ledger.close()
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.server.api_process", str(tmp_path), str(port)]
    )
    try:
        wait_for_port(port, process)
        yield Served(f"http://127.0.0.1:{port}", tmp_path, process)
    finally:
        process.kill()
        process.wait()


def test_sigterm_ends_it_cleanly(served: Served) -> None:
    with httpx.Client(base_url=served.url, headers=served.headers) as client:
        assert client.get("/api/v1/studies").json()["studies"][0]["study_instance_uid"] == "1.2.3"
        assert "server" not in client.get("/health/live").headers
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(timeout=20) == 0


def test_a_request_in_progress_is_finished(tmp_path: Path) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def slow(stage: str, **_: str | None) -> int:
        begun.set()
        assert goes_on.wait(30)
        return len(stage)

    with open_rig(tmp_path, requeue=slow) as rig:
        settings = settings_for(tmp_path).model_copy(update={"api": Api(port=free_port())})
        stop, answers = threading.Event(), []
        server = threading.Thread(
            target=serve_api,
            args=(rig.client.app, bind("api", settings.api.host, settings.api.port), stop),
        )
        url = f"http://127.0.0.1:{settings.api.port}/api/v1/requeue"
        order = {"stage": "report", "all": True}
        caller = threading.Thread(
            target=lambda: answers.append(
                httpx.post(url, json=order, headers=rig.headers, timeout=30).json()
            )
        )
        server.start()
        caller.start()
        assert begun.wait(30)
        stop.set()
        goes_on.set()
        caller.join(30)
        server.join(30)
    assert answers == [{"requeued": 6}]
    assert not server.is_alive()


def test_a_port_that_is_taken_says_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings = settings_for(tmp_path).model_copy(
            update={"api": Api(port=other.getsockname()[1])}
        )
        with pytest.raises(
            ConfigurationError, match=r"another program listens there: stop it or set api\.port"
        ):
            bind("api", settings.api.host, settings.api.port)


def test_an_address_of_another_machine_says_what_to_do(tmp_path: Path) -> None:
    settings = settings_for(tmp_path).model_copy(
        update={"api": Api(host="192.0.2.1", token="t", port=free_port())}
    )
    with pytest.raises(ConfigurationError, match=r"set api\.host to an address of this machine"):
        bind("api", settings.api.host, settings.api.port)


def prometheus(folder: Path, target: str) -> tuple[subprocess.Popen[bytes], str]:
    """A Prometheus that scrapes `target` twice a second; its process and address."""
    program, port = require_program("prometheus", "prometheus"), free_port()
    jobs = [
        {
            "job_name": "hilum",
            "scrape_interval": "500ms",
            "scrape_timeout": "500ms",
            "static_configs": [{"targets": [target]}],
        }
    ]
    jobs[0]["authorization"] = {"credentials_file": str(folder / "run" / "api-token")}
    (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": jobs}))  # JSON is YAML
    options = [
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    process = subprocess.Popen([program, *options, "--log.level=error"])
    wait_for_port(port, process)
    return process, f"http://127.0.0.1:{port}/api/v1/query"


def test_a_real_prometheus_scrapes_it(served: Served) -> None:
    process, query_url = prometheus(served.folder, served.url.removeprefix("http://"))

    def query(expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = httpx.get(query_url, params={"query": expression}).json()[
            "data"
        ]["result"]
        return found

    try:
        httpx.get(f"{served.url}/api/v1/studies/1.2.3", headers=served.headers).raise_for_status()
        wait_for(lambda: query('up{job="hilum"} == 1'))
        route = 'route="/api/v1/studies/{study_instance_uid}"'
        (bucket,) = wait_for(
            lambda: query(f'hilum_http_request_seconds_bucket{{{route},status="200",le="+Inf"}}')
        )
        assert bucket["value"][1] == "1"
        (queue,) = wait_for(
            lambda: query('hilum_queue_items{stage="analyse",priority="live",state="due"}')
        )
        assert queue["value"][1] == "0"
        (studies,) = wait_for(lambda: query("hilum_studies_recorded"))
        assert studies["value"][1] == "1"
    finally:
        process.terminate()
        process.wait(timeout=20)

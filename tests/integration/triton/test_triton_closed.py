"""Attacks on the embedded tritonserver by other accounts and web pages, and from inside of it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio as triton

from hilum.analyse import credentials
from hilum.analyse.inference.endpoints import Endpoints
from hilum.analyse.inference.gateway import TritonGateway
from hilum.models.known_answers.canary import read_canary
from hilum.observability.telemetry import TRITON_FOREIGN_MODELS
from hilum.settings import Settings
from hilum.settings import Triton as TritonSettings
from hilum.supervisor.checks.triton import triton_checks
from hilum.triton import landlock, leftovers
from hilum.triton.server import EmbeddedTriton
from tests.support.machine.processes import children_of
from tests.support.models.releases import Tiny, make_tiny, pictures, tiny_logits
from tests.support.models.triton import (
    RemoteTriton,
    killed_afterwards,
    listening,
    mutual_tls,
    require_triton,
)
from tests.support.peers.certificates import Authority

pytestmark = pytest.mark.usefixtures("embedded_triton")

SERVER, STRANGER = 41001, 41002
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can act as two other accounts (setpriv)"
)

INTRUDER = '''
import ctypes, json, os, resource, socket, stat
from pathlib import Path
import numpy as np
import triton_python_backend_utils as pb_utils


def tried(attempt):
    """True: it worked."""
    try:
        attempt()
        return True
    except OSError:
        return False


def connected(family, address):
    with socket.socket(family) as made:
        made.settimeout(5)
        made.connect(address)


def attempts(given):
    region = "/dev/shm/" + given["prefix"] + "intruder"
    Path(region).write_bytes(b"x")
    found = {
        "read the ledger": lambda: Path(given["state"], "ledger.sqlite").read_bytes(),
        "list the archive": lambda: os.listdir(Path(given["state"], "archive")),
        "write a model": lambda: Path(given["model"], "1/model.py").open("ab").close(),
        "make a file beside the model": lambda: Path(given["model"], "1/other.py").write_text(""),
        "connect by TCP": lambda: connected(socket.AF_INET, ("127.0.0.1", given["port"])),
        "connect to another program's socket": lambda: connected(socket.AF_UNIX, given["socket"]),
        "read the supervisor's environment": lambda: Path(f"/proc/{given['pid']}/environ").read_bytes(),
        "read the supervisor's files": lambda: os.readlink(f"/proc/{given['pid']}/fd/0"),
        "signal the supervisor": lambda: os.kill(given["pid"], 0),
        "open a region to others": lambda: os.chmod(region, 0o644),
        "read the private key of this host": lambda: os.listdir("/etc/ssl/private"),
    }
    worked = {name: tried(attempt) for name, attempt in found.items()}
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    worked["gain new privileges"] = status["NoNewPrivs"].strip() == "0"
    worked["dump core"] = resource.getrlimit(resource.RLIMIT_CORE) != (0, 0)
    os.unlink(region)
    return worked


class TritonPythonModel:
    def initialize(self, args):
        given = json.loads(Path(__file__).with_name("given.json").read_text())
        Path(os.environ["TMPDIR"], "worked.json").write_text(json.dumps(attempts(given)))

    def execute(self, requests):
        return [pb_utils.InferenceResponse([pb_utils.Tensor("logits", np.zeros((1, 3), np.float32))]) for _ in requests]
'''

POLL = """
import glob, os, sys
opened, denied = 0, 0
print("began", flush=True)
os.set_blocking(0, False)
while True:
    for name in glob.glob(sys.argv[1]):
        try:
            open(name, "rb").close(); opened += 1
        except PermissionError:
            denied += 1
        except FileNotFoundError:
            pass
    try:
        if os.read(0, 1) == b"":
            break
    except BlockingIOError:
        pass
print(opened, denied, flush=True)
"""


def as_account(uid: int, *command: str) -> list[str]:
    return ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", *command]


@pytest.fixture
def state() -> Iterator[Path]:
    """A state folder that is open to every account: only what Hilum makes in it is closed."""
    folder = Path(tempfile.mkdtemp(prefix="hilum-open-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def server(tiny: Tiny, state: Path) -> Iterator[EmbeddedTriton]:
    with killed_afterwards(
        EmbeddedTriton(tiny.built_dir, state, [tiny.release.triton_name], 60, 1)
    ) as made:
        yield made


def test_no_process_of_it_listens_on_a_port(server: EmbeddedTriton) -> None:
    """So no other account and no web page can load a model, and no chunked request crashes it."""
    server.start()
    assert server.pid is not None
    family = [server.pid, *children_of(server.pid)]
    assert len(family) > 1
    assert [listening(pid) for pid in family] == [set()] * len(family)


@needs_root
def test_another_account_cannot_reach_its_socket(server: EmbeddedTriton) -> None:
    file = server.start().removeprefix("unix:")
    code = f"import socket; socket.socket(socket.AF_UNIX).connect({file!r})"
    ours = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    theirs = subprocess.run(
        as_account(STRANGER, "/usr/bin/python3", "-c", code),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ours.returncode == 0, "the same words work for us"
    assert theirs.stderr.splitlines()[-1] == "PermissionError: [Errno 13] Permission denied"


@needs_root
def test_another_account_reads_no_region_while_images_are_read(
    server: EmbeddedTriton, tiny: Tiny, state: Path
) -> None:
    url, prefix = server.start(), leftovers.prefix(state)
    needle = pictures(4, seed=7)
    watching = as_account(STRANGER, "/usr/bin/python3", "-c", POLL, f"/dev/shm/{prefix}*")
    with subprocess.Popen(
        watching, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as poller:
        assert poller.stdin is not None
        assert poller.stdout is not None
        assert poller.stdout.readline() == "began\n"

        async def read() -> None:
            gateway = TritonGateway(url, deadline_seconds=30)
            for _ in range(50):
                inference = await gateway.infer(tiny.release, needle)
            assert np.abs(inference.logits - tiny_logits(needle)).max() < 1e-4
            await gateway.close()

        asyncio.run(read())
        regions = list(Path("/dev/shm").glob(f"{prefix}*"))
        assert any(needle.tobytes() in region.read_bytes() for region in regions), (
            "it is there for us to find"
        )
        poller.stdin.close()
        opened, denied = map(int, poller.stdout.read().split())
    assert opened == 0
    assert denied > 0
    assert leftovers.open_to_others(prefix) == []


def test_a_server_that_was_taken_over_sees_neither_ledger_nor_network(
    tiny: Tiny, state: Path
) -> None:
    """The intruder is a model that Triton's own stub runs."""
    (state / "ledger.sqlite").write_text("patients")
    (state / "archive").mkdir()
    evil = state / "built/embedded/evil__1"
    shutil.copytree(tiny.built_dir / "embedded/tiny__1", evil)
    (evil / "config.pbtxt").write_text(
        (evil / "config.pbtxt").read_text().replace("tiny__1", "evil__1")
    )
    (evil / "1/model.py").write_text(INTRUDER)
    made = EmbeddedTriton(state / "built", state, ["evil__1"], 60, 1)
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as other,
        killed_afterwards(made),
    ):
        other.bind(str(state / "another"))
        other.listen()
        given = {
            "state": str(state),
            "model": str(evil),
            "port": tcp.getsockname()[1],
            "socket": str(state / "another"),
        }
        given |= {"pid": os.getpid(), "prefix": "hilum-test-"}
        (evil / "1/given.json").write_text(json.dumps(given))
        without = _attempts(evil / "1", given)
        (evil / "1/other.py").unlink()
        made.start()
        worked = json.loads((state / "run/triton/worked.json").read_text())
    assert [
        name for name, is_done in without.items() if not is_done and name != "dump core"
    ] == [], "without the sandbox all of it works"
    hidden_by_landlock = {
        name for name in worked if name.split()[0] in {"read", "list", "write", "make", "signal"}
    }
    expected = set() if landlock.version() else hidden_by_landlock
    expected |= {"signal the supervisor"} if landlock.version() < 6 else set()
    assert {name for name, is_done in worked.items() if is_done} == expected


def _attempts(folder: Path, given: dict[str, Any]) -> dict[str, bool]:
    """The intruder in a process of its own that is shut in nowhere."""
    code = (
        "import json, sys, types; sys.modules['triton_python_backend_utils'] ="
        " types.ModuleType('x'); from model import attempts;"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{code} print(json.dumps(attempts(json.loads({json.dumps(given)!r}))))",
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, bool] = json.loads(done.stdout)
    return found


@needs_root
def test_an_ordinary_account_can_run_it(tiny: Tiny, state: Path) -> None:
    built = state / "built"
    shutil.copytree(tiny.built_dir, built)
    for path in (state, built, *built.rglob("*")):
        os.chown(path, SERVER, SERVER)
    code = (
        "import os; from pathlib import Path; from hilum.triton.server import"
        f" EmbeddedTriton\nserver = EmbeddedTriton(Path({str(built)!r}), Path({str(state)!r}),"
        f" [{tiny.release.triton_name!r}], 60, 1)\nprint(server.start(), flush=True); server.stop()"
    )
    done = subprocess.run(
        as_account(SERVER, sys.executable, "-c", code), capture_output=True, text=True, check=False
    )
    assert f"unix:{state}/run/triton/grpc:1" in done.stdout.splitlines(), done.stderr


def test_openvino_runs_in_the_sandbox_and_leaves_nothing_in_the_home(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_triton()
    (home := tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(home))
    vino = make_tiny(tmp_path, "vino", engine="openvino")
    before = sorted(home.rglob("*"))

    async def ask(url: str) -> np.ndarray[Any, Any]:
        gateway = TritonGateway(url, deadline_seconds=30)
        inference = await gateway.infer(vino.release, pictures(2))
        await gateway.close()
        return inference.logits

    with killed_afterwards(
        EmbeddedTriton(vino.built_dir, state, [vino.release.triton_name], 60, 1)
    ) as made:
        logits = asyncio.run(ask(made.start()))
    assert np.abs(logits - tiny_logits(pictures(2))).max() < 1e-2
    assert sorted(home.rglob("*")) == before


def test_a_state_folder_with_a_long_name_gets_its_socket_elsewhere(tiny: Tiny, state: Path) -> None:
    far = state / ("x" * 100)
    with killed_afterwards(
        EmbeddedTriton(tiny.built_dir, far, [tiny.release.triton_name], 60, 1)
    ) as made:
        folder = Path(made.start().removeprefix("unix:")).parent
        assert not folder.is_relative_to(state)
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


def test_a_model_that_is_not_ours_is_named(tiny: Tiny, state: Path) -> None:
    built = state / "built"
    shutil.copytree(tiny.built_dir, built)
    shutil.copytree(built / "embedded/tiny__1", built / "embedded/theirs")
    config = built / "embedded/theirs/config.pbtxt"
    config.write_text(config.read_text().replace("tiny__1", "theirs"))
    open_to_us = EmbeddedTriton(built, state / "own", [tiny.release.triton_name], 60, 1)

    async def use(address: str) -> list[list[str]]:
        gateway, client = Endpoints({"foreign": address}, 30), triton.InferenceServerClient(address)
        assert (
            await gateway.check_canary(tiny.release, read_canary(tiny.release, tiny.built_dir))
            is None
        )
        said = []
        for step in (None, client.load_model, client.unload_model):
            if step is not None:
                await step("theirs")
            while (
                "theirs" in (await gateway._endpoints[0].gateway.served() or ())
                and step == client.unload_model
            ):
                await asyncio.sleep(0.02)
            await gateway.look_for_foreign({tiny.release.triton_name})
            said.append(gateway.warnings())
            assert TRITON_FOREIGN_MODELS.labels("foreign")._value.get() == len(said[-1])
        assert gateway.problems() == [], "it serves what is ours"
        await client.close()
        await gateway.close()
        return said

    with killed_afterwards(open_to_us) as running:
        said = asyncio.run(use(running.start()))
    assert said == [[], ["Triton foreign has loaded models that are not ours: theirs"], []]


def test_a_model_that_is_not_ours_is_a_problem_for_check(tiny: Tiny, state: Path) -> None:
    built = state / "models"
    shutil.copytree(tiny.built_dir, built)
    shutil.copytree(built / "embedded/tiny__1", built / "embedded/theirs")
    config = built / "embedded/theirs/config.pbtxt"
    config.write_text(config.read_text().replace("tiny__1", "theirs"))
    models = {"manifests": tiny.manifests_dir}
    with killed_afterwards(
        EmbeddedTriton(built, state, [tiny.release.triton_name, "theirs"], 60, 1)
    ) as running:
        running.start()
        found = {
            check.name: check
            for check in triton_checks(Settings(site={"state_dir": state}, models=models))
        }
        permitted = Settings(
            site={"state_dir": state}, models=models, triton={"other_models": ["theirs"]}
        )
        after = {check.name: check for check in triton_checks(permitted)}
    assert not found["triton models"].ok
    assert found["triton models"].detail.endswith("2 loaded, not ours: theirs")
    assert after["triton models"].ok


def test_a_remote_triton_is_asked_over_mutual_tls(tiny: Tiny, tmp_path: Path) -> None:
    ours, strangers = Authority(tmp_path / "ours"), Authority(tmp_path / "strangers")
    theirs, own, other = (
        ours.identity("triton", "IP:127.0.0.1"),
        ours.identity("hilum"),
        strangers.identity("stranger"),
    )
    remote = RemoteTriton(
        tiny.built_dir,
        tmp_path / "remote",
        [tiny.release.triton_name],
        *mutual_tls(theirs, ours.file),
    )

    def problem(**settings: object) -> str | None:
        async def ask() -> str | None:
            found = credentials.read(TritonSettings(url=remote.url, **settings))
            gateway = Endpoints({"tls": remote.url}, 5, credentials=found)
            try:
                return await gateway.check_canary(
                    tiny.release, read_canary(tiny.release, tiny.built_dir)
                )
            finally:
                await gateway.close()

        return asyncio.run(ask())

    with killed_afterwards(remote):
        remote.start()
        shown = {"tls": True, "ca_file": ours.file}
        assert problem(**shown, certificate_file=own.certificate, key_file=own.key) is None
        refused = f"Triton at {remote.url} does not answer"
        assert refused in str(problem())
        assert refused in str(problem(**shown))
        assert refused in str(
            problem(**shown, certificate_file=other.certificate, key_file=other.key)
        )
        assert refused in str(
            problem(
                tls=True, ca_file=strangers.file, certificate_file=own.certificate, key_file=own.key
            )
        )

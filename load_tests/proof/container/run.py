"""image, air_gap: the image of deploy/Dockerfile made and run without docker; wheels without a network."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from deploy import wheelhouse
from hilum import sbom
from load_tests.load.figures import Goal
from load_tests.proof.container import base, dockerfile, installation, inventory, visit
from load_tests.proof.container.build import Builder, Image, size
from load_tests.proof.container.context import Context, NotInContext
from load_tests.proof.container.root import Network, Root, StepFailed, User, in_network_of
from load_tests.proof.part import Outcome, Plan
from load_tests.proof.small_disk import may_mount
from testing import accounting
from testing.serving import REPOSITORY, as_toml

_WHEELS: Final = "/tmp/wheelhouse"  # noqa: S108 - in the root, where a tmpfs is mounted for the command
# pip in RUN finds the same files, by hash, in a folder: the index of PyTorch is not reached everywhere.
_REACH: Final = {
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": _WHEELS,
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "DEBIAN_FRONTEND": "noninteractive",
}
_FAILED: Final = (
    StepFailed,
    NotInContext,
    dockerfile.NotUnderstood,
    wheelhouse.NotFetched,
    subprocess.TimeoutExpired,
)
_PATIENCE_SECONDS: Final = 300.0
_STOP_SECONDS: Final = 60.0
_SHOWN: Final = 5
_PROCESSES: Final = 8  # supervisor, listener, analyser, decode, dispatcher, report, api, Triton
_RELEASE: Final = "densenet121_untrained@1"


def image(plan: Plan) -> Outcome:
    """Build it from a clean Debian, look into it, and send studies through it."""
    return _tried(_image, plan)


def air_gap(plan: Plan) -> Outcome:
    """The steps of docs/operate/images.md for a machine without a network, in a clean Debian."""
    return _tried(_installed, plan)


def _tried(part: Callable[[Plan], Outcome], plan: Plan) -> Outcome:
    if not may_mount():
        return Outcome(left_out="needs the right to mount a file system; run it as root")
    if missing := base.missing_program():
        return Outcome(left_out=missing)
    try:
        return part(plan)
    except _FAILED as error:
        return Outcome(goals=(Goal("steps that failed", 1, "steps", 0),), problems=(str(error),))


def _installed(plan: Plan) -> Outcome:
    layers = base.base_layers(plan.folder / "base")
    listed = installation.install(layers, plan.folder / "work", plan.say)
    wanted = len(sbom.LICENCES.read_text(encoding="utf-8").splitlines())
    goals = (
        Goal("steps that failed", 0, "steps", 0),
        Goal("licences that it lists", listed, "lines", wanted, at_most=False),
    )
    return Outcome({"licences_listed": listed}, goals)


def _image(plan: Plan) -> Outcome:
    wheelhouse.fetch()
    plan.folder.mkdir(parents=True)
    made = _built(plan)
    uid, _, gid = made.user.partition(":")
    user = User(int(uid), int(gid), is_bare=True)
    root = Root(tuple(made.layers), plan.folder / "place", network=Network.LOOPBACK_ALONE)
    plan.say("looking into the image")
    found = inventory.inventory(made, root, user)
    ran = _Container(plan, made, root, user).visited()
    first = len(base.base_layers(plan.folder / "place"))
    figures = {
        "base_bytes": sum(size(layer) for layer in made.layers[:first]),
        "bytes_by_layer": made.sizes,
        "bytes": sum(made.sizes.values()),
        "labels": made.labels,
        **_shortened(asdict(found)),
        **ran,
    }
    return Outcome(figures, (*_goals_of(found), *_goals_of_run(ran, plan)))


def _built(plan: Plan) -> Image:
    layers = base.base_layers(plan.folder / "base")
    builder = Builder(
        plan.folder,
        REPOSITORY / "state/image-layers",
        Context.of(REPOSITORY, REPOSITORY / "deploy/Dockerfile.dockerignore"),
        Image(list(layers), dict(base.ENVIRONMENT)),
        _REACH,
        {wheelhouse.WHEELHOUSE: _WHEELS},
        plan.say,
    )
    text = (REPOSITORY / "deploy/Dockerfile").read_text(encoding="utf-8")
    return builder.build(dockerfile.read(text))


def _shortened(found: dict[str, Any]) -> dict[str, Any]:
    return {name: _first(value) for name, value in found.items()}


def _first(value: Any) -> Any:  # noqa: ANN401 - a figure of any kind
    return list(value[:_SHOWN]) if isinstance(value, tuple) else value


def _goals_of(found: inventory.Inventory) -> tuple[Goal, ...]:
    return (
        Goal("packages that its list lacks", len(found.packages_not_listed), "packages", 0),
        Goal("listed packages that it lacks", len(found.packages_missing), "packages", 0),
        Goal("programs that its list lacks", len(found.programs_not_listed), "files", 0),
        Goal("lists that differ from hilum sbom", int(found.lists_differ), "lists", 0),
        Goal("setuid files", len(found.setuid_files), "files", 0),
        Goal("compilers", len(found.compilers), "files", 0),
        Goal("files that its user may write", len(found.writable), "files", 0),
    )


def _goals_of_run(ran: dict[str, Any], plan: Plan) -> tuple[Goal, ...]:
    refused = sum(count for answer, count in ran["answers"].items() if answer != "0x0000")
    return (
        Goal("images not answered Success", refused, "images", 0),
        Goal("studies with a report", ran["reports"], "studies", _studies(plan), at_most=False),
        Goal("processes of the server", ran["processes"], "processes", _PROCESSES, at_most=False),
        Goal("processes with a capability", ran["capable"], "processes", 0),
        Goal("processes of another user", ran["of_others"], "processes", 0),
        Goal("folders of the root that took a file", len(ran["writes_taken"]), "folders", 0),
        Goal("health checks that failed", int(not ran["is_healthy"]), "checks", 0),
        Goal("exit status after SIGTERM", ran["exit_status"], "", 0),
    )


def _studies(plan: Plan) -> int:
    return int(plan.of(20, 3))


class _Container:
    """The image as compose runs it: read-only root, no capability, a volume, a settings file."""

    def __init__(self, plan: Plan, made: Image, root: Root, user: User) -> None:
        self._plan = plan
        self._image = made
        self._user = user
        (self._volume_path,) = made.volumes
        self._volume = plan.folder / "volume"
        settings = plan.folder / "settings"
        self._volume.mkdir()
        settings.mkdir()
        (settings / "hilum.toml").write_text(_SETTINGS, encoding="utf-8")
        self._environment = {**made.environment, "HILUM_CONFIG": "/etc/hilum/hilum.toml"}
        self._root = replace(
            root,
            mounts={self._volume: self._volume_path, settings: "/etc/hilum"},
            writable=frozenset({self._volume_path}),
        )
        self._fill(replace(root, mounts={self._volume: "/mnt"}, writable=frozenset({"/mnt"})))

    def visited(self) -> dict[str, Any]:
        """Build a model, serve, take studies, stop: the figures. Raises StepFailed."""
        begin = time.monotonic()
        self._plan.say(f"building {_RELEASE} in the container")
        self._run(["models", "build"])
        built = time.monotonic() - begin
        with self._served() as pid:
            self._plan.say("serving; studies go in")
            seen = self._visit(pid)
            held = list(_processes_of(pid))
            healthy = self._is_healthy(pid)
        return {
            "seconds_of_models_build": round(built, 1),
            **seen,
            "processes": len(held),
            "capable": sum(int(status["CapEff"], 16) != 0 for status in held),
            "of_others": sum(
                set(status["Uid"].split()) != {str(self._user.uid)} for status in held
            ),
            "is_healthy": healthy,
            "writes_taken": inventory.writes_taken(self._image, self._root, self._user),
            "exit_status": self._exit_status,
        }

    def _fill(self, root: Root) -> None:
        """A new volume gets what the image has at its place, with its owner, as docker does."""
        lines = (
            f"cp -a {self._volume_path}/. /mnt && chown --reference={self._volume_path} /mnt"
            f" && chmod --reference={self._volume_path} /mnt"
        )
        root.run(["sh", "-c", lines], self._image.environment)

    def _run(self, words: Sequence[str]) -> str:
        line = [*self._image.entrypoint, *words]
        folder = self._image.folder
        return self._root.run(line, self._environment, folder=folder, user=self._user)

    @contextmanager
    def _served(self) -> Iterator[int]:
        """Yield the process id of `hilum serve`, which is 1 inside; stopped as docker stops it."""
        words = [*self._image.entrypoint, *self._image.command]
        folder = self._image.folder
        line = self._root.command(words, self._environment, folder=folder, user=self._user)
        with (self._plan.folder / "hilum.log").open("wb") as log:
            process = subprocess.Popen(line, stdout=log, stderr=log, start_new_session=True)
        try:
            pid = _child_of(process)
            yield pid
            os.kill(pid, signal.Signals[self._image.stop_signal])
            self._exit_status = process.wait(timeout=_STOP_SECONDS)
        finally:
            process.kill()  # and with it all in its process namespace: unshare --kill-child
            process.wait()

    def _visit(self, pid: int) -> dict[str, Any]:
        token = self._volume / "run/api-token"
        words = [
            *in_network_of(pid),
            *(sys.executable, "-m", visit.__name__, "--token", str(token)),
            *("--studies", str(_studies(self._plan)), "--seed", str(self._plan.seed)),
            *("--seconds", str(_PATIENCE_SECONDS)),
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=REPOSITORY)
        if done.returncode:
            log = (self._plan.folder / "hilum.log").read_text(errors="replace")[-2000:]
            raise StepFailed(f"{done.stderr[-2000:]}\n{log}")
        seen: dict[str, Any] = json.loads(done.stdout)
        return seen

    def _is_healthy(self, pid: int) -> bool:
        """Whether HEALTHCHECK's command succeeds beside the container."""
        root = replace(self._root, network=Network.OF_THIS_MACHINE)
        try:
            root.run(self._image.health, self._environment, user=self._user, beside=pid)
        except StepFailed:
            return False
        return True


def _child_of(process: subprocess.Popen[bytes]) -> int:
    """The first process of the namespace. Raises StepFailed where it does not come."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    end = time.monotonic() + _STOP_SECONDS
    while process.poll() is None and time.monotonic() < end:
        if found := children.read_text(encoding="ascii").split():
            return int(found[0])
        time.sleep(0.05)
    raise StepFailed(f"the container ended with {process.returncode} before it began")


def _processes_of(pid: int) -> Iterator[dict[str, str]]:
    """/proc/PID/status of a process and all below it, as far as they still live."""
    for each in accounting.roles(pid):
        try:
            lines = Path(f"/proc/{each}/status").read_text(encoding="utf-8").splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        yield {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


_SETTINGS: Final = as_toml(
    {
        "site": {"name": "Image proof"},
        "receive": {"host": "127.0.0.1", "port": visit.DICOM_PORT, "reserve_bytes": 1 << 28},
        "studies": {"quiet_seconds": 2.0},
        "models": {"releases": [_RELEASE]},
        "destinations.pacs": {
            "kind": "dicom",
            "host": "127.0.0.1",
            "port": visit.PACS_PORT,
            "ae_title": "LOADTEST",
            "calling_ae_title": "HILUM",
            "documents": ["sr"],
            "accept_untrained": True,
        },
    }
)

"""Pods of the rendered chart as processes of this machine: their commands, environment, volumes and probes.

A volume is a folder, a port of a container is a free port here, and the image's files are those of
this checkout. As root, a container sees a file system on which it writes in /tmp and its volumes
alone, and has no capabilities. Its user, its network, its limits and the runtime's filter of system calls are
not imitated.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from testing.serving import free_ports, hilum_program
from tests.support.kubernetes.rendering import Object, named

# Volumes stay writable: each is a mount of its own before the rest becomes read-only. So does /tmp,
# where Triton's Python backend writes whatever TMPDIR says; each container has a volume there.
_CLOSE = """
for folder in /tmp $VOLUMES; do mount --bind "$folder" "$folder"; done
mount -o remount,bind,ro /
exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
"""
# How much longer than the kubelet a busy test machine may take to end a pod.
_PATIENCE_SECONDS = 60.0


class Cluster:
    """The objects of one rendering, with claims and Secrets in a folder.

    `programs`: a folder that stands for what images other than Hilum's bring.
    """

    def __init__(
        self,
        objects: Sequence[Object],
        folder: Path,
        secrets: Mapping[str, Mapping[str, str]],
        programs: Path | None = None,
    ) -> None:
        self.objects = objects
        self.folder = folder
        self.programs = programs
        self._secrets = secrets

    def start(self, kind: str, name: str) -> Pod:
        """A pod of an object, of which nothing runs yet; of a StatefulSet the first one."""
        spec = named(self.objects, kind, name)["spec"]
        own = [
            {
                "name": claim["metadata"]["name"],
                "persistentVolumeClaim": {"claimName": f"{claim['metadata']['name']}-{name}-0"},
            }
            for claim in spec.get("volumeClaimTemplates", ())
        ]
        pod = spec["template"]["spec"]
        return Pod(self, name, {**pod, "volumes": [*pod["volumes"], *own]})

    def secret(self, name: str, key: str) -> str:
        """What the Secret holds."""
        return self._secrets[name][key]

    def claim(self, name: str) -> Path:
        """The folder of a claim, one for all pods."""
        folder = self.folder / "claims" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def config(self, name: str, into: Path) -> None:
        """Write the files of a ConfigMap."""
        for file, text in named(self.objects, "ConfigMap", name)["data"].items():
            (into / file).write_text(text)


class Pod:
    """One pod."""

    def __init__(self, cluster: Cluster, name: str, spec: Object) -> None:
        self.name = name
        self.spec = spec
        self._cluster = cluster
        self._folder = cluster.folder / f"{name}-{len(list(cluster.folder.iterdir()))}"
        self._folder.mkdir(parents=True)
        self._volumes = {volume["name"]: self._volume(volume) for volume in spec["volumes"]}
        (self.container,) = spec["containers"]
        declared = [port["containerPort"] for port in self.container.get("ports", ())]
        self._ports = dict(zip(map(str, declared), free_ports(len(declared)), strict=True))
        self._process: subprocess.Popen[bytes] | None = None
        for container in (*spec.get("initContainers", ()), self.container):
            self._mount(container)

    @property
    def log(self) -> str:
        """What its containers have written."""
        return "".join(
            path.read_text(errors="replace") for path in sorted(self._folder.glob("*.log"))
        )

    @property
    def is_running(self) -> bool:
        """Whether its own container runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of its own container's process."""
        assert self._process is not None
        return self._process.pid

    def port(self, name: str) -> int:
        """The port here of a port of its container."""
        (number,) = [
            port["containerPort"] for port in self.container["ports"] if port["name"] == name
        ]
        return self._ports[str(number)]

    def volume(self, name: str) -> Path:
        """The folder of a volume."""
        return self._volumes[name]

    def begin(self, container: Object) -> subprocess.Popen[bytes]:
        """Start a container's command."""
        with (self._folder / f"{container['name']}.log").open("ab") as log:
            return subprocess.Popen(
                [*self._closed(), *self._command(container)],
                env=dict(self._environment(container)),
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def initialise(self) -> None:
        """Run the containers that come first, each to its end."""
        for container in self.spec.get("initContainers", ()):
            status = self.begin(container).wait(_PATIENCE_SECONDS)
            assert status == 0, f"{container['name']} ended with {status}: {self.log}"

    def run(self) -> None:
        """Start its own container."""
        self._process = self.begin(self.container)

    def complete(self) -> int:
        """Run its own container to its end: the exit status."""
        self.run()
        assert self._process is not None
        return self._process.wait(_PATIENCE_SECONDS)

    def passes(self, probe: str) -> bool:
        """Whether a probe of its container passes now."""
        asked = self.container[probe]["httpGet"]
        url = f"http://127.0.0.1:{self.port(asked['port'])}{asked['path']}"
        try:
            answer = httpx.get(url, timeout=self.container[probe]["timeoutSeconds"])
        except httpx.TransportError:
            return False
        return 200 <= answer.status_code < 400

    def terminate(self) -> Iterator[str]:
        """End it as the kubelet does; what happened so far, at each step.

        `preStop`: the hook has begun. `ended`: with exit status 0, in time. `killed`: not so.
        """
        assert self._process is not None
        grace = self.spec["terminationGracePeriodSeconds"]
        end = time.monotonic() + grace
        if hook := self.container.get("lifecycle", {}).get("preStop"):
            running = subprocess.Popen(hook["exec"]["command"])
            yield "preStop"
            assert running.wait(grace) == 0, "the hook fails"
        self._process.send_signal(signal.SIGTERM)
        yield "SIGTERM"
        try:
            status = self._process.wait(max(0.1, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            yield "killed"
            return
        yield "ended" if status == 0 else f"ended with {status}"

    def kill(self) -> None:
        """End what still runs of it, without a word."""
        if self.is_running:
            assert self._process is not None
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _closed(self) -> list[str]:
        """What begins a command that may write in volumes alone, and has no rights of root."""
        if os.geteuid() != 0:
            return []
        return ["unshare", "--mount", "sh", "-euc", _CLOSE, "closed"]

    def _command(self, container: Object) -> list[str]:
        words = [self._here(container, word) for word in container["args"]]
        is_hilum = "hilum" in container["image"].split("/")[-1]
        return [hilum_program(), *words] if is_hilum else words

    def _volume(self, volume: Object) -> Path:
        if claim := volume.get("persistentVolumeClaim"):
            return self._cluster.claim(claim["claimName"])
        folder = self._folder / volume["name"]
        folder.mkdir()
        if config := volume.get("configMap"):
            self._cluster.config(config["name"], folder)
        return folder

    def _mount(self, container: Object) -> None:
        """A mount below another one is a link there."""
        paths = self._paths(container)
        for path, folder in paths.items():
            above = Path(path).parent
            if str(above) in paths and not (link := paths[str(above)] / Path(path).name).exists():
                link.symlink_to(folder)

    def _paths(self, container: Object) -> dict[str, Path]:
        return {
            mount["mountPath"]: self._volumes[mount["name"]] / mount.get("subPath", "")
            for mount in container["volumeMounts"]
        }

    def _writable(self, container: Object) -> Iterator[Path]:
        for mount in container["volumeMounts"]:
            if not mount.get("readOnly"):
                yield self._volumes[mount["name"]]

    def _here(self, container: Object, word: str) -> str:
        """The word with its folder and its port of this machine."""
        if word in self._ports:
            return str(self._ports[word])
        paths = self._paths(container)
        for path in sorted(paths, key=len, reverse=True):
            if word == path or word.startswith(f"{path}/"):
                return f"{paths[path]}{word.removeprefix(path)}"
        return word

    def _environment(self, container: Object) -> Iterator[tuple[str, str]]:
        programs = [str(self._cluster.programs)] if self._cluster.programs else []
        yield "PATH", ":".join([*programs, os.environ["PATH"]])
        yield "TMPDIR", str(self._paths(container)["/tmp"])
        yield "VOLUMES", " ".join({str(folder.resolve()) for folder in self._writable(container)})
        for entry in container["env"]:
            yield entry["name"], self._here(container, self._value(entry))

    def _value(self, entry: Mapping[str, Any]) -> str:
        if "value" in entry:
            return str(entry["value"])
        reference = entry["valueFrom"]["secretKeyRef"]
        return self._cluster.secret(reference["name"], reference["key"])

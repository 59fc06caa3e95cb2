"""Carries out the instructions of a Dockerfile, one layer for each that writes files.

A layer is kept, and taken again where its instruction, what it copies and all before it are the
same.
"""

from __future__ import annotations

import shlex
import shutil
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from load_tests.proof.container.context import Context
from load_tests.proof.container.dockerfile import (
    Dockerfile,
    Instruction,
    NotUnderstood,
    Stage,
    command,
    default,
    filled,
    pairs,
)
from load_tests.proof.container.root import Root

_SOURCES: Final = "/tmp/sources"  # noqa: S108 - in the root, where a tmpfs is mounted for the command


@dataclass
class Image:
    """What a stage has become. `sizes`: instruction → bytes of its layer. `key`: of its last layer."""

    layers: list[Path]
    environment: dict[str, str]
    folder: str = "/"
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    stop_signal: str = "SIGTERM"
    sizes: dict[str, int] = field(default_factory=dict)
    key: str = ""


@dataclass
class Builder:
    """`base`: stands for the image of FROM. `reach`: what a command of RUN needs to reach packages here.

    `mounts` are seen by the commands alone, read-only, as docker's caches would be. `kept`:
    the folder of the layers. `work`: a folder for this build.
    """

    work: Path
    kept: Path
    context: Context
    base: Image
    reach: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[Path, str] = field(default_factory=dict)
    say: Callable[[str], None] = print
    _stages: dict[str, Image] = field(default_factory=dict)
    _known: dict[str, str] = field(default_factory=dict)
    _count: int = 0
    _digest_sent: str = ""

    def build(self, dockerfile: Dockerfile) -> Image:
        """The last stage. Raises NotUnderstood, NotInContext or StepFailed."""
        self.kept.mkdir(parents=True, exist_ok=True)
        (self.work / "place").mkdir(parents=True)
        (self.work / "other").mkdir()
        image = self.base
        for stage in dockerfile.stages:
            image = self._stage(stage, dockerfile.arguments)
            self._stages[stage.name] = image
        self._forget({layer.name for each in self._stages.values() for layer in each.layers})
        return image

    def _forget(self, used: set[str]) -> None:
        """Layers of earlier builds."""
        for folder in self.kept.iterdir():
            if folder.name not in used:
                shutil.rmtree(folder)

    def _stage(self, stage: Stage, arguments: Mapping[str, str]) -> Image:
        image = Image(list(self.base.layers), dict(self.base.environment), key=stage.base)
        self._known = {}
        for instruction in stage.instructions:
            self.say(str(instruction))
            if instruction.word == "ARG":
                name, value = default(instruction)
                self._known[name] = arguments.get(name, "") if value is None else value
            elif instruction.word in _CONFIGURING:
                _CONFIGURING[instruction.word](image, instruction, self._values(image))
            elif instruction.word == "WORKDIR":
                image.folder = str(Path(image.folder, instruction.rest))
                words = ["mkdir", "-p", image.folder]
                self._layer(image, instruction, words, mounts=self.mounts)
            elif instruction.word == "RUN":
                self._run(image, instruction)
            else:
                self._copy(image, instruction)
        return image

    def _values(self, image: Image) -> dict[str, str]:
        return {**self._known, **image.environment}

    def _run(self, image: Image, instruction: Instruction) -> None:
        if image.user != "0:0":
            raise NotUnderstood("RUN after USER is not carried out here")
        self._digest_sent = ""
        environment = {**self._values(image), **self.reach}
        words = ["/bin/sh", "-c", instruction.rest]
        self._layer(image, instruction, words, environment, self.mounts)

    def _copy(self, image: Image, instruction: Instruction) -> None:
        """As docker: of a folder its content, with a new owner where it is from the context."""
        *sources, target = shlex.split(filled(instruction.rest, self._values(image)))
        there = str(Path(image.folder, target)) + ("/" if target.endswith("/") else "")
        stage = instruction.flags.get("--from")
        if stage is None:
            files = self._sent(sources)
            lines = [_put(f"{_SOURCES}/{name}", there, files / name) for name in sources]
        else:
            files = self._merged(stage)
            lines = [f"mkdir -p {shlex.quote(there)}"]
            lines += [
                f"cp -a {_SOURCES}{shlex.quote(name)}/. {shlex.quote(there)}" for name in sources
            ]
        words = ["/bin/sh", "-euc", "\n".join(lines)]
        mounts = {**self.mounts, files: _SOURCES}
        self._layer(image, instruction, words, image.environment, mounts, stage)

    def _sent(self, sources: Sequence[str]) -> Path:
        """A copy of what the context has of these, owned by root."""
        self._count += 1
        folder = self.work / f"context{self._count}"
        digest = sha256()
        for source in sources:
            for name in self.context.files(source):
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(self.context.folder / name, target)
                digest.update(f"{name}\0{sha256(target.read_bytes()).hexdigest()}\0".encode())
        self._digest_sent = digest.hexdigest()
        return folder

    def _merged(self, stage: str) -> Path:
        if stage not in self._stages:
            raise NotUnderstood(f"COPY --from={stage}: no stage before has this name")
        return self.work / "other"

    def _layer(
        self,
        image: Image,
        instruction: Instruction,
        words: list[str],
        environment: Mapping[str, str] | None = None,
        mounts: Mapping[Path, str] | None = None,
        stage: str | None = None,
    ) -> None:
        environment = environment or image.environment
        image.key = _key(image.key, instruction, environment, self._copied(stage))
        layer = self.kept / image.key
        if not layer.is_dir():
            beside = tuple(self._stages[stage].layers) if stage else ()
            root = Root(
                tuple(image.layers),
                self.work / "place",
                mounts or {},
                beside=(self.work / "other", beside) if beside else None,
            )
            self._make(root, layer, words, environment, image.folder)
        image.layers.append(layer)
        image.sizes[str(instruction)] = size(layer)

    def _make(
        self,
        root: Root,
        layer: Path,
        words: list[str],
        environment: Mapping[str, str],
        folder: str,
    ) -> None:
        """Beside its place, and renamed when it is whole."""
        upper = layer.with_name(f"{layer.name}.new")
        work = layer.with_name(f"{layer.name}.new.work")
        for path in (upper, work):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
        entered = [
            "sh",
            "-c",
            f'mkdir -p {shlex.quote(folder)} && cd {shlex.quote(folder)} && exec "$@"',
        ]
        root.run([*entered, "sh", *words], environment, upper=upper)
        shutil.rmtree(work)
        upper.rename(layer)

    def _copied(self, stage: str | None) -> str:
        """What names the files that an instruction copies."""
        return self._stages[stage].key if stage else self._digest_sent


def _key(before: str, instruction: Instruction, environment: Mapping[str, str], copied: str) -> str:
    said = [before, str(instruction), copied, *(f"{k}={v}" for k, v in sorted(environment.items()))]
    return sha256("\0".join(said).encode()).hexdigest()[:16]


def size(folder: Path) -> int:
    """Bytes of the files in a folder."""
    found = (path.lstat() for path in folder.rglob("*"))
    return sum(each.st_size for each in found if stat.S_ISREG(each.st_mode))


def _put(source: str, there: str, here: Path) -> str:
    """A shell line that copies one thing of the context."""
    if here.is_dir():
        return f"mkdir -p {shlex.quote(there)} && cp -R --preserve=mode,timestamps {shlex.quote(source)}/. {shlex.quote(there)}"
    folder = there if there.endswith("/") else str(Path(there).parent)
    return f"mkdir -p {shlex.quote(folder)} && cp --preserve=mode,timestamps {shlex.quote(source)} {shlex.quote(there)}"


Configure = Callable[[Image, Instruction, Mapping[str, str]], None]


def _environment(image: Image, instruction: Instruction, known: Mapping[str, str]) -> None:
    image.environment.update(pairs(instruction.rest, known))


def _labels(image: Image, instruction: Instruction, known: Mapping[str, str]) -> None:
    image.labels.update(pairs(instruction.rest, known))


def _user(image: Image, instruction: Instruction, _: Mapping[str, str]) -> None:
    image.user = instruction.rest


def _entrypoint(image: Image, instruction: Instruction, _: Mapping[str, str]) -> None:
    image.entrypoint = command(instruction.rest)


def _command(image: Image, instruction: Instruction, _: Mapping[str, str]) -> None:
    image.command = command(instruction.rest)


def _health(image: Image, instruction: Instruction, _: Mapping[str, str]) -> None:
    word, rest = instruction.rest.split(maxsplit=1)
    if word != "CMD":
        raise NotUnderstood(f"HEALTHCHECK {word}: CMD is the form that is understood")
    image.health = command(rest.strip())


def _volume(image: Image, instruction: Instruction, _: Mapping[str, str]) -> None:
    image.volumes += instruction.rest.split()


def _ports(image: Image, instruction: Instruction, _: Mapping[str, str]) -> None:
    image.ports += instruction.rest.split()


def _stop_signal(image: Image, instruction: Instruction, _: Mapping[str, str]) -> None:
    image.stop_signal = instruction.rest


_CONFIGURING: Final[Mapping[str, Configure]] = {
    "CMD": _command,
    "ENTRYPOINT": _entrypoint,
    "ENV": _environment,
    "EXPOSE": _ports,
    "HEALTHCHECK": _health,
    "LABEL": _labels,
    "STOPSIGNAL": _stop_signal,
    "USER": _user,
    "VOLUME": _volume,
}

"""Runs in a spawned decode process: one stored object in, one wire tensor for each release that is due out.

Codecs are C code on hostile input. A crash here costs this process, and the item whose fault it was is known.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from hilum import telemetry


@dataclass(frozen=True, slots=True)
class Request:
    """Decode `path` once and prepare it for each release: its id to the mapping of its InputSpec."""

    path: Path
    input_specs: Mapping[str, Mapping[str, Any]]
    maximum_pixels: int
    device: str


@dataclass(frozen=True, slots=True)
class Ready:
    """A release's wire tensor (C, H, W), fp16 or uint8, and how it came about. Times in seconds."""

    tensor: np.ndarray[Any, np.dtype[Any]]
    view: str
    flags: tuple[str, ...]
    preprocessing_version: str
    decode_seconds: float
    prepare_seconds: float


@dataclass(frozen=True, slots=True)
class NotReady:
    """Why this image gives no tensor for a release: a reason of the closed list, and what was seen."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Broken:
    """An error that nobody foresaw: where, without the message, which may quote a header. The process ends after it."""

    where: str


Answer = dict[str, Ready | NotReady]
Prepare = Callable[[Request], Answer]


def load() -> Prepare:
    """What answers a request; the heavy imports happen here."""
    import torch  # noqa: PLC0415 - only here: the module itself is imported by the analyser's light parts and by tests

    torch.set_num_threads(1)  # the pool is the parallelism; more threads would oversubscribe the cores
    from hilum.analyse.preparing import prepare_for_releases  # noqa: PLC0415 - imports torch

    return prepare_for_releases


def serve(connection: Connection, load_codecs: Callable[[], Prepare]) -> None:
    """Answer requests until the analyser closes its end, or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the supervisor
    telemetry.silence_libraries()
    prepare = load_codecs()
    connection.send(os.getpid())
    while True:
        try:
            request: Request = connection.recv()
        except EOFError:
            return
        try:
            connection.send(prepare(request))
        except Exception as error:  # noqa: BLE001 - the edge of the process: multiprocessing would print the message, patient data and all
            connection.send(Broken(telemetry.traceback_without_messages(error)))
            return

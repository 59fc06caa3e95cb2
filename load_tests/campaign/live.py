"""Live studies beside a campaign at full speed, and without one, on one running server."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from load_tests.campaign.systems import NotFinished, Task, command, hilum, read_at
from load_tests.peer.phases import Offering, warm_up
from testing.network.peer_address import Peer
from testing.network.receiver import AE_TITLE, Receiver
from testing.serving import free_ports

_QUIET_SECONDS = 1.0  # of `systems.hilum`


@dataclass(frozen=True, slots=True)
class LiveFigures:
    """Seconds from a study's last image to its report, beyond the quiet period.

    `campaign_images`: images that the campaign read meanwhile.
    """

    alone: tuple[float, ...]
    beside: tuple[float, ...]
    campaign_images: int

    @property
    def added_p95(self) -> float:
        """Seconds that a campaign adds to the 95th percentile."""
        return float(np.percentile(self.beside, 95) - np.percentile(self.alone, 95))


def live(task: Task, mix_folder: Path, studies: int, pause_seconds: float) -> LiveFigures:
    """One live study at a time, in turns: without the campaign, and with it."""
    port = free_ports(1)[0]
    with ExitStack() as stack:
        receiver = stack.enter_context(Receiver(port))
        pacs: dict[str, Any] = {
            "kind": "dicom",
            "port": port,
            "ae_title": AE_TITLE,
            "accept_untrained": True,
        }
        server = stack.enter_context(hilum(task, destinations={"pacs": pacs}))
        offering = stack.enter_context(
            Offering(Peer("HILUM", "127.0.0.1", server.dicom_port), mix_folder, receiver, 1)
        )
        warm_up(offering, 3)
        command(server, "campaign", "plan", "old", "--folder", str(task.studies))
        alone = _one_by_one(offering, studies, pause_seconds, lambda: True)
        live_before = len(read_at(server))
        command(server, "campaign", "run", "old", "--release", task.material.built.release.id)
        while len(read_at(server)) < live_before + 4:
            time.sleep(0.2)
        began = len(read_at(server))
        end = live_before + len(task.files)
        beside = _one_by_one(offering, studies, pause_seconds, lambda: len(read_at(server)) < end)
        read = len(read_at(server)) - began - 2 * len(beside)
        command(server, "campaign", "cancel", "old")
    if len(beside) < studies:
        raise NotFinished(
            f"the campaign was over after {len(beside)} of {studies} live studies: give it more"
        )
    return LiveFigures(tuple(alone), tuple(beside), read)


def _one_by_one(
    offering: Offering, studies: int, pause_seconds: float, goes_on: Callable[[], bool]
) -> list[float]:
    """Seconds of each study beyond the quiet period; fewer of them where it does not go on."""
    began = time.monotonic()
    for _ in range(studies):
        offering.keep(1)
        offering.drain()
        if not goes_on():
            break
        time.sleep(pause_seconds)
    return [latency - _QUIET_SECONDS for latency in offering.latencies(began, time.monotonic())]

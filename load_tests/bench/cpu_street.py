"""A Hilum under measurement with its sender and its PACS.

Counters and process clocks around what is done to it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from pydicom import Dataset

from load_tests.bench.counting_model import SUFFIX
from load_tests.bench.cpu_engine import Built
from load_tests.bench.cpu_stages import ENGINE, Window
from load_tests.peer import phases
from testing.accounting import Accountant, Usage, snapshot, spent
from testing.network.receiver import AE_TITLE, Receiver
from testing.network.sender import Peer, Sender
from testing.serving import Hilum, HilumEnded, free_ports

_QUIET_SECONDS = 1.0
_RELEASE_SECONDS = 5.0
_DRAIN_SECONDS = 60.0
_ASSOCIATIONS = 4
_CPU = "hilum_cpu_seconds_total"

Counted = dict[str, dict[str, float]]
"""Metric → label value → value."""


class Street:
    """A context manager; ready to receive inside."""

    def __init__(
        self,
        folder: Path,
        built: Built,
        *,
        tracing: Mapping[str, object] | None = None,
        ledger: Mapping[str, object] | None = None,
    ) -> None:
        port = free_ports(1)[0]
        self._receiver = Receiver(port)
        models = {
            "manifests": str(built.manifests_dir),
            "built": str(built.built_dir),
            "releases": [built.release.id],
        }
        pacs = {
            "kind": "dicom",
            "port": port,
            "ae_title": AE_TITLE,
            "accept_untrained": True,
            "idle_release_seconds": _RELEASE_SECONDS,
        }
        studies = {"quiet_seconds": _QUIET_SECONDS}
        log = {"level": "warning"}
        self._hilum = Hilum(
            folder,
            {"loadtest": pacs},
            studies=studies,
            log=log,
            models=models,
            tracing=dict(tracing or {}),
            ledger=dict(ledger or {}),
        )

    @property
    def pid(self) -> int:
        """Of the supervisor."""
        return self._hilum.pid

    def __enter__(self) -> Self:
        """Start both. Raises HilumEnded."""
        self._receiver.__enter__()
        self._hilum.write_settings()
        self._hilum.__enter__()
        self._hilum.wait_until_ready(180)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop both."""
        self._hilum.__exit__(kind, error, traceback)
        self._receiver.__exit__(kind, error, traceback)

    def send(self, studies: Sequence[Sequence[Dataset]], count: int, rate: float) -> None:
        """`count` studies, `rate` a second, until the last report is here.

        Raises HilumEnded: a lost study would count as a cheap one.
        """
        sender = Sender(Peer("HILUM", "127.0.0.1", self._hilum.dicom_port), studies, 2)
        sender.run(rate, count / rate)
        arrivals = self._receiver.arrivals
        deadline = time.monotonic() + _DRAIN_SECONDS
        while any(
            arrivals.first_after(study.study_instance_uid, study.ended_at) is None
            for study in sender.sent
        ):
            if time.monotonic() > deadline:
                raise HilumEnded(f"studies without a report.\n{self._hilum.log_end()}")
            time.sleep(0.05)
        time.sleep(0.5)  # the last rows are being committed

    def offering(self, mix_folder: Path) -> phases.Offering:
        """A sender that waits for permits."""
        return phases.Offering(
            Peer("HILUM", "127.0.0.1", self._hilum.dicom_port),
            mix_folder,
            self._receiver,
            _ASSOCIATIONS,
        )

    def settle(self) -> None:
        """Wait until nothing is left of earlier work.

        Associations are released, their threads have ended.
        """
        time.sleep(_RELEASE_SECONDS + 3)

    def _engine_seconds(self, accountant: Accountant) -> float:
        """CPU that the model has counted, in the folder in which tritonserver runs."""
        pid = next(pid for pid, role in accountant.roles().items() if role == "tritonserver")
        return sum(
            float(count.read_text())
            for count in Path(f"/proc/{pid}/cwd").resolve().glob(f"*{SUFFIX}")
        )

    def watched(self, accountant: Accountant, work: Callable[[], None], images: int = 0) -> Window:
        """What `work` cost, which reads so many images.

        The scrapes of the counters lie outside of what the processes are charged with.
        """
        counted = self._counted(accountant)
        apart = _generator()
        before = accountant.snapshot()
        began = time.monotonic()
        work()
        seconds = time.monotonic() - began
        used = spent(before, accountant.snapshot())
        generator = _generator() - apart
        grown = _grown(counted, self._counted(accountant))
        return Window(
            seconds,
            images,
            {role: use.cpu_seconds for role, use in used.items()},
            grown[_CPU],
            _in_buckets(grown.get("hilum_batch_size_bucket", {})),
            generator,
        )

    def _counted(self, accountant: Accountant) -> Counted:
        counted: Counted = {_CPU: {ENGINE: self._engine_seconds(accountant)}}
        for sample in _samples(self._hilum.get("/metrics").text):
            label = sample.labels.get("stage") or sample.labels.get("le") or ""
            counted.setdefault(sample.name, {})[label] = sample.value
        return counted


def _samples(text: str) -> Iterator[Sample]:
    return (sample for family in text_string_to_metric_families(text) for sample in family.samples)


def _generator() -> float:
    """CPU seconds of this process and what it has started, without Hilum."""
    return snapshot(os.getpid(), _side).get("generator", Usage()).cpu_seconds


def _side(command: Sequence[str], parent_role: str) -> str:
    return "Hilum" if parent_role == "Hilum" or "serve" in command else "generator"


def _grown(before: Counted, after: Counted) -> Counted:
    return {
        name: {
            label: value - before.get(name, {}).get(label, 0.0)
            for label, value in after[name].items()
        }
        for name in after
    }


def _in_buckets(cumulative: dict[str, float]) -> dict[float, float]:
    """Counts of each bucket alone, from Prometheus' cumulative ones."""
    edges = sorted((float(edge), count) for edge, count in cumulative.items())
    lower = [0.0, *(count for _, count in edges[:-1])]
    return {edge: count - before for (edge, count), before in zip(edges, lower, strict=True)}

"""`make bench-echo`: how long a C-ECHO takes while decode processes are busy with JPEG 2000, whose decoder takes half a second an image."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydicom.uid import ImplicitVRLittleEndian
from pynetdicom.sop_class import Verification

from hilum.deliver.scu.association import Peer, ScuAssociation, associate
from load_tests.load.arrivals import constant
from load_tests.load.measure import Goal, circumstances, percentiles
from testing.network.sender import Peer as Receiver
from testing.network.sender import Sender
from testing.phantoms.pixel_codecs import draw_study
from testing.serving import Hilum
from testing.tiny_release import make_tiny

RESULT = Path(__file__).parents[1] / "results" / "bench-echo.json"
_GOAL_MS = 50.0
_EVERY_SECONDS = 0.02
_IMAGES_PER_SECOND = 3.0
_ROWS = 2500
_COLUMNS = 2048


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 the goal holds, 1 it does not."""
    parser = argparse.ArgumentParser(prog="load_tests.bench.echo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="(%(default)s)")
    parser.add_argument("--result", type=Path, default=RESULT, help="(%(default)s)")
    options = parser.parse_args(words)
    around = circumstances()
    with tempfile.TemporaryDirectory() as folder:
        idle, busy = measured(Path(folder), options.seconds)
    kept = goals(idle, busy)
    what = f"C-ECHO each {_EVERY_SECONDS * 1000:.0f} ms on one association, from its intended start"
    found = {"what": what, "measured_at": _now(), **around}
    answers = {
        "idle_ms": percentiles(idle),
        "busy_ms": percentiles(busy),
        "echoes": {"idle": len(idle), "busy": len(busy)},
    }
    options.result.write_text(
        json.dumps({**found, **answers, "goals": [goal.as_json() for goal in kept]}, indent=2)
        + "\n",
        encoding="utf-8",
    )
    for name, values in (("idle", idle), ("decoding", busy)):
        print(
            f"{name:9} {len(values):5} echoes  "
            + "  ".join(f"{key} {value:6.2f} ms" for key, value in percentiles(values).items())
        )
    for goal in kept:
        print(
            f"{'holds ' if goal.holds else 'BROKEN'}  {goal.name}: {goal.value:.2f} {goal.unit} (<="
            f" {goal.goal:g})"
        )
    return 0 if all(goal.holds for goal in kept) else 1


def goals(idle: Sequence[float], busy: Sequence[float]) -> list[Goal]:
    """Of the milliseconds of each C-ECHO."""
    return [
        Goal(
            "C-ECHO while JPEG 2000 is decoded, 99th percentile",
            percentiles(busy)["p99"],
            "ms",
            _GOAL_MS,
        ),
        Goal("C-ECHO of an idle server, median", percentiles(idle)["p50"], "ms", 1.0),
    ]


def measured(folder: Path, seconds: float) -> tuple[list[float], list[float]]:
    """Milliseconds of each C-ECHO, before images were sent and while more come in than can be decoded."""
    tiny = make_tiny(folder / "tiny")
    models = {
        "manifests": str(tiny.manifests_dir),
        "built": str(tiny.built_dir),
        "releases": [tiny.release.id],
    }
    hilum = Hilum(folder / "hilum", {}, models=models, log={"level": "warning"})
    hilum.write_settings()
    study = draw_study(7, "DX", "JPEG2000Lossless", _ROWS, _COLUMNS, 12, 1)
    with hilum:
        hilum.wait_until_ready(120)
        with associated(hilum.dicom_port) as association:
            idle = echoes(association, seconds / 2)
            with sending(
                Sender(Receiver("HILUM", "127.0.0.1", hilum.dicom_port), [study], 2), seconds
            ):
                return idle, echoes(association, seconds)


@contextlib.contextmanager
def associated(port: int) -> Iterator[ScuAssociation]:
    """For C-ECHO."""
    association = associate(
        Peer("127.0.0.1", port, "HILUM", "ECHO", 30.0), [(Verification, ImplicitVRLittleEndian)]
    )
    yield association
    association.release()


@contextlib.contextmanager
def sending(sender: Sender, seconds: float) -> Iterator[None]:
    """Images come in meanwhile."""
    thread = threading.Thread(target=sender.run, args=(_IMAGES_PER_SECOND, seconds))
    thread.start()
    yield
    thread.join()
    if failures := [sent.failure for sent in sender.sent if sent.failure is not None]:
        raise RuntimeError(
            f"{len(failures)} of {len(sender.sent)} images were not accepted: {failures[0]}"
        )


def echoes(
    association: ScuAssociation, seconds: float, every_seconds: float = _EVERY_SECONDS
) -> list[float]:
    """Milliseconds from the intended start of each C-ECHO to its answer.

    One that waits for those before it counts with its wait.
    """
    found = []
    began = time.perf_counter()
    for start in constant(1 / every_seconds, seconds):
        time.sleep(max(0.0, began + start - time.perf_counter()))
        status = association.echo()
        found.append((time.perf_counter() - began - start) * 1000)
        if status != 0:
            raise RuntimeError(f"C-ECHO was answered {status}")
    return found


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


if __name__ == "__main__":
    sys.exit(main())

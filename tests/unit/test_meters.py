"""`meters` writes what prometheus_client's own metrics write: the same bytes, which the library's collector merges."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hilum import telemetry

_OURS = "from hilum.meters import Counter, Histogram; from prometheus_client import Gauge"
_LIBRARYS = "from prometheus_client import Counter, Gauge, Histogram"
_MADE = """
import os, signal, threading
counted = Counter("of_labels", "Text.", ["stage", "state"])
plain = Counter("plain_total", "Text.")
level = Gauge("level", "Text.", ["endpoint"], multiprocess_mode="livesum")
seconds = Histogram("seconds", "Text.", ["stage"], buckets=(0.1, 1, 10))
sizes = Histogram("sizes", "Text.", buckets=(1, 2, 4))
"""
_COUNTED = """
for _ in range(3):
    counted.labels("analyse", "é").inc()
    counted.labels(state="failed", stage="analyse").inc(0.1)
plain.inc(2)
plain.inc(True)
level.labels("a").set(True)
level.labels("a").inc()
for amount in (0, 0.1, 0.3, 1, 1.0000001, 10, 11, -1, float("inf")):
    sizes.observe(amount)
for amount in (0.1, 0.2, 0.3, 1e-17, 7):
    seconds.labels("report").observe(amount)
"""
_MANY = """
for number in range(400):  # the file grows
    counted.labels(f"stage of a name that is long enough {number:080d}", "x").inc(number)
counted.labels("analyse", "é").inc()
seconds.labels("report").observe(2)
"""


def run(folder: Path, *parts: str) -> int:
    folder.mkdir(exist_ok=True)
    program = "\n".join(textwrap.dedent(part) for part in parts)
    return subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}, check=False, timeout=60
    ).returncode


def written(folder: Path) -> dict[str, bytes]:
    """What was written by the one process that wrote there, by kind of metric."""
    return {file.name.rsplit("_", 1)[0]: file.read_bytes() for file in folder.iterdir()}


def scraped(folder: Path) -> list[str]:
    """Without the order of the families, which is that of the folder."""
    return sorted(telemetry.scrape(str(folder)).decode().splitlines())


def value(folder: Path, series: str) -> float:
    return next(float(line.split()[-1]) for line in scraped(folder) if line.startswith(f"{series} "))


@pytest.mark.parametrize("parts", [(), (_COUNTED,), (_COUNTED, _MANY)], ids=["made", "counted", "many"])
def test_files_and_scrape_are_those_of_the_library(tmp_path: Path, parts: tuple[str, ...]) -> None:
    ours, librarys = tmp_path / "ours", tmp_path / "librarys"
    assert run(ours, _OURS, _MADE, *parts) == run(librarys, _LIBRARYS, _MADE, *parts) == 0
    assert written(ours) == written(librarys)
    assert scraped(ours) == scraped(librarys)


def test_a_killed_process_loses_no_count_and_is_merged_with_the_others(tmp_path: Path) -> None:
    assert run(tmp_path, _OURS, _MADE, _COUNTED, "os.kill(os.getpid(), signal.SIGKILL)") == -signal.SIGKILL
    assert run(tmp_path, _LIBRARYS, _MADE, _COUNTED) == 0
    assert value(tmp_path, "plain_total") == 6
    assert value(tmp_path, 'of_labels_total{stage="analyse",state="é"}') == 6
    assert value(tmp_path, 'seconds_bucket{le="1.0",stage="report"}') == 8


def test_a_forked_child_counts_in_files_of_its_own(tmp_path: Path) -> None:
    fork = """
    if (child := os.fork()) == 0:
        plain.inc(10)
        sizes.observe(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    plain.inc(100)
    """
    assert run(tmp_path, _OURS, _MADE, "plain.inc()", fork) == 0
    assert len(list(tmp_path.glob("counter_*.db"))) == 2
    assert value(tmp_path, "plain_total") == 111
    assert value(tmp_path, "sizes_count") == 1


def test_threads_lose_nothing(tmp_path: Path) -> None:
    threads = """
    import sys
    sys.setswitchinterval(1e-6)
    def count():
        for _ in range(20_000):
            plain.inc()
            sizes.observe(3)
    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    """
    assert run(tmp_path, _OURS, _MADE, threads) == 0
    assert value(tmp_path, "plain_total") == value(tmp_path, 'sizes_bucket{le="4.0"}') == 80_000
    assert value(tmp_path, "sizes_sum") == 240_000


def test_misuse_is_said(tmp_path: Path) -> None:
    misuse = """
    exemplar = {"a": "b"}
    calls = [lambda: plain.inc(-1), lambda: plain.inc(1, exemplar), lambda: sizes.observe(1, exemplar), lambda: counted.labels("a")]
    for call in calls:
        try:
            call()
        except ValueError:
            continue
        raise SystemExit(2)
    """
    assert run(tmp_path, _OURS, _MADE, misuse) == 0
    assert value(tmp_path, "plain_total") == 0

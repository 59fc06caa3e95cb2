"""Counters and histograms of prometheus_client, in its files and for its collector, at a third of the CPU.

The library's own look at the process's number, take a lock and pack a value and a timestamp each time they count, and a histogram does so
twice, after it has walked through its buckets; half a dozen of them are met for each image in each process. These add to the
mapped file itself, where every count stays whatever becomes of the process.
"""

from __future__ import annotations

import os
import threading
from array import array
from bisect import bisect_left
from collections.abc import MutableSequence, Sequence
from pathlib import Path
from typing import Final, TypeVar, cast

import prometheus_client
from prometheus_client import values
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.mmap_dict import MmapedDict, mmap_key

T = TypeVar("T", bound=MetricWrapperBase)
_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
_lock = threading.Lock()
_files: dict[str, _File] = {}
_values: list[Value] = []


class _File(MmapedDict):
    """A file of the library's. Not thread safe."""

    def place(self, key: str) -> MutableSequence[float]:
        """Value and timestamp of a key, float64[2]. It stays good when the file grows: both mappings are shared ones."""
        self.read_value(key)  # type: ignore[no-untyped-call] # makes it
        at = self._positions[key]
        return cast("MutableSequence[float]", memoryview(self._m)[at : at + 16].cast("d"))


class Value:
    """In place of the library's classes of values, which it looks for at `values.ValueClass`."""

    _multiprocess = _FOLDER in os.environ  # the library chooses when it is imported, too

    def __init__(
        self,
        typ: str,
        metric_name: str,
        name: str,
        labelnames: Sequence[str],
        labelvalues: Sequence[str],
        help_text: str,
        multiprocess_mode: str = "",
        **_: object,
    ) -> None:
        """The parameters' names are the library's."""
        self._kind = f"{typ}_{multiprocess_mode}" if typ == "gauge" else typ
        self._key = mmap_key(metric_name, name, list(labelnames), list(labelvalues), help_text)
        with _lock:
            self.open()
            _values.append(self)

    def open(self) -> None:
        """Find its place in this process's file, or in memory where nobody scrapes files. The lock is held."""
        self.place = _file(self._kind).place(self._key) if self._multiprocess else array("d", (0.0, 0.0))

    def inc(self, amount: float) -> None:
        """Add."""
        place = self.place
        with _lock:
            place[0] += amount

    def set(self, value: float, timestamp: float | None = None) -> None:
        """Replace it. `timestamp`: Unix seconds, of modes that want the most recent value."""
        place = self.place
        with _lock:
            place[0], place[1] = value, timestamp or 0.0

    def get(self) -> float:
        """What it is now."""
        return float(self.place[0])

    def set_exemplar(self, _exemplar: object) -> None:
        """Nothing: we have none."""

    def get_exemplar(self) -> None:
        """None."""


def _file(kind: str) -> _File:
    if kind not in _files:
        _files[kind] = _File(str(Path(os.environ[_FOLDER]) / f"{kind}_{os.getpid()}.db"))  # type: ignore[no-untyped-call]
    return _files[kind]


def _begin_again() -> None:
    """A forked child counts for itself, from nought, in files of its own. Other threads of its parent are not here."""
    global _lock  # noqa: PLW0603 - whoever held it is gone
    _lock = threading.Lock()
    _files.clear()
    for value in _values:
        value.open()


os.register_at_fork(after_in_child=_begin_again)
values.ValueClass = Value


class _Labelled(MetricWrapperBase):
    def labels(self: T, *labelvalues: object, **labelkwargs: object) -> T:
        """As the library's, which takes a lock and copies the labels before it looks."""
        known = None if labelkwargs else self._metrics.get(cast("Sequence[str]", labelvalues))
        return cast("T", known) if known is not None else super().labels(*labelvalues, **labelkwargs)


class Counter(_Labelled, prometheus_client.Counter):
    """The library's, without exemplars."""

    def inc(self, amount: float = 1, exemplar: dict[str, str] | None = None) -> None:
        """Add `amount`, not negative. Raises ValueError."""
        if amount < 0 or exemplar:
            raise ValueError("a counter only grows, and ours have no exemplars")
        place = self._value.place
        with _lock:
            place[0] += amount


class Histogram(_Labelled, prometheus_client.Histogram):
    """The library's, without exemplars."""

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        """Count `amount`, a number that is not NaN, in the first bucket whose bound is not less. Raises ValueError for an exemplar."""
        if exemplar:
            raise ValueError("our histograms have no exemplars")
        total, bucket = self._sum.place, self._buckets[bisect_left(self._upper_bounds, amount)].place
        with _lock:
            total[0] += amount
            bucket[0] += 1.0

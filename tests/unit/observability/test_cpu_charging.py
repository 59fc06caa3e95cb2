"""`telemetry.cpu`: a thread's CPU goes to the innermost stage around it, and waiting costs nothing."""

from __future__ import annotations

import contextlib
import threading
import time

import pytest
from prometheus_client import REGISTRY

from hilum.observability import telemetry


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def charged(stage: str) -> float:
    return REGISTRY.get_sample_value("hilum_cpu_seconds_total", {"stage": stage}) or 0.0


def test_what_is_inside_is_not_counted_outside() -> None:
    with telemetry.cpu("test_outer"):
        burn(0.02)
        with telemetry.cpu("test_inner"):
            burn(0.05)
        with telemetry.cpu("test_inner"):
            burn(0.05)
    assert charged("test_inner") == pytest.approx(0.1, abs=0.02)
    assert charged("test_outer") == pytest.approx(0.02, abs=0.01)


def test_waiting_and_other_threads_are_not_charged() -> None:
    other = threading.Thread(target=burn, args=(0.1,))
    with telemetry.cpu("test_waiting"):
        other.start()
        other.join()
    assert charged("test_waiting") < 0.05


def test_an_error_is_charged_too_and_passes() -> None:
    with contextlib.suppress(ZeroDivisionError), telemetry.cpu("test_error"):
        burn(0.02)
        _ = 1 // 0
    before = charged("test_error")
    assert before == pytest.approx(0.02, abs=0.01)
    with telemetry.cpu("test_error"):
        burn(0.02)
    assert charged("test_error") - before == pytest.approx(0.02, abs=0.01)

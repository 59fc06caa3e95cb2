"""The arithmetic of `make bench-infer`, on windows whose figures are known."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from deploy.tables.inference import inference_tables
from load_tests.infer.figures import Measured, added_ms, as_rows, goals, hop_cpu, ratios
from load_tests.infer.loops import Window, bare, closed, opened, schedule
from load_tests.infer.run import QUICK, as_json

MODEL = "densenet121, openvino f32"


def window(
    images_per_second: float = 100.0,
    latency: float = 0.01,
    cpu: float = 0.0,
    batch: int = 1,
    requests: int = 10,
) -> Window:
    """So many requests of `latency` seconds each; `cpu` seconds each of client, server and stub."""
    return Window(batch, batch * requests / images_per_second, (latency,) * requests, cpu, cpu, cpu)


def test_a_window_counts_images_and_not_requests() -> None:
    seen = Window(16, 2.0, (0.1, 0.2, 0.3, 0.4), client=0.1, server=0.2, stub=0.3)
    assert seen.images_per_second == 32
    assert seen.cpu_ms() == pytest.approx(1000 * 0.6 / 64)
    assert seen.cpu_ms("server", "stub") == pytest.approx(1000 * 0.5 / 64)
    assert seen.latency_ms(50) == pytest.approx(250)


def test_ratios_compare_what_stood_side_by_side() -> None:
    """The machine at half speed in the second round: medians of each alone would say 0.75."""
    bare_rounds, served = (
        [window(100), window(50), window(100)],
        [window(98), window(49), window(96)],
    )
    assert ratios(served, bare_rounds) == pytest.approx([0.98, 0.98, 0.96])
    assert added_ms([window(latency=0.011)], [window(latency=0.010)]) == pytest.approx([1.0])


def test_a_missing_round_is_an_error() -> None:
    with pytest.raises(ValueError, match="longer"):
        ratios([window()], [window(), window()])


def test_the_hop_is_the_median_round_of_all_three_processes() -> None:
    rounds = [window(cpu=cpu, batch=16, requests=1) for cpu in (0.0008, 0.0004, 0.08)]
    assert hop_cpu(rounds) == pytest.approx(1000 * 3 * 0.0008 / 16)


def measured(ratio: float, cpu: float, added_seconds: float) -> Measured:
    found = Measured()
    for _ in range(3):
        found.add(
            ("null, fp16", "as served", "closed", 16, 2), window(batch=16, requests=1, cpu=cpu)
        )
        found.add(("null, fp16", "bare", "closed", 1, 1), window(latency=0.0))
        found.add(("null, fp16", "as served", "closed", 1, 1), window(latency=added_seconds))
        found.add((MODEL, "bare", "closed", 16, 1), window(100, batch=16))
        found.add((MODEL, "as served", "closed", 16, 2), window(100 * ratio, batch=16))
    return found


def test_goals_hold_at_their_bounds_and_break_beyond() -> None:
    kept = goals(measured(ratio=0.951, cpu=0.00079, added_seconds=0.00099), [MODEL])
    assert [goal.holds for goal in kept] == [True, True, True]
    broken = goals(measured(ratio=0.949, cpu=0.00081, added_seconds=0.00101), [MODEL])
    assert [goal.holds for goal in broken] == [False, False, False]


def test_rows_are_medians_and_go_into_json() -> None:
    found = Measured()
    for speed in (90, 100, 400):
        found.add((MODEL, "bare", "closed", 4, 1), window(speed, batch=4, cpu=0.001))
    (row,) = json.loads(json.dumps(as_rows(found)))
    assert (row["images_per_second"], row["images_per_second_range"], row["rounds"]) == (
        100,
        [90, 400],
        3,
    )
    assert row["cpu_ms_per_image"]["all"] == pytest.approx(3 * row["cpu_ms_per_image"]["stub"])


def test_arrivals_are_poisson_and_repeatable() -> None:
    moments = schedule(100, 50, seed=1)
    gaps = np.diff(moments)
    assert moments == schedule(100, 50, seed=1) != schedule(100, 50, seed=2)
    assert len(moments) == pytest.approx(5000, rel=0.1)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.1), (
        "gaps of a Poisson process are exponential"
    )
    assert schedule(0.001, 1, seed=1) == [0.0]


def test_a_closed_loop_holds_its_number_under_way() -> None:
    under_way, most = 0, 0

    async def ask(_: object) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1

    found = asyncio.run(closed(ask, np.zeros((4, 1)), in_flight=3, seconds=0.05))
    assert most == 3
    assert found.batch == 4
    assert len(found.latencies) >= 6
    assert bare(lambda _: None, np.zeros((2, 1)), seconds=0.0).batch == 2


def test_an_open_loop_counts_the_wait_for_those_before() -> None:
    """Each request takes one of a single place for 20 ms and they come faster than that.

    Lateness adds up, none is left out.
    """
    place = asyncio.Semaphore(1)

    async def ask(_: object) -> None:
        async with place:
            await asyncio.sleep(0.02)

    found = asyncio.run(opened(ask, np.zeros((1, 1)), per_second=500, seconds=0.05, seed=3))
    expected = len(schedule(500, 0.05, seed=3))
    assert len(found.latencies) == expected
    assert max(found.latencies) > 0.02 * expected - 0.05


def test_the_page_shows_what_was_measured(tmp_path: Path) -> None:
    found = measured(ratio=0.97, cpu=0.0004, added_seconds=0.0005)
    for transport, in_flight in (("bare", 1), ("as served", 1), ("as served", 2)):
        found.add((MODEL, transport, "closed", 1, in_flight), window(30, latency=0.05))
    found.add(("null, fp16", "as served", "closed", 16, 1), window(batch=16, latency=0.0012))
    found.add((MODEL, "bare", "closed", 4, 1), window(60, batch=4))
    found.add((MODEL, "as served", "closed", 4, 2), window(57, batch=4))
    found.add((MODEL, "as served", "open", 1, 0), window(21, latency=0.08))
    result = tmp_path / "bench-infer.json"
    around = {"machine": {"cores": 2, "cpu": "a CPU", "load_average_before": 0.1}}
    result.write_text(json.dumps(as_json(as_rows(found), goals(found, [MODEL]), around, QUICK)))
    lines = list(inference_tables(lambda *cells: " | ".join(cells), result))
    assert "in the short form" in lines[1]
    assert "fp16 | as served | 16 | 1.20 ms | 100 | 0.075 | 0.025 | 0.025 | 0.025" in lines
    assert f"{MODEL} | 30.0 / 30.0 | 60.0 / 57.0 | 100.0 / 97.0 | 50 ms" in lines
    assert f"{MODEL} | through Triton | 21.0 | 35 % | 80 ms | 80 ms" in lines
    assert sum(line.endswith("| yes") for line in lines) == 3
    assert "make bench-infer" in "".join(
        inference_tables(lambda *cells: "", tmp_path / "absent.json")
    )

"""`make bench-infer`: what it costs to ask Triton instead of calling the engine, and how fast the engines are.

A null model shows the way there and back alone, in three wire types and three transports; then the
bundled networks, bare in this process beside the same engine behind Triton, in turns. Rounds are
interleaved, figures are medians.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from hilum.analyse.inference.answers import InferenceResult
from hilum.analyse.inference.batcher import Batcher, Gateway
from hilum.analyse.inference.gateway import TritonGateway
from hilum.domain import Priority, Release
from hilum.models.formats.triton_model import Engine
from hilum.triton.server import EmbeddedTriton
from load_tests.infer import loops
from load_tests.infer.figures import Measured, as_rows, goals, table
from load_tests.infer.loops import Array, Ask
from load_tests.infer.null_model import open_null
from load_tests.infer.shared_memory import SharedMemory
from load_tests.infer.trees import (
    DENSENET,
    MAX_BATCH,
    Served,
    make_nulls,
    make_variants,
    read_config,
)
from load_tests.load import command_line
from load_tests.load.measure import Goal, circumstances
from load_tests.load.terminal import say

RESULT = Path(__file__).parents[1] / "results" / "bench-infer.json"
BATCHES = (1, 4, 8, 16)
ENGINE_BATCHES = (1, 4, 16)
_NICE = 5  # as the analyser; tritonserver has it too
_OPEN_SHARE = 0.7  # of what the closed loop reached, its median round


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured."""

    rounds: int
    hop_seconds: float
    engine_seconds: float
    open_seconds: float
    batches_at_least: int = 2
    is_quick: bool = False


FULL = Plan(rounds=5, hop_seconds=0.5, engine_seconds=1.5, open_seconds=10.0)
QUICK = Plan(
    rounds=2,
    hop_seconds=0.15,
    engine_seconds=0.3,
    open_seconds=1.0,
    batches_at_least=1,
    is_quick=True,
)


class Bench:
    """One running Triton, and what was measured on it."""

    def __init__(self, plan: Plan, triton: EmbeddedTriton, url: str) -> None:
        self._plan = plan
        self._pid = triton.pid or 0
        self._url = url
        self.measured = Measured()

    async def hop(self, nulls: Mapping[str, Served]) -> None:
        """The null models: every wire type, transport and batch, one and two requests in flight."""
        async with AsyncExitStack() as stack:
            ways = await self._ways(
                stack, largest=max(null.batch(MAX_BATCH).nbytes for null in nulls.values())
            )
            for number in range(self._plan.rounds):
                say(f"null models, round {number + 1} of {self._plan.rounds}")
                for null in nulls.values():
                    await self._hop_round(null, ways)

    async def _ways(
        self, stack: AsyncExitStack, largest: int
    ) -> dict[str, Callable[[Release, Array], Awaitable[object]]]:
        """`as served` is the analyser's own client.

        `shared memory` is tritonclient's, beside it.
        """
        served = TritonGateway(self._url, 60, shares_memory=True)
        plain = TritonGateway(self._url, 60)
        for gateway in (served, plain):
            stack.push_async_callback(gateway.close)
        memory = await stack.enter_async_context(SharedMemory(self._url, largest, slots=2))
        return {"as served": served.infer, "gRPC": plain.infer, "shared memory": memory.infer}

    async def _hop_round(
        self, null: Served, ways: Mapping[str, Callable[[Release, Array], Awaitable[object]]]
    ) -> None:
        engine = _null_engine(null)
        for size in BATCHES:
            batch = null.batch(size)
            self.measured.add(
                (null.name, "bare", "closed", size, 1),
                loops.bare(engine, batch, self._plan.hop_seconds / 4),
            )
            for name, infer in ways.items():
                for in_flight in (1, 2):
                    window = await loops.closed(
                        _asking(infer, null), batch, in_flight, self._plan.hop_seconds, self._pid
                    )
                    self.measured.add((null.name, name, "closed", size, in_flight), window)

    async def engines(self, variants: Sequence[Served]) -> None:
        """Each engine, bare and behind Triton in turns; one model is loaded at a time."""
        gateway = TritonGateway(self._url, 120, shares_memory=True)
        try:
            for variant in variants:
                say(variant.name)
                await gateway.load(variant.release)
                await self._engine(variant, gateway)
                await gateway.unload(variant.release)
        finally:
            await gateway.close()

    async def _engine(self, variant: Served, gateway: TritonGateway) -> None:
        engine = variant.engine()
        ask = _asking(gateway.infer, variant)
        seconds = self._plan.engine_seconds
        at_least = self._plan.batches_at_least
        for batch in map(variant.batch, ENGINE_BATCHES):
            engine(batch)
            await ask(batch)
        for _ in range(self._plan.rounds):
            for size in ENGINE_BATCHES:
                batch = variant.batch(size)
                self.measured.add(
                    (variant.name, "bare", "closed", size, 1),
                    loops.bare(engine, batch, seconds, at_least),
                )
                for in_flight in (1, 2):
                    window = await loops.closed(ask, batch, in_flight, seconds, self._pid, at_least)
                    self.measured.add(
                        (variant.name, "as served", "closed", size, in_flight), window
                    )
        await self._open_loop(variant, engine, gateway)

    async def _open_loop(self, variant: Served, engine: Engine, gateway: TritonGateway) -> None:
        """Single images as they come, through the analyser's batcher.

        The bare engine is behind the same batcher.
        """
        at = self.measured.windows[variant.name, "bare", "closed", 4, 1]
        per_second = _OPEN_SHARE * statistics.median(window.images_per_second for window in at)
        with ThreadPoolExecutor(1) as thread:
            carriers: dict[str, Gateway] = {"bare": _Bare(engine, thread), "as served": gateway}
            for seed in range(self._plan.rounds // 2):
                for name, carrier in carriers.items():
                    window = await self._opened(variant, carrier, per_second, seed)
                    self.measured.add((variant.name, name, "open", 1, 0), window)

    async def _opened(
        self, variant: Served, carrier: Gateway, per_second: float, seed: int
    ) -> loops.Window:
        batcher = Batcher(variant.release, carrier, batches_in_flight=2)
        running = asyncio.create_task(batcher.run())
        try:
            ask: Ask = lambda image: batcher.infer(image[0], Priority.LIVE)  # noqa: E731 - one expression, used once
            return await loops.opened(
                ask, variant.batch(1), per_second, self._plan.open_seconds, seed, self._pid
            )
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running


class _Bare:
    """The engine as a gateway: in this process, one batch at a time."""

    def __init__(self, engine: Engine, thread: ThreadPoolExecutor) -> None:
        self._engine = engine
        self._thread = thread

    async def infer(self, release: Release, batch: Sequence[Array]) -> InferenceResult:
        """As the analyser's gateway."""
        outputs = await asyncio.get_running_loop().run_in_executor(
            self._thread, self._engine, np.stack(batch)
        )
        return InferenceResult(outputs["logits"], outputs["cam"] if release.has_cam else None)


def _asking(infer: Callable[[Release, Array], Awaitable[object]], served: Served) -> Ask:
    return lambda batch: infer(served.release, batch)


def _null_engine(null: Served) -> Engine:
    config = read_config(null.tree)
    outputs = [
        {"name": item.name, "dims": item.dims, "data_type": _type_name(item)}
        for item in config.output
    ]
    return open_null(outputs, config.max_batch_size)


def _type_name(output: Any) -> str:  # noqa: ANN401 - protobuf ships no types
    return str(
        output.DESCRIPTOR.fields_by_name["data_type"]
        .enum_type.values_by_number[output.data_type]
        .name
    )


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 all goals hold, 1 some do not."""
    parser = command_line.parser("load_tests.infer.run", __doc__)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="short windows, one engine: whether it runs, no figures to keep",
    )
    parser.add_argument("--rounds", type=int, default=FULL.rounds, help="(%(default)s)")
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="NETWORK",
        help="leave one out, for example vit_b16; repeatable",
    )
    parser.add_argument("--result", type=Path, default=RESULT, help="(%(default)s)")
    options = parser.parse_args(words)
    plan = QUICK if options.quick else replace(FULL, rounds=options.rounds)
    around = circumstances()
    with tempfile.TemporaryDirectory(prefix="hilum-infer-") as folder:
        found, models = measure(plan, Path(folder), options.without)
    rows = as_rows(found)
    held = goals(found, models)
    show(rows, held)
    options.result.parent.mkdir(parents=True, exist_ok=True)
    options.result.write_text(
        json.dumps(as_json(rows, held, around, plan), indent=1) + "\n", encoding="utf-8"
    )
    return 0 if all(goal.holds for goal in held) else 1


def measure(plan: Plan, folder: Path, without: Sequence[str] = ()) -> tuple[Measured, list[str]]:
    """Everything, on a Triton of its own.

    With the names of the models whose wall time is held against the bare engine's.
    """
    nulls = make_nulls(folder)
    variants = make_variants(folder, is_quick=plan.is_quick)
    variants = [
        variant for variant in variants if not variant.release.name.startswith(tuple(without))
    ]
    triton = EmbeddedTriton(
        folder, folder / "state", [null.release.triton_name for null in nulls.values()]
    )
    url = triton.start()
    os.nice(_NICE)
    bench = Bench(plan, triton, url)
    try:
        asyncio.run(_all(bench, nulls, variants))
    finally:
        triton.stop()
    return bench.measured, [
        variant.name
        for variant in variants
        if variant.release.name.startswith(DENSENET.partition("@")[0])
    ]


async def _all(bench: Bench, nulls: Mapping[str, Served], variants: Sequence[Served]) -> None:
    await bench.hop(nulls)
    await bench.engines(variants)


def show(rows: Sequence[Mapping[str, Any]], held: Sequence[Goal]) -> None:
    """For a person, 80 columns at most."""
    print(
        f"\n{'null model':12}{'transport':15}{'batch':>6}{'flying':>7}{'images/s':>10}{'p50 ms':>8}{'CPU ms/image':>14}"
    )
    for row in table(rows, "closed", "null"):
        cpu = row["cpu_ms_per_image"]["all"]
        name = row["model"].removeprefix("null, ")
        print(
            f"{name:12}{row['transport']:15}{row['batch']:6}{row['in_flight']:7}"
            f"{row['images_per_second']:10.0f}{row['p50_ms']:8.2f}{cpu:14.3f}"
        )
    for loop in ("closed", "open"):
        print(f"\n{loop + ' loop':38}{'':10}{'batch':>6}{'flying':>7}{'images/s':>9}{'p50 ms':>8}")
        for row in (row for row in table(rows, loop, "") if not row["model"].startswith("null")):
            head = f"{row['model']:38}{row['transport']:10}{row['batch']:6}{row['in_flight']:7}"
            print(f"{head}{row['images_per_second']:9.1f}{row['p50_ms']:8.1f}")
    print()
    for goal in held:
        bound = f"{'<=' if goal.at_most else '>='} {goal.goal:g}"
        print(
            f"{'holds ' if goal.holds else 'BROKEN'} {goal.name}: {goal.value:.3g} {goal.unit}"
            f" ({bound})"
        )


def as_json(
    rows: Sequence[Mapping[str, Any]], held: Sequence[Goal], around: Mapping[str, Any], plan: Plan
) -> dict[str, Any]:
    """The result file."""
    return {
        "what": (
            "a null model and the bundled networks, bare in the client's process and behind the"
            " embedded Triton"
        ),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "is_quick": plan.is_quick,
        **around,
        "rows": list(rows),
        "goals": [goal.as_json() for goal in held],
    }


if __name__ == "__main__":
    sys.exit(main())

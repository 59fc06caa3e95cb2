"""The tables of docs/capacity.md, computed from the committed result files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from load_tests.capacity.measured import NETWORKS, MeasuredCosts, read
from load_tests.capacity.plan import (
    CROSSINGS,
    PUBLISHED_GPU_RATES,
    TRANSACTIONS,
    Demand,
    UnitSupply,
)
from load_tests.capacity.tables import limit_rows, number, plan_rows

Row = Callable[..., str]
_STUDIES: Final = (1e4, 1e5, 1e6)
_SYNTAX: Final = "jpeg_2000"


def capacity_tables(row: Row) -> Iterator[str]:
    """What was measured, what is presumed, the plan by network, and what saturates first."""
    costs = read()
    yield from _measured(row, costs)
    yield from _presumed(row)
    for network, label in NETWORKS.items():
        demands = [_demand(costs, studies, network) for studies in _STUDIES]
        yield f"\n### {label}\n"
        yield from _table(row, plan_rows(demands, UnitSupply(), costs))
    for network, label in NETWORKS.items():
        yield f"\n### What saturates first: {label}\n"
        yield from _table(row, limit_rows(_demand(costs, 1.0, network), UnitSupply(), costs))
    yield "\n### What saturates first: DenseNet-121, JPEG 2000\n"
    compressed = _demand(costs, 1.0, "densenet121", _SYNTAX)
    yield from _table(row, limit_rows(compressed, UnitSupply(), costs))


def _demand(
    costs: MeasuredCosts, studies: float, network: str, syntax: str = "little_endian"
) -> Demand:
    size = round(costs.image_mb.value, 3)
    return Demand(studies, image_mb=size, network=network, syntax=syntax)


def _measured(row: Row, costs: MeasuredCosts) -> Iterator[str]:
    yield "\n### Measured\n\n| figure | value | file in `load_tests/results` |\n|---|--:|---|"
    for cost in costs.all():
        yield row(cost.what, f"{number(cost.value)} {cost.unit}", f"`{cost.file}`")


def _presumed(row: Row) -> Iterator[str]:
    usual = Demand(1.0)
    supply = UnitSupply()
    yield "\n### Presumed\n\n| assumption | value | option |\n|---|--:|---|"
    yield row("peak hour over the day's mean", f"{usual.peak:g}", "`--peak`")
    yield row("images of a study, all of them read", f"{usual.images:g}", "`--images`")
    yield row("days that pixels are kept", f"{usual.retention_days:g}", "`--retention-days`")
    yield row("cores of a host", f"{supply.cores}", "`--cores`")
    yield row("port of a host", f"{supply.gbit:g} Gbit/s", "`--gbit`")
    yield row("times that an image crosses the network", f"{CROSSINGS}", "none")
    yield row("shared archive, written and read", f"{supply.archive_mb:g} MB/s", "`--archive-mb`")
    yield row("sync of the database's disk", f"{supply.sync_ms:g} ms", "`--sync-ms`")
    yield row("transactions of a study of two images", f"{TRANSACTIONS}", "none")
    for network, rate in PUBLISHED_GPU_RATES.items():
        yield row(f"GPU, {NETWORKS[network]}", f"{rate:,.0f} images/s", "`--gpu-images`")
    yield row("ceiling of CPUs", f"{supply.cpu_ceiling:g}", "`--cpu-ceiling`")
    yield row("ceiling of everything else", f"{supply.other_ceiling:g}", "`--other-ceiling`")


def _table(row: Row, lines: Iterator[tuple[str, ...]]) -> Iterator[str]:
    head = next(lines)
    yield row(*head)
    yield "|---|" + "".join("---|" if cell == "from" else "--:|" for cell in head[1:])
    for line in lines:
        yield row(*line)

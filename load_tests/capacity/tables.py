"""The plan for people: rows of a label and a cell for each demand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from load_tests.capacity.measured import NETWORKS, MeasuredCosts
from load_tests.capacity.plan import CapacityPlan, Demand, UnitSupply, campaign_days, limits, plan

Cells = tuple[str, ...]
_WIDTH: Final = 80
_LABEL: Final = 38
_ROWS: Final[Sequence[tuple[str, Callable[[CapacityPlan], str]]]] = (
    ("images/s in the peak hour", lambda of: number(of.peak_images)),
    ("cores outside the model", lambda of: number(of.cores)),
    ("cores for the model, without GPUs", lambda of: number(of.model_cores)),
    ("hosts, N + 1, without GPUs", lambda of: str(of.hosts_without_gpus)),
    ("hosts, N + 1, beside GPUs", lambda of: str(of.hosts_with_gpus)),
    ("GPUs, N + 1", lambda of: str(of.gpus)),
    ("listener processes", lambda of: str(of.listeners)),
    ("Gbit/s from the senders", lambda of: number(of.gbit_in)),
    ("Gbit/s, all crossings", lambda of: number(of.gbit_all)),
    ("archive, MB/s written and read", lambda of: number(of.archive_mb)),
    ("pixels, TB a day", lambda of: number(of.day_tb)),
    ("pixels kept, TB", lambda of: number(of.retained_tb)),
    ("ledger, million rows a year", lambda of: number(of.ledger_rows / 1e6)),
    ("ledger, GB a year", lambda of: number(of.ledger_gb)),
    ("ledger, transactions/s", lambda of: number(of.transactions)),
    ("reports/s to the PACS", lambda of: number(of.reports)),
)


def number(value: float) -> str:
    """Three digits that count, and thousands apart."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def plan_rows(
    demands: Sequence[Demand], supply: UnitSupply, costs: MeasuredCosts
) -> Iterator[Cells]:
    """Yield a head of studies a day, then a row for each need."""
    plans = [plan(demand, supply, costs) for demand in demands]
    yield ("studies a day", *(f"{demand.studies:,.0f}" for demand in demands))
    for label, cell in _ROWS:
        yield (label, *(cell(found) for found in plans))
    yield (
        "days of a campaign over a year",
        *(number(campaign_days(demand, costs)) for demand in demands),
    )


def limit_rows(demand: Demand, supply: UnitSupply, costs: MeasuredCosts) -> Iterator[Cells]:
    """Yield a head, then a row for each unit: the first to saturate comes first."""
    yield "unit", "studies a day", "from"
    for limit in limits(demand, supply, costs):
        yield limit.unit, f"{limit.studies:,.0f}", limit.source


def about(demand: Demand, supply: UnitSupply) -> Iterator[str]:
    """Yield what the plan presumes, in lines."""
    gpu = supply.gpu_rate(demand.network)
    yield (
        f"{NETWORKS[demand.network]}; {demand.images:g} images of {demand.image_mb:g} MB a study;"
        f" peak hour {demand.peak:g} times the mean"
    )
    yield f"hosts of {supply.cores} cores to {supply.cpu_ceiling:.0%}; GPUs of {gpu:,.0f} images/s"
    yield (
        f"everything but CPUs to {supply.other_ceiling:.0%}; pixels kept"
        f" {demand.retention_days:g} days; {demand.syntax}"
    )


def terminal(demand: Demand, supply: UnitSupply, costs: MeasuredCosts) -> Iterator[str]:
    """Yield lines of at most 80 columns."""
    for line in about(demand, supply):
        yield from _folded(line)
    yield ""
    for label, *cells in plan_rows([demand], supply, costs):
        yield f"{label:{_LABEL}}{cells[0]:>16}"
    yield ""
    for unit, studies, source in limit_rows(demand, supply, costs):
        yield f"{unit:{_LABEL}}{studies:>16}  {source}"[:_WIDTH]


def _folded(line: str) -> Iterator[str]:
    while len(line) > _WIDTH:
        cut = line.rfind(" ", 0, _WIDTH)
        yield line[:cut]
        line = line[cut + 1 :]
    yield line

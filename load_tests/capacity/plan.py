"""Studies a day → cores, hosts, GPUs, networks, disks and the ledger. Arithmetic alone.

A unit is a host, a GPU, a listener process, a network port, an archive or a database. It is loaded
up to its ceiling, a share of what it can. Parts of units are rounded up. Hosts and GPUs get one
more than they need, so that one may die in the peak hour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from load_tests.capacity.measured import MeasuredCosts

DAY_SECONDS: Final = 86_400
YEAR_DAYS: Final = 365
TRANSACTIONS: Final = 10
"""Of a study of two images that write, one by one: docs/figures/cpu.md, Transactions."""
CROSSINGS: Final = 3
"""How often an image crosses the network of a fleet: sender, shared archive, analyser."""
# Published by timm: automatic mixed precision, channels last, torch 2.4, RTX 3090, batches of 1024;
# huggingface/pytorch-image-models, results/benchmark-infer-amp-nhwc-pt240-cu124-rtx3090.csv.
PUBLISHED_GPU_RATES: Final[Mapping[str, float]] = {"densenet121": 3031.71, "vit_b16": 1572.08}
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Demand:
    """The work.

    `studies` a day. `images` received and read of a study. `peak`: the rate of the peak hour over
    the day's mean. `image_mb` 10^6 bytes. `retention_days` of pixels. `network`, `syntax`: keys of
    `measured.NETWORKS` and `measured.SYNTAXES`.
    """

    studies: float
    images: float = 2.0
    peak: float = 3.0
    image_mb: float = 10.24
    retention_days: float = 30.0
    network: str = "densenet121"
    syntax: str = "little_endian"

    @property
    def mean_images(self) -> float:
        """Images a second over the day."""
        return self.studies * self.images / DAY_SECONDS

    @property
    def peak_images(self) -> float:
        """Images a second in the peak hour."""
        return self.mean_images * self.peak

    @property
    def peak_studies(self) -> float:
        """Studies a second in the peak hour."""
        return self.studies * self.peak / DAY_SECONDS


@dataclass(frozen=True, slots=True)
class UnitSupply:
    """One unit of each kind; all assumptions of the reader.

    `cores` of a host and `gbit` of its network port. `gpu_images` a second, None: the published
    figure. `archive_mb` a second that the shared archive writes and reads together. `sync_ms`: of
    a commit on the database's disk. Ceilings are shares of 1.
    """

    cores: int = 16
    gbit: float = 10.0
    gpu_images: float | None = None
    archive_mb: float = 1000.0
    sync_ms: float = 1.0
    cpu_ceiling: float = 0.6
    other_ceiling: float = 0.5

    def gpu_rate(self, network: str) -> float:
        """Images a second of one GPU."""
        return PUBLISHED_GPU_RATES[network] if self.gpu_images is None else self.gpu_images

    @property
    def commits(self) -> float:
        """Transactions a second of a database that commits them one after the other."""
        return 1000 / self.sync_ms


@dataclass(frozen=True, slots=True)
class CapacityPlan:
    """What the demand needs in its peak hour, a day and a year.

    Rates are a second. `gbit_all`: of every crossing. `archive_mb`: written and read.

    Hosts and GPUs include the spare one. `hosts_*`: of all that listens, decodes, reports and,
    without GPUs, computes the model.
    """

    peak_images: float
    cores: float
    model_cores: float
    hosts_with_gpus: int
    hosts_without_gpus: int
    gpus: int
    listeners: int
    gbit_in: float
    gbit_all: float
    archive_mb: float
    day_tb: float
    retained_tb: float
    ledger_rows: float
    ledger_gb: float
    transactions: float
    reports: float


def units(needed: float, each: float, ceiling: float) -> int:
    """Return how many units carry `needed`, each loaded to its ceiling; at least one."""
    return max(1, math.ceil(needed / (each * ceiling) - _ROUNDING))


def with_spare(count: int) -> int:
    """Return one more: N + 1."""
    return count + 1


def image_cpu_ms(costs: MeasuredCosts, syntax: str) -> float:
    """Return CPU of an image outside the model.

    bench-cpu sends images that are not compressed, so a codec's share comes on top.
    """
    extra = costs.decode[syntax].value - costs.decode["little_endian"].value
    return costs.cpu.value + extra


def plan(demand: Demand, supply: UnitSupply, costs: MeasuredCosts) -> CapacityPlan:
    """Return what the demand needs of such units."""
    images = demand.peak_images
    cores = images * image_cpu_ms(costs, demand.syntax) / 1000
    model_cores = images * costs.model_cpu[demand.network].value / 1000
    gbit_in = images * demand.image_mb * 8 / 1000
    day_tb = demand.studies * demand.images * demand.image_mb / 1e6
    ports = units(gbit_in * CROSSINGS, supply.gbit, supply.other_ceiling)
    return CapacityPlan(
        peak_images=images,
        cores=cores,
        model_cores=model_cores,
        hosts_with_gpus=_hosts(cores, ports, supply),
        hosts_without_gpus=_hosts(cores + model_cores, ports, supply),
        gpus=with_spare(units(images, supply.gpu_rate(demand.network), supply.other_ceiling)),
        listeners=units(images, costs.listener.value, supply.cpu_ceiling),
        gbit_in=gbit_in,
        gbit_all=gbit_in * CROSSINGS,
        archive_mb=2 * images * demand.image_mb,
        day_tb=day_tb,
        retained_tb=day_tb * demand.retention_days,
        ledger_rows=demand.studies * YEAR_DAYS * _ledger(costs.ledger_rows.value, demand),
        ledger_gb=demand.studies * YEAR_DAYS * _ledger(costs.ledger_kb.value, demand) / 1e6,
        transactions=demand.peak_studies * _ledger(TRANSACTIONS, demand),
        reports=demand.peak_studies,
    )


def _hosts(cores: float, ports: int, supply: UnitSupply) -> int:
    return with_spare(max(units(cores, supply.cores, supply.cpu_ceiling), ports))


def _ledger(of_two_images: float, demand: Demand) -> float:
    """Return the share of a study of more images: an upper bound, since reports grow less."""
    return of_two_images * max(1.0, demand.images / 2)


@dataclass(frozen=True, slots=True)
class Limit:
    """A unit, and the studies a day that load it to its ceiling in the peak hour."""

    unit: str
    studies: float
    source: str


def limits(demand: Demand, supply: UnitSupply, costs: MeasuredCosts) -> list[Limit]:
    """Return what one unit of each kind carries, the first to saturate first.

    `demand.studies` has no influence: each need is proportional to it.
    """
    per_study = plan(replace(demand, studies=1.0), supply, costs)
    ceiling = supply.other_ceiling
    cpu = supply.cores * supply.cpu_ceiling
    model = costs.model_cpu[demand.network].file
    cores = f"one host of {supply.cores} cores"
    gpu = "published" if supply.gpu_images is None else "--gpu-images"
    carried = {
        (f"{cores}, model on its CPU", model): cpu / (per_study.cores + per_study.model_cores),
        (f"{cores}, model on GPUs", costs.cpu.file): cpu / per_study.cores,
        ("one GPU", gpu): ceiling * supply.gpu_rate(demand.network) / per_study.peak_images,
        ("one listener process", costs.listener.file): (
            supply.cpu_ceiling * costs.listener.value / per_study.peak_images
        ),
        (f"one port of {supply.gbit:g} Gbit/s", "--gbit"): (
            ceiling * supply.gbit / per_study.gbit_all
        ),
        (f"one archive of {supply.archive_mb:g} MB/s", "--archive-mb"): (
            ceiling * supply.archive_mb / per_study.archive_mb
        ),
        (f"one database, {supply.sync_ms:g} ms a sync", "--sync-ms"): (
            ceiling * supply.commits / per_study.transactions
        ),
        ("one association to the PACS", costs.delivery.file): (
            ceiling * costs.delivery.value / per_study.reports
        ),
    }
    found = [Limit(unit, studies, source) for (unit, source), studies in carried.items()]
    return sorted(found, key=lambda limit: limit.studies)


def campaign_days(demand: Demand, costs: MeasuredCosts) -> float:
    """Return how long a campaign reads a year of such studies again by C-MOVE, on one host."""
    images = demand.studies * demand.images * YEAR_DAYS
    return images / costs.campaign.value / DAY_SECONDS

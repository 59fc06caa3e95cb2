"""The plan past one machine: units, ceilings, rounding, the spare one, and where its figures come from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from load_tests.capacity import measured, rows, run, tables
from load_tests.capacity.measured import MeasuredCost, MeasuredCosts
from load_tests.capacity.plan import (
    Demand,
    UnitSupply,
    campaign_days,
    limits,
    plan,
    units,
    with_spare,
)

SUPPLY = UnitSupply(cores=10, gbit=10.0, gpu_images=1000.0, cpu_ceiling=0.5, other_ceiling=0.5)
# One image a second in the mean, two in the peak hour, of 10 MB.
DEMAND = Demand(studies=43_200.0, images=2.0, peak=2.0, image_mb=10.0, retention_days=10.0)


def cost(value: float) -> MeasuredCost:
    return MeasuredCost(value, "", "", "some.json")


@pytest.fixture
def costs() -> MeasuredCosts:
    """20 ms of CPU outside the model, 100 and 500 in it."""
    return MeasuredCosts(
        image_mb=cost(10.0),
        cpu=cost(20.0),
        model_cpu={"densenet121": cost(100.0), "vit_b16": cost(500.0)},
        decode={"little_endian": cost(3.0), "jpeg_2000": cost(443.0)},
        listener=cost(80.0),
        ledger_rows=cost(9.0),
        ledger_kb=cost(80.0),
        report_kb=cost(47.0),
        json_kb=cost(10.0),
        delivery=cost(5000.0),
        campaign=cost(10.0),
    )


@pytest.mark.parametrize(
    ("needed", "each", "ceiling", "expected"),
    [
        (0.0, 10.0, 0.5, 1),
        (5.0, 10.0, 0.5, 1),
        (5.001, 10.0, 0.5, 2),
        (10.0, 10.0, 0.5, 2),
        (0.3, 0.1, 1.0, 3),  # 2.9999999999999996 in binary
        (3 * 0.7, 0.7, 1.0, 3),  # 3.0000000000000004
    ],
)
def test_parts_of_units_are_rounded_up(
    needed: float, each: float, ceiling: float, expected: int
) -> None:
    assert units(needed, each, ceiling) == expected


def test_one_more_may_die() -> None:
    assert with_spare(1) == 2


def test_rates_are_those_of_the_peak_hour() -> None:
    assert DEMAND.mean_images == 1.0
    assert DEMAND.peak_images == 2.0
    assert DEMAND.peak_studies == 1.0


def test_milliseconds_of_cpu_become_cores(costs: MeasuredCosts) -> None:
    found = plan(DEMAND, SUPPLY, costs)
    assert found.cores == pytest.approx(0.04)
    assert found.model_cores == pytest.approx(0.2)


def test_megabytes_become_gigabits_and_terabytes(costs: MeasuredCosts) -> None:
    found = plan(DEMAND, SUPPLY, costs)
    assert found.gbit_in == pytest.approx(0.16)
    assert found.gbit_all == pytest.approx(0.48)
    assert found.archive_mb == pytest.approx(40.0)
    assert found.day_tb == pytest.approx(0.864)
    assert found.retained_tb == pytest.approx(8.64)


def test_the_ledger_of_a_year(costs: MeasuredCosts) -> None:
    found = plan(DEMAND, SUPPLY, costs)
    assert found.ledger_rows == 43_200 * 365 * 9
    assert found.ledger_gb == pytest.approx(43_200 * 365 * 80e3 / 1e9)
    assert found.transactions == pytest.approx(10.0)
    assert found.reports == pytest.approx(1.0)


def test_more_images_make_a_study_dearer_and_fewer_do_not_make_it_cheaper(
    costs: MeasuredCosts,
) -> None:
    four = plan(replace(DEMAND, images=4.0), SUPPLY, costs)
    one = plan(replace(DEMAND, images=1.0), SUPPLY, costs)
    assert (four.transactions, one.transactions) == (pytest.approx(20.0), pytest.approx(10.0))


def test_hosts_are_loaded_to_their_ceiling_and_one_is_spare(costs: MeasuredCosts) -> None:
    # 100 times as much is 24 cores, of which a host gives 5, and 48 Gbit/s, of which a port gives 5.
    found = plan(replace(DEMAND, studies=4_320_000.0), replace(SUPPLY, gbit=1000.0), costs)
    assert found.cores + found.model_cores == pytest.approx(24.0)
    assert (found.hosts_without_gpus, found.hosts_with_gpus) == (6, 2)


def test_ports_can_need_more_hosts_than_cores_do(costs: MeasuredCosts) -> None:
    found = plan(replace(DEMAND, studies=4_320_000.0), SUPPLY, costs)
    assert (found.hosts_without_gpus, found.hosts_with_gpus) == (11, 11)


def test_gpus_are_loaded_to_their_ceiling_and_one_is_spare(costs: MeasuredCosts) -> None:
    many = replace(DEMAND, studies=43_200.0 * 300)  # 600 images/s
    assert plan(many, SUPPLY, costs).gpus == 3
    assert plan(DEMAND, SUPPLY, costs).gpus == 2


def test_listeners_are_loaded_to_the_ceiling_of_cpus(costs: MeasuredCosts) -> None:
    assert plan(replace(DEMAND, studies=43_200.0 * 21), SUPPLY, costs).listeners == 2


def test_a_codec_comes_on_top_of_images_that_are_not_compressed(costs: MeasuredCosts) -> None:
    found = plan(replace(DEMAND, syntax="jpeg_2000"), SUPPLY, costs)
    assert found.cores == pytest.approx(2 * 0.460)


def test_a_gpu_that_was_not_measured_is_the_published_one() -> None:
    assert UnitSupply().gpu_rate("vit_b16") == 1572.08
    assert UnitSupply(gpu_images=900.0).gpu_rate("vit_b16") == 900.0


def test_the_first_to_saturate_comes_first(costs: MeasuredCosts) -> None:
    found = limits(DEMAND, SUPPLY, costs)
    studies = [limit.studies for limit in found]
    assert studies == sorted(studies)
    assert len(studies) == 8


def test_a_limit_fills_its_unit_to_the_ceiling(costs: MeasuredCosts) -> None:
    port = next(limit for limit in limits(DEMAND, SUPPLY, costs) if "port" in limit.unit)
    full = plan(replace(DEMAND, studies=port.studies), SUPPLY, costs)
    assert full.gbit_all == pytest.approx(5.0)


def test_limits_do_not_depend_on_the_number_of_studies(costs: MeasuredCosts) -> None:
    assert limits(DEMAND, SUPPLY, costs) == limits(replace(DEMAND, studies=7.0), SUPPLY, costs)


def test_a_campaign_over_a_year(costs: MeasuredCosts) -> None:
    assert campaign_days(DEMAND, costs) == pytest.approx(365 * 86_400 / 10 / 86_400)


def test_every_figure_names_a_committed_file() -> None:
    for found in measured.read().all():
        assert (measured.RESULTS / found.file).is_file()
        assert found.value > 0
        assert found.unit


def test_a_result_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"bench-rows\.json"):
        measured.read(tmp_path)


def test_the_plan_fits_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--studies", "50000", "--images", "2", "--peak", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.split() == ["studies", "a", "day", "50,000"] for line in lines)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--studies", "0"], "'0' is not a number above 0"),
        (["--studies", "nan"], "'nan' is not a number above 0"),
        (["--peak", "0.5"], "'0.5' is not a number from 1 to 24"),
        (["--cpu-ceiling", "1.5"], "'1.5' is not a share above 0 and up to 1"),
        (["--network", "alexnet"], "invalid choice: 'alexnet'"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run.parsed(words)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "shown"), [(0.0123, "0.0123"), (23.148, "23.1"), (614_400.0, "614,400")]
)
def test_numbers_are_short(value: float, shown: str) -> None:
    assert tables.number(value) == shown


def test_rows_of_a_study_are_what_grew() -> None:
    before = {"study": {"rows": 0.0, "bytes": 4096.0}, "process": {"rows": 0.0, "bytes": 4096.0}}
    after = {"study": {"rows": 10.0, "bytes": 14_096.0}, "process": {"rows": 3.0, "bytes": 4096.0}}
    assert rows.a_study(before, after, 10) == {"study": {"rows": 1.0, "bytes": 1000.0}}


@pytest.mark.parametrize(
    ("syntax", "first"), [("little_endian", "one port of"), ("jpeg_2000", "one host of")]
)
def test_the_page_says_what_saturates_first(syntax: str, first: str) -> None:
    """By the committed figures; docs/capacity.md says it in words, too."""
    found = limits(Demand(1.0, syntax=syntax), UnitSupply(), measured.read())
    assert found[0].unit.startswith(first)


def test_two_hosts_carry_a_hundred_thousand_studies_a_day() -> None:
    for network in measured.NETWORKS:
        found = plan(Demand(1e5, network=network), UnitSupply(), measured.read())
        assert (found.hosts_without_gpus, found.hosts_with_gpus, found.gpus) == (2, 2, 2)


def test_one_gpu_and_its_spare_carry_a_million_studies_a_day() -> None:
    for network in measured.NETWORKS:
        assert plan(Demand(1e6, network=network), UnitSupply(), measured.read()).gpus == 2


def test_the_example_of_the_page_is_what_the_command_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run.main(["--studies", "50000", "--images", "2", "--peak", "3"])
    page = measured.RESULTS.parents[1] / "docs/capacity.md"
    assert capsys.readouterr().out in page.read_text(encoding="utf-8")


def test_the_rows_of_a_study_are_committed() -> None:
    written = json.loads(rows.RESULT.read_text(encoding="utf-8"))
    assert {name: table["rows"] for name, table in written["tables"].items()} == {
        "delivery": 1.0,
        "document": 2.0,
        "instance": 2.0,
        "reading": 2.0,
        "result": 1.0,
        "study": 1.0,
    }

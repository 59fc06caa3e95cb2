"""Which way a report is built in a dispatcher, with a real pool of processes.

The documents are the same on every way.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hilum.domain import Document, ImageReason, Outcome, Release, ReportJob
from hilum.errors import WorkerDied
from hilum.observability import telemetry
from hilum.processes.report_builder import ReportBuilder
from hilum.processes.report_pool import ReportPool
from hilum.report import UNUSUAL, build_documents, compile_template
from testing.phantoms.phantom import make_study
from tests.support.reports.heat_maps import explained
from tests.support.reports.results import CONTEXT, LABELS, LEASE, make_release, report_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydicom")
KINDS = ("sr", "json")
RELEASE = make_release()


@pytest.fixture(scope="module")
def pool() -> Iterator[ReportPool]:
    with ReportPool(1) as started:
        yield started


def job(**changes: Any) -> ReportJob:
    return dataclasses.replace(report_of(make_study(3, rows=16, columns=16), RELEASE), **changes)


def fallbacks(reason: str) -> float:
    return float(telemetry.REPORT_FALLBACKS.labels(reason)._value.get())


def run(action: Callable[[], Awaitable[Any]]) -> Any:
    async def inside() -> Any:
        return await action()

    return asyncio.run(inside())


def built(pool: ReportPool, claimed: ReportJob, release: Release = RELEASE) -> list[Document]:
    return run(lambda: ReportBuilder(pool, CONTEXT).documents(claimed, release, KINDS))  # type: ignore[no-any-return]


def test_a_result_is_filled_in_without_highdicom_and_is_the_same(pool: ReportPool) -> None:
    before = {reason: fallbacks(reason) for reason in UNUSUAL}
    assert built(pool, job()) == build_documents(job(), RELEASE, CONTEXT, KINDS)
    assert {reason: fallbacks(reason) for reason in UNUSUAL} == before


def large() -> ReportJob:
    private = b"\x09\x00\x10\x00UN\x00\x00" + (300 << 10).to_bytes(4, "little") + bytes(300 << 10)
    claimed = job()
    instances = (
        claimed.instances[0],
        dataclasses.replace(claimed.instances[1], header=claimed.instances[1].header + private),
    )
    return dataclasses.replace(claimed, instances=instances)


@pytest.mark.parametrize(
    ("reason", "claimed", "release"),
    [
        ("large_header", large(), RELEASE),
        ("lapsed", job(lease=dataclasses.replace(LEASE, lapses=1)), RELEASE),
        ("unknown_finding", job(), make_release(labels=LABELS[1:])),
    ],
)
def test_what_is_unusual_is_counted_and_is_the_same(
    pool: ReportPool, reason: str, claimed: ReportJob, release: Release
) -> None:
    before = fallbacks(reason)
    assert built(pool, claimed, release) == build_documents(claimed, release, CONTEXT, KINDS)
    assert fallbacks(reason) == before + 1


class Refusing(ReportPool):
    """The pool's seam: a release whose template does not prove itself."""

    async def run(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        return (
            None if function is compile_template else await super().run(function, *args, **kwargs)
        )


def test_a_template_that_is_refused_costs_no_report() -> None:
    before = fallbacks("template_refused")
    with Refusing(1) as refusing:
        assert built(refusing, job()) == build_documents(job(), RELEASE, CONTEXT, KINDS)
    assert fallbacks("template_refused") == before + 1


def test_after_the_death_of_the_process_that_compiles_it_is_compiled_anew() -> None:
    async def twice(pool: ReportPool) -> list[Document]:
        builder = ReportBuilder(pool, CONTEXT)
        await pool.run(os.getpid)
        builder.prepare([RELEASE])
        await asyncio.sleep(0)
        for pid in list(pool._executor._processes):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerDied):
            await builder.documents(job(), RELEASE, KINDS)
        return await builder.documents(job(), RELEASE, KINDS)

    with ReportPool(1) as mortal:
        assert run(lambda: twice(mortal)) == build_documents(job(), RELEASE, CONTEXT, KINDS)


def test_a_process_that_dies_idle_costs_the_next_result_nothing() -> None:
    async def before_and_after(pool: ReportPool) -> tuple[int, int]:
        first = await pool.run(os.getpid)
        (process,) = pool._executor._processes.values()
        os.kill(first, signal.SIGKILL)
        await asyncio.to_thread(process.join)
        while not pool._executor._broken:  # its thread hears of the death a moment later
            await asyncio.sleep(0.01)
        return first, await pool.run(os.getpid)

    with ReportPool(1) as pool:
        first, second = run(lambda: before_and_after(pool))
    assert first != second


def test_a_heat_map_stands_beside_a_report_from_the_template(
    pool: ReportPool, tmp_path: Path
) -> None:
    claimed, sources = explained(make_study(3, rows=64, columns=64), RELEASE, tmp_path)
    report = run(
        lambda: ReportBuilder(pool, CONTEXT).with_pictures(
            claimed, RELEASE, (*KINDS, "heatmap"), sources
        )
    )
    assert [document.kind for document in report.documents] == ["sr", "json", "heatmap"]
    assert (report.documents[2].sop_instance_uid or "").encode() in report.documents[0].content


def test_a_study_that_nobody_could_read_gets_json_alone(pool: ReportPool) -> None:
    claimed = job()
    nothing = dataclasses.replace(
        claimed.result,
        outcome=Outcome.NOT_ANALYSED,
        findings=(),
        reason=ImageReason.CORRUPT_HEADER.value,
    )
    broken = tuple(
        dataclasses.replace(item, header=b"\x40\x00\x75\x02OB\x02\x00\x01\x20")
        for item in claimed.instances
    )
    documents = built(pool, dataclasses.replace(claimed, result=nothing, instances=broken))
    assert [document.kind for document in documents] == ["json"]


def test_every_reason_is_documented() -> None:
    page = (
        Path(__file__)
        .parents[3]
        .joinpath("docs", "decisions", "sr-template.md")
        .read_text(encoding="utf-8")
    )
    assert [reason for reason in UNUSUAL if f"`{reason}`" not in page] == []

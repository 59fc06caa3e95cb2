"""A study in a collector: from its association to the SR that is accepted, through the real tritonserver; and a collector that is away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from testing.serving import Hilum
from tests.support.models.releases import make_tiny
from tests.support.peers.collector import Collector, SeenSpan
from tests.support.peers.peers import free_port
from tests.support.server.installation import (
    START_SECONDS,
    Receiver,
    hilum_with,
    receiver_section,
    save_all,
    send_to,
    small_study,
    wait_for,
)

pytestmark = pytest.mark.slow
# Of two images: what stands below which span.
TREE = {
    ("study", ""): 1,
    ("association", "study"): 1,
    ("receive", "association"): 2,
    ("index", "study"): 2,
    ("analyse", "study"): 2,
    ("decode", "analyse"): 2,
    ("prepare", "analyse"): 2,
    ("infer", "analyse"): 2,
    ("assemble", "study"): 1,
    ("report", "study"): 1,
    ("deliver", "study"): 1,
}
ROLES = {
    "receive": "listener",
    "analyse": "analyser",
    "assemble": "dispatcher",
    "deliver": "dispatcher",
}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with Collector() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Hilum]:
    folder = tmp_path_factory.mktemp("traced")
    with ExitStack() as stack:
        port = free_port()
        stack.enter_context(Receiver(port))
        destinations = {"pacs": receiver_section(port, accept_untrained=True)}
        tiny = make_tiny(folder / "tiny")
        hilum = stack.enter_context(
            hilum_with(folder, tiny, destinations, tracing={"endpoint": collector.endpoint})
        )
        hilum.wait_until_ready(START_SECONDS)
        yield hilum


def of_study(collector: Collector, uid: str) -> list[SeenSpan]:
    return [
        span for span in collector.spans if span.attributes.get("hilum.study_instance_uid") == uid
    ]


def tree(spans: list[SeenSpan]) -> dict[tuple[str, str], int]:
    names = {span.id: span.name for span in spans}
    found: dict[tuple[str, str], int] = {}
    for span in spans:
        place = span.name, names[span.parent] if span.parent else ""
        found[place] = found.get(place, 0) + 1
    return found


def test_a_study_is_one_trace_from_its_association_to_the_accepted_report(
    server: Hilum, collector: Collector, tmp_path: Path
) -> None:
    study = small_study(1)
    uid = str(study[0].StudyInstanceUID)
    send_to(server, save_all(tmp_path, study))
    wait_for(lambda: len(of_study(collector, uid)) >= sum(TREE.values()), what="the spans")
    spans = of_study(collector, uid)
    assert tree(spans) == TREE
    assert len({span.trace for span in spans}) == 1
    assert {span.service for span in spans} == {"hilum"}
    for span in spans:
        assert span.process.startswith(ROLES.get(span.name, ""))
        assert span.began <= span.ended
        assert not span.is_error
    by_name = {span.name: span for span in spans}
    assert (
        by_name["association"].began
        <= by_name["receive"].began
        <= by_name["analyse"].began
        <= by_name["assemble"].began
    )
    assert by_name["deliver"].attributes["hilum.destination"] == "pacs"
    assert by_name["deliver"].attributes["hilum.outcome"] == "delivered"
    assert by_name["deliver"].ended >= by_name["report"].began
    assert by_name["association"].attributes["hilum.stored"] == 2


def test_triton_goes_on_in_the_trace_of_a_study(
    server: Hilum, collector: Collector, tmp_path: Path
) -> None:
    """And only there: the canaries, which come without a traceparent, are not traced."""
    study = small_study(2)
    uid = str(study[0].StudyInstanceUID)
    send_to(server, save_all(tmp_path, study))

    def theirs() -> list[SeenSpan]:
        traces = {span.trace for span in of_study(collector, uid)}
        return [
            span
            for span in collector.spans
            if span.service == "hilum-triton" and span.trace in traces
        ]

    def top_spans() -> list[SeenSpan]:
        own = {span.id: span for span in theirs()}
        return [span for span in own.values() if span.parent not in own]

    # A span is sent when it ends, so one of a part may come before that of the whole request.
    wait_for(
        lambda: {span.name for span in top_spans()} == {"InferRequest"}, what="requests to Triton"
    )
    tops = top_spans()
    wait_for(
        lambda: (
            {span.parent for span in tops}
            <= {span.id for span in of_study(collector, uid) if span.name == "infer"}
        )
    )
    calls = {span.id: span for span in of_study(collector, uid) if span.name == "infer"}
    assert {span.parent for span in tops} <= set(calls)
    linked = {link for span in calls.values() for link in span.links}
    assert {span.parent for span in tops} | linked <= set(calls)

    def traces(service: str, name: str | None = None) -> set[str]:
        return {
            span.trace
            for span in collector.spans
            if span.service == service and name in (None, span.name)
        }

    wait_for(
        lambda: traces("hilum-triton") <= traces("hilum", "study"), what="only traces of studies"
    )  # each process sends in its own time


def test_no_patient_is_in_a_span(server: Hilum, collector: Collector) -> None:
    said = " ".join(str(value) for span in collector.spans for value in span.attributes.values())
    assert "PHANTOM" not in said.upper()
    assert "^" not in said


def test_a_collector_that_is_away_costs_no_report(
    server: Hilum, collector: Collector, tmp_path: Path
) -> None:
    collector.status = 503
    study = small_study(3)
    send_to(server, save_all(tmp_path, study))
    address = f"/api/v1/studies/{study[0].StudyInstanceUID}"
    wait_for(lambda: "delivered" in server.get(address).text, what="the report")
    lost = 'hilum_trace_spans_total{outcome="lost"}'
    wait_for(lambda: lost in server.get("/metrics").text, what="the metric")
    collector.status = 200

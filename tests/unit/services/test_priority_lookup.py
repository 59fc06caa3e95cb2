"""Which studies a worklist is asked about, how often, and what an outage does."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from hilum.domain import Priority, RuleDecision
from hilum.retrieve.source import SourceError
from hilum.retrieve.worklist.entries import OrderPriority
from hilum.services.worklist.priority_lookup import PriorityLookup
from hilum.store.ledger import Arrival, Ledger
from hilum.store.schema.tables import study
from tests.support.ledger.arrivals import arrival_of
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.storing import element
from tests.support.ledger.street import RELEASE, Clock, Street
from tests.support.machine.waiting import wait_for
from tests.support.worklist.worklists import worklist_at

ORDER = "0042"
STAT = OrderPriority(("STAT",), 1, is_urgent=True)
ROUTINE = OrderPriority(("ROUTINE",), 1, is_urgent=False)
NO_ORDER = OrderPriority((), 0, is_urgent=False)
ADDRESS = "RIS@127.0.0.1:104"


class Orders:
    """A worklist of these orders; `held`: an answer waits until it is set."""

    def __init__(self, known: Mapping[str, OrderPriority]) -> None:
        self.known = known
        self.problem: Exception | None = None
        self.asked = list[str]()
        self.held = threading.Event()
        self.held.set()

    def ask(self, accession: str) -> OrderPriority:
        self.asked.append(accession)
        assert self.held.wait(60.0)
        if self.problem is not None:
            raise self.problem
        return self.known.get(accession, NO_ORDER)

    def close(self) -> None:
        """Nothing is open."""


class Hospital:
    """A ledger, a worklist, and the look-ups between them."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self.ledger = ledger
        self.clock = clock
        self.street = Street(ledger, clock)
        self.orders = Orders({ORDER: STAT, "1": ROUTINE})
        self._before = outcomes()
        self.lookup = self.start()

    def start(self) -> PriorityLookup:
        """Start the look-ups of a process."""
        self.lookup = PriorityLookup(worklist_at(104), self.ledger, self.orders, self.clock)
        self.lookup.start()
        return self.lookup

    def send(self, study_uid: str, number: int = 1, order: str = ORDER, **changes: Any) -> Arrival:
        """An image arrives."""
        uid = f"{study_uid}.{number}"
        header = element(0x00080050, b"SH", order.encode()) if order else b""
        arrival = arrival_of(uid, study_uid, (RELEASE,), header=header)
        arrival = replace(arrival, **changes)
        self.ledger.record([arrival])
        self.lookup.see([arrival])
        return arrival

    def outcomes(self) -> dict[str, float]:
        """The outcomes of look-ups of this test, by name."""
        now = outcomes()
        grown = {name: count - self._before.get(name, 0.0) for name, count in now.items()}
        return {name: count for name, count in grown.items() if count}

    def wait_for_outcomes(self, **wanted: float) -> None:
        """Return when exactly these outcomes are there."""
        wait_for(lambda: sum(self.outcomes().values()) >= sum(wanted.values()), what="outcomes")
        assert self.outcomes() == wanted

    def priorities(self) -> list[Priority]:
        """Those of the studies."""
        return [Priority(row.priority) for row in self.street.rows(study)]


def outcomes() -> dict[str, float]:
    """The outcomes of all look-ups of this process."""
    return {
        sample.labels["outcome"]: sample.value
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name == "hilum_worklist_lookups_total"
    }


@pytest.fixture
def hospital(tmp_path: Any) -> Iterator[Hospital]:
    clock = Clock()
    ledger = Ledger(migrated_sqlite(tmp_path), clock)
    made = Hospital(ledger, clock)
    yield made
    made.orders.held.set()
    made.lookup.close()
    ledger.close()


def test_a_stat_order_makes_its_study_urgent_and_says_so(hospital: Hospital) -> None:
    hospital.send("1.1", order="1")
    hospital.send("1.2")

    hospital.wait_for_outcomes(not_urgent=1, urgent=1)

    assert hospital.priorities() == [Priority.LIVE, Priority.URGENT]
    assert [row.worklist for row in hospital.street.rows(study)] == [
        {
            "words": ["ROUTINE"],
            "source": ADDRESS,
            "answered_at": hospital.clock.now,
            "is_urgent": False,
            "has_raised": False,
        },
        {
            "words": ["STAT"],
            "source": ADDRESS,
            "answered_at": hospital.clock.now,
            "is_urgent": True,
            "has_raised": True,
        },
    ]


def test_a_study_is_asked_for_once_and_an_order_too(hospital: Hospital) -> None:
    for number in range(3):
        hospital.send("1.1", number)
    hospital.send("1.2")

    hospital.wait_for_outcomes(urgent=2)

    assert hospital.orders.asked == [ORDER], "the second study takes the answer that is kept"
    assert hospital.priorities() == [Priority.URGENT] * 2


def test_an_order_that_becomes_urgent_later_is_seen_with_a_later_image(
    hospital: Hospital,
) -> None:
    hospital.send("1.1", 1, order="1")
    hospital.wait_for_outcomes(not_urgent=1)
    hospital.orders.known = {"1": STAT}
    hospital.clock.now += 600.0

    hospital.send("1.1", 2, order="1")

    hospital.wait_for_outcomes(not_urgent=1, urgent=1)
    assert hospital.priorities() == [Priority.URGENT]


@pytest.mark.parametrize(
    "changes",
    [
        {"decision": RuleDecision("live ones", "d", priority="live")},
        {"decision": RuleDecision("no consent", "d", not_analysed="no"), "not_analysed": "no"},
        {"priority": Priority.URGENT},
        {"priority": Priority.REANALYSIS},
        {"campaigns": {RELEASE: 1}},
    ],
)
def test_a_priority_that_is_fixed_is_not_asked_for(
    hospital: Hospital, changes: Mapping[str, Any]
) -> None:
    hospital.send("1.1", **changes)
    hospital.send("1.2", order="1")

    hospital.wait_for_outcomes(not_urgent=1)

    assert hospital.orders.asked == ["1"]


def test_a_rule_without_a_priority_leaves_it_to_the_worklist(hospital: Hospital) -> None:
    hospital.send("1.1", decision=RuleDecision("default", "d"))

    hospital.wait_for_outcomes(urgent=1)

    assert hospital.priorities() == [Priority.URGENT]


def test_orders_without_an_exact_number_are_never_asked_for(hospital: Hospital) -> None:
    for number, order in enumerate(("", "00*", "4?", "1\\2")):
        hospital.send(f"1.{number}", order=order)

    hospital.wait_for_outcomes(no_accession=1, unsuitable=3)

    assert hospital.orders.asked == []


def test_orders_that_are_not_there_and_orders_without_a_priority(hospital: Hospital) -> None:
    hospital.orders.known = {"7": OrderPriority((), 1, is_urgent=False)}

    hospital.send("1.1", order="7")
    hospital.send("1.2", order="8")

    hospital.wait_for_outcomes(no_priority=1, no_order=1)
    assert [row.worklist for row in hospital.street.rows(study)] == [None, None]


def test_no_reading_waits_for_a_slow_worklist(hospital: Hospital) -> None:
    hospital.orders.held.clear()
    hospital.send("1.1")
    wait_for(lambda: hospital.orders.asked)

    hospital.street.read()
    hospital.street.assemble()
    hospital.street.report()
    hospital.street.deliver()
    hospital.orders.held.set()
    hospital.wait_for_outcomes(urgent=1)

    (row,) = hospital.street.rows(study)
    assert (row.state, row.priority, row.worklist["has_raised"]) == ("closed", Priority.LIVE, False)


def test_more_studies_than_there_are_places_are_not_asked_for(hospital: Hospital) -> None:
    hospital.orders.held.clear()
    hospital.send("1.0", order="first")
    wait_for(lambda: hospital.orders.asked)
    arrivals = [hospital.send(f"1.{number}", order=f"{number}") for number in range(1, 104)]

    assert hospital.outcomes() == {"queue_full": 3}

    hospital.orders.held.set()
    wait_for(lambda: sum(hospital.outcomes().values()) == 104, what="all of them")
    hospital.lookup.see(arrivals[-1:])
    wait_for(lambda: hospital.orders.asked[-1] == "103", what="the next image asks again")


def test_a_worklist_that_is_away_is_asked_now_and_then(hospital: Hospital) -> None:
    hospital.orders.problem = SourceError("RIS@ris:104: no answer", is_outage=True)
    with capture_logs() as logs:
        for number in range(5):
            hospital.send(f"1.{number}", order=f"{number}")
        hospital.wait_for_outcomes(failed=2, away=3)
        assert hospital.orders.asked == ["0", "1"], "after two failures it rests"

        hospital.orders.problem = None
        hospital.clock.now += 3600.0
        hospital.send("1.4", 2, order="1")
        hospital.wait_for_outcomes(failed=2, away=3, not_urgent=1)

    assert [line["event"] for line in logs] == ["worklist_unavailable", "worklist_available"]


def test_a_bug_in_a_look_up_ends_that_look_up_alone(hospital: Hospital) -> None:
    hospital.orders.problem = RuntimeError(f"about {ORDER} of DOE^JANE")
    with capture_logs() as logs:
        hospital.send("1.1")
        hospital.wait_for_outcomes(failed=1)
    hospital.orders.problem = None

    hospital.send("1.1", 2)

    hospital.wait_for_outcomes(failed=1, urgent=1)
    assert ORDER not in str(logs)
    assert "DOE" not in str(logs)


def test_after_a_restart_the_next_image_of_a_study_asks(hospital: Hospital) -> None:
    killed, unanswered = hospital.lookup, hospital.orders
    unanswered.held.clear()
    hospital.send("1.1", order="first")
    hospital.send("1.2")
    hospital.orders = Orders(unanswered.known)
    hospital.start()

    hospital.send("1.2", 2)

    hospital.wait_for_outcomes(urgent=1)
    assert hospital.priorities() == [Priority.LIVE, Priority.URGENT]
    unanswered.held.set()
    killed.close()


def test_a_study_that_is_gone_meanwhile_is_no_error(hospital: Hospital) -> None:
    header = element(0x00080050, b"SH", ORDER.encode())
    arrival = arrival_of("1.1.1", "1.1", (RELEASE,), header=header)

    hospital.lookup.see([arrival])

    hospital.wait_for_outcomes(not_written=1)

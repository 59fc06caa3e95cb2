"""Called-AE routes: who reads a study, how soon, and where its documents may go."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from hilum.domain import Document, Instance, KnownStudy, Priority, RuleDecision
from hilum.errors import ConfigurationError
from hilum.processes.dispatcher import ReportHandler
from hilum.receive.indexing.arrivals import arrivals_of
from hilum.services.releases.releases import active_releases
from hilum.settings import Settings, load, restore
from hilum.store.ledger import Ledger
from tests.support.ledger.arrivals import first_arrival, handling_of
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.models.releases import MANIFESTS
from tests.support.objects.radiograph import radiograph as drawn
from tests.support.objects.radiograph import ramp
from tests.support.reports.results import instance_of, make_release, report_of

RECEIVE = {"ae_titles": ["HILUM", "ER", "STUDY"]}
DESTINATIONS = {
    "pacs": {},
    "research": {"kind": "folder", "path": "out", "documents": ["sr", "json"]},
}
ROUTES = {
    "ER": {"priority": "urgent", "quiet_seconds": 2.5, "destinations": ["pacs"]},
    "STUDY": {"releases": ["b@1", "a@1"], "destinations": ["research"], "priority": "reanalysis"},
}


def make(**sections: Any) -> Settings:
    usual = {
        "receive": RECEIVE,
        "models": {"releases": ["a@1"]},
        "destinations": DESTINATIONS,
        "routes": ROUTES,
    }
    return Settings(**{**usual, **sections})


def image(
    uid: str = "1.2.1", study: str = "1.2", called: str = "HILUM", calling: str = "CR1"
) -> Instance:
    names = {
        "series_instance_uid": "1.3",
        "transfer_syntax_uid": "1",
        "path": "x",
        "size_bytes": 1,
        "digest": "d",
        "pixel_digest": "p",
    }
    titles = {"calling_ae_title": calling, "called_ae_title": called}
    return Instance(
        sop_instance_uid=uid,
        sop_class_uid="1",
        study_instance_uid=study,
        received_at=0.0,
        **names,
        **titles,
    )


def test_without_a_route_everything_is_as_it_was() -> None:
    arrival = first_arrival(image(), make(studies={"quiet_seconds": 4.0}))
    assert (arrival.priority, arrival.releases, arrival.quiet_seconds) == (
        Priority.LIVE,
        ("a@1",),
        4.0,
    )


def test_a_route_decides_priority_releases_and_quiet_period() -> None:
    urgent, study = (first_arrival(image(called=title), make()) for title in ("ER", "STUDY"))
    assert (urgent.priority, urgent.releases, urgent.quiet_seconds) == (
        Priority.URGENT,
        ("a@1",),
        2.5,
    )
    assert (study.priority, study.releases, study.quiet_seconds) == (
        Priority.REANALYSIS,
        ("b@1", "a@1"),
        10.0,
    )


def test_the_first_image_of_a_study_decides_for_all() -> None:
    asked: list[Collection[str]] = []

    def known(uids: Collection[str]) -> Mapping[str, KnownStudy]:
        asked.append(sorted(uids))
        return {"1.8": KnownStudy("CR1", "STUDY")}

    batch = [
        image("1.9.1", "1.9", "ER"),
        image("1.9.2", "1.9", "STUDY"),
        image("1.8.2", "1.8", "ER"),
        image("1.7.1", "1.7"),
    ]
    arrivals = arrivals_of(batch, make(), known)
    assert [arrival.priority for arrival in arrivals] == [
        Priority.URGENT,
        Priority.URGENT,
        Priority.REANALYSIS,
        Priority.LIVE,
    ]
    assert [arrival.instance for arrival in arrivals] == batch
    assert asked == [["1.7", "1.8", "1.9"]]


SENDERS = {
    "CR1": {"priority": "urgent", "quiet_seconds": 1.5, "maximum_wait_seconds": 7.0},
    "ARCHIVE": {"releases": ["c@1"], "destinations": ["research"], "priority": "reanalysis"},
}


@pytest.mark.parametrize(
    ("calling", "called", "priority", "releases", "destinations", "times"),
    [
        ("OTHER", "HILUM", "live", ("a@1",), ("pacs", "research"), (10.0, 120.0)),
        ("OTHER", "ER", "urgent", ("a@1",), ("pacs",), (2.5, 120.0)),
        ("CR1", "HILUM", "urgent", ("a@1",), ("pacs", "research"), (1.5, 7.0)),
        ("CR1", "STUDY", "urgent", ("b@1", "a@1"), ("research",), (1.5, 7.0)),
        ("ARCHIVE", "ER", "reanalysis", ("c@1",), ("research",), (2.5, 120.0)),
    ],
)
def test_the_sender_goes_before_the_route_and_that_before_what_is_for_all(
    calling: str,
    called: str,
    priority: str,
    releases: tuple[str, ...],
    destinations: tuple[str, ...],
    times: tuple[float, float],
) -> None:
    handling = handling_of(make(senders=SENDERS), calling, called)
    assert (handling.priority, handling.releases, handling.destinations) == (
        priority,
        releases,
        destinations,
    )
    assert (handling.quiet_seconds, handling.maximum_wait_seconds) == times


def test_a_quiet_period_of_none_at_all_is_one() -> None:
    assert (
        handling_of(make(senders={"CR1": {"quiet_seconds": 0.0}}), "CR1", "ER").quiet_seconds == 0.0
    )


def test_the_sender_of_the_first_image_decides_for_all() -> None:
    batch = [
        image("1.9.1", "1.9", calling="ARCHIVE"),
        image("1.9.2", "1.9", calling="CR1"),
        image("1.8.2", "1.8", calling="ARCHIVE"),
    ]
    arrivals = arrivals_of(
        batch, make(routes={}, senders=SENDERS), lambda _uids: {"1.8": KnownStudy("CR1", "HILUM")}
    )
    assert [arrival.priority for arrival in arrivals] == [
        Priority.REANALYSIS,
        Priority.REANALYSIS,
        Priority.URGENT,
    ]
    assert [arrival.releases for arrival in arrivals] == [("c@1",), ("c@1",), ("a@1",)]


@pytest.mark.parametrize("calling", ["CR1", " CR1"])
def test_spaces_around_the_title_of_a_section_or_a_sender_mean_nothing(calling: str) -> None:
    assert (
        handling_of(make(senders={" CR1 ": {"quiet_seconds": 3.0}}), calling, "HILUM").quiet_seconds
        == 3.0
    )


def test_a_release_that_is_named_twice_reads_once() -> None:
    for sections in (
        {"senders": {"CR1": {"releases": ["b@1", "a@1", "b@1"]}}},
        {"models": {"releases": ["b@1", "a@1", "b@1"]}},
    ):
        assert first_arrival(image(), make(**sections)).releases == ("b@1", "a@1")


def test_without_routes_the_ledger_is_not_asked() -> None:
    def never(_uids: Collection[str]) -> Mapping[str, KnownStudy]:
        raise AssertionError

    assert len(arrivals_of([image()], make(routes={}), never)) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[routes.OTHER]\n", "OTHER is not in receive.ae_titles; add it there"),
        (
            '[routes.HILUM]\ndestinations = ["pcas"]\n[destinations.pacs]\n',
            "HILUM: no destination 'pcas'; did you mean 'pacs'?",
        ),
        ('[routes.HILUM]\ndestinations = ["pacs"]\n', "HILUM: no destination 'pacs'"),
        ('[routes.HILUM]\npriority = "quick"\n', "routes.HILUM.priority"),
        ("[routes.HILUM]\nquiet = 1\n", "did you mean 'quiet_seconds'?"),
        ('[destinations.back]\nkind = "sender"\n', "destinations.back.ports: Field required"),
        ('[receive]\npeers = ["10.0.0.1/8"]\n', "has host bits set"),
        ('[receive]\npeers = ["pacs.local"]\n', "does not appear to be"),
        ("[senders.ROUTER]\nmaximum_associations = -1\n", "greater than or equal to 0"),
        (
            "[senders.ROUTER]\nquiet = 1\n",
            "senders.ROUTER.quiet: unknown setting; did you mean 'quiet_seconds'?",
        ),
        (
            '[senders.ROUTER]\ndestinations = ["pcas"]\n[destinations.pacs]\n',
            "ROUTER: no destination 'pcas'; did you mean 'pacs'?",
        ),
        (
            '[senders.ROUTER]\ncalled_ae_titles = ["HILIM"]\n',
            "'HILIM' is not in receive.ae_titles; did you mean 'HILUM'?",
        ),
        ('[senders.ROUTER]\npeers = ["10.0.0.1/8"]\n', "has host bits set"),
        (
            '[senders.ROUTER]\ntransfer_syntaxes = ["JPEG2000Losless"]\n',
            "did you mean 'JPEG2000Lossless'?",
        ),
        (
            '[senders.ROUTER]\nsop_classes = ["CTImageStorage"]\n',
            "no image SOP Class that is taken here",
        ),
        (
            "[senders.ROUTER]\n[senders.' ROUTER']\n",
            "titles must not differ in the spaces around them only: ROUTER",
        ),
        ("[senders.' ']\n", "an AE Title must not be blank"),
        ("[receive]\nsop_classes = []\n", "at least 1 item"),
        (
            "[receive.maximum_associations_by_ae]\nROUTER = 1\n",
            (
                "receive.maximum_associations_by_ae: unknown setting; say it in"
                " [senders.<CALLING_AE_TITLE>], as maximum_associations"
            ),
        ),
        (
            "[receive]\ndirect_io = true\n",
            "receive.direct_io: unknown setting; leave it out: received objects always go",
        ),
        (
            "[studies.quiet_seconds_by_ae]\nROUTER = 1\n",
            "say it in [senders.<CALLING_AE_TITLE>], as quiet_seconds",
        ),
    ],
)
def test_settings_that_lead_nowhere_are_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "hilum.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load(file)
    assert said in "\n".join(caught.value.problems)


def test_a_release_of_a_route_must_have_a_manifest_and_is_active() -> None:
    untrained = {"releases": ["densenet121_untrained@1"]}
    routes = {"ER": {"releases": ["vit_b16_untrained@1"]}, "STUDY": untrained}
    settings = make(models={**untrained, "manifests": MANIFESTS}, routes=routes)
    assert list(active_releases(settings)) == ["densenet121_untrained@1", "vit_b16_untrained@1"]
    with pytest.raises(
        ConfigurationError, match=r"routes\.STUDY\.releases: nothing@1 has no manifest"
    ):
        active_releases(
            make(
                models={**untrained, "manifests": MANIFESTS},
                routes={"STUDY": {"releases": ["nothing@1"]}},
            )
        )


def test_a_release_of_a_sender_must_have_a_manifest_and_is_active() -> None:
    untrained = {"releases": ["densenet121_untrained@1"], "manifests": MANIFESTS}
    settings = make(
        models=untrained, routes={}, senders={"CR1": {"releases": ["vit_b16_untrained@1"]}}
    )
    assert list(active_releases(settings)) == ["densenet121_untrained@1", "vit_b16_untrained@1"]
    with pytest.raises(
        ConfigurationError, match=r"senders\.CR1\.releases: nothing@1 has no manifest"
    ):
        active_releases(
            make(models=untrained, routes={}, senders={"CR1": {"releases": ["nothing@1"]}})
        )


def test_children_know_the_routes_and_the_senders() -> None:
    settings = make(senders=SENDERS)
    assert restore(settings.dump()) == settings


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    opened = Ledger(migrated_sqlite(tmp_path))
    yield opened
    opened.close()


def address(
    settings: Settings,
    ledger: Ledger,
    called: str,
    *,
    held: tuple[str, ...] = (),
    calling: str = "MOD1",
    host: str = "",
    decision: RuleDecision | None = None,
) -> Any:
    import dataclasses

    dataset = drawn(ramp(8, 8))
    dataset.SOPInstanceUID, dataset.StudyInstanceUID, dataset.SeriesInstanceUID = (
        "1.2.3.1",
        "1.2.3",
        "1.2.3.0",
    )
    job = report_of([dataset], make_release())
    study = dataclasses.replace(
        job.study,
        called_ae_title=called,
        calling_ae_title=calling,
        peer_address=host,
        decision=decision,
    )
    document = Document("sr", "application/dicom", b"")
    job = dataclasses.replace(job, study=study, delivered_reports=dict.fromkeys(held, document))
    assert instance_of(dataset).study_instance_uid == "1.2.3"
    return ReportHandler(settings, {}, ledger, None)._address(document, job)  # type: ignore[arg-type] # nothing is built here


def test_documents_go_where_the_route_says(ledger: Ledger) -> None:
    assert address(make(), ledger, "HILUM").destinations == ("pacs", "research")
    assert address(make(), ledger, "ER").destinations == ("pacs",)
    assert address(make(), ledger, "STUDY").destinations == ("research",)


def test_documents_go_where_the_rule_of_the_first_image_said(ledger: Ledger) -> None:
    decided = RuleDecision("once", "0123", destinations=("research", "gone"))
    assert address(make(), ledger, "ER", decision=decided).destinations == ("research",)
    assert address(make(), ledger, "ER", decision=RuleDecision("all", "0123")).destinations == (
        "pacs",
        "research",
    )


def test_a_study_without_a_decision_is_addressed_by_the_rules_of_now(ledger: Ledger) -> None:
    rules = [
        {"name": "pa", "when": {"ViewPosition": "PA"}, "then": {"destinations": ["research"]}},
        {"name": "default"},
    ]
    assert address(make(routes={}, rules=rules), ledger, "ER").destinations == ("research",)


def test_documents_go_where_their_sender_says_before_the_route(ledger: Ledger) -> None:
    assert address(make(senders=SENDERS), ledger, "ER", calling="ARCHIVE").destinations == (
        "research",
    )


def test_who_holds_an_earlier_report_gets_its_successor_whatever_the_route_says_now(
    ledger: Ledger,
) -> None:
    assert address(make(), ledger, "STUDY", held=("pacs",)).destinations == ("pacs", "research")


def test_back_to_the_sender_only_where_its_port_is_known(ledger: Ledger) -> None:
    settings = make(destinations={"back": {"kind": "sender", "ports": {"MOD1": 104}}}, routes={})
    assert address(settings, ledger, "HILUM", host="10.0.0.7").destinations == ("back",)
    for unknown in ({"host": ""}, {"host": "10.0.0.7", "calling": "MOD2"}):
        new = address(settings, ledger, "HILUM", **unknown)
        assert (new.destinations, new.withheld) == ((), {"back": "sender_unknown"})


def test_what_is_withheld_stands_in_the_log_with_what_to_do_and_nothing_of_the_patient(
    ledger: Ledger,
) -> None:
    settings = make(destinations={"back": {"kind": "sender", "ports": {"MOD1": 104}}}, routes={})
    with capture_logs() as lines:
        address(settings, ledger, "HILUM", host="10.0.0.7", calling="MOD2")
    (line,) = lines
    assert (line["event"], line["log_level"], line["destination"], line["reason"]) == (
        "document_withheld",
        "warning",
        "back",
        "sender_unknown",
    )
    assert (
        line["advice"]
        == "name its AE Title and port in destinations.back.ports; then restart and `hilum requeue"
        " deliver --destination back`"
    )
    assert set(line) == {
        "event",
        "log_level",
        "room",
        "study_instance_uid",
        "release",
        "document",
        "destination",
        "reason",
        "advice",
    }

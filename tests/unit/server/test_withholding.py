"""What a destination will not get by the settings, and why.

The sentence that a newcomer reads before the first study.
"""

from __future__ import annotations

from typing import Any

import pytest

from hilum.domain import Release
from hilum.settings import Settings
from hilum.withheld_reports import (
    BY_REASON,
    Subject,
    WithholdingCause,
    cause_of,
    in_place,
    refusals,
)
from tests.support.reports.results import make_release

TRAINED = make_release(name="trained", version="1", has_cam=True)
UNTRAINED = make_release(name="untrained", version="1", is_trained=False, has_cam=True)
WITHOUT_MAPS = make_release(name="plain", version="1", has_cam=False)
KNOWN = {item.id: item for item in (TRAINED, UNTRAINED, WITHOUT_MAPS)}


def found(
    *releases: Release, rollouts: tuple[dict[str, Any], ...] = (), **sections: Any
) -> list[WithholdingCause]:
    sections.setdefault("destinations", {"pacs": {}})
    settings = Settings.model_validate(
        {"models": {"releases": [item.id for item in releases]}, **sections}
    )
    return refusals(settings, in_place(settings, KNOWN, rollouts))


def said(refusals: list[WithholdingCause]) -> list[tuple[str, str, tuple[str, ...], bool]]:
    return [(item.destination, item.reason, item.of, item.is_all) for item in refusals]


def test_trained_releases_are_refused_nowhere() -> None:
    assert found(TRAINED) == []


def test_a_destination_that_gets_nothing_is_named_with_what_to_set() -> None:
    (refusal,) = found(UNTRAINED)
    assert said([refusal]) == [("pacs", "untrained_weights", ("untrained@1",), True)]
    assert refusal.words.startswith("gets nothing of untrained@1")
    assert "destinations.pacs.accept_untrained = true" in refusal.advice


def test_a_destination_that_gets_some_is_named_with_what_it_lacks() -> None:
    assert said(found(TRAINED, UNTRAINED)) == [
        ("pacs", "untrained_weights", ("untrained@1",), False)
    ]


def test_who_accepts_untrained_weights_gets_them() -> None:
    destinations = {"test": {"accept_untrained": True}, "pacs": {}}
    assert said(found(UNTRAINED, destinations=destinations)) == [
        ("pacs", "untrained_weights", ("untrained@1",), True)
    ]


def test_a_release_of_one_sender_counts_for_the_destinations_of_that_sender() -> None:
    destinations = {"pacs": {}, "lab": {}}
    senders = {"CR1": {"releases": ["untrained@1"], "destinations": ["lab"]}}
    assert said(found(TRAINED, destinations=destinations, senders=senders)) == [
        ("lab", "untrained_weights", ("untrained@1",), False)
    ]


def test_a_release_of_one_route_counts_for_the_destinations_of_that_route() -> None:
    sections = {
        "destinations": {"pacs": {}, "lab": {}},
        "receive": {"ae_titles": ["HILUM", "TRIAL"]},
        "routes": {
            "HILUM": {"destinations": ["pacs"]},
            "TRIAL": {"releases": ["untrained@1"], "destinations": ["lab"]},
        },
    }
    assert said(found(TRAINED, **sections)) == [
        ("lab", "untrained_weights", ("untrained@1",), True)
    ]


def test_a_destination_to_which_no_study_leads_is_named() -> None:
    sections = {
        "destinations": {"pacs": {}, "lab": {}},
        "routes": {"HILUM": {"destinations": ["pacs"]}},
    }
    (refusal,) = found(TRAINED, **sections)
    assert said([refusal]) == [("lab", "no_study", (), True)]
    assert refusal.advice == "name lab there, or take [destinations.lab] out"


@pytest.mark.parametrize("mode", ["shadow", "canary", "switch"])
def test_a_candidate_of_a_rollout_is_named_before_it_reports(mode: str) -> None:
    rollout = {
        "configured": "trained@1",
        "serving": "trained@1",
        "candidate": "untrained@1",
        "mode": mode,
        "state": "running",
    }
    assert said(found(TRAINED, rollouts=(rollout,))) == [
        ("pacs", "untrained_weights", ("untrained@1",), False)
    ]


def test_what_a_rollout_has_put_in_place_counts_and_what_the_settings_name_does_not() -> None:
    done = {"configured": "untrained@1", "serving": "trained@1", "candidate": None, "state": "done"}
    assert found(UNTRAINED, rollouts=(done,)) == []
    assert said(found(UNTRAINED, rollouts=({**done, "state": "closed"},))) == [
        ("pacs", "untrained_weights", ("untrained@1",), True)
    ]


def test_a_known_sender_without_a_port_gets_nothing_back() -> None:
    sections = {
        "destinations": {"back": {"kind": "sender", "ports": {"CR1": 104}}},
        "receive": {"calling_ae_titles": ["CR1", "CR2"]},
        "senders": {"CR3": {}},
    }
    (refusal,) = found(TRAINED, **sections)
    assert said([refusal]) == [("back", "sender_unknown", ("CR2", "CR3"), False)]
    assert refusal.advice == "name its AE Title and port in destinations.back.ports"


def test_heat_maps_that_nobody_draws_are_named() -> None:
    alone, beside = (
        {"pacs": {"documents": documents}} for documents in (["heatmap"], ["sr", "heatmap"])
    )
    assert found(TRAINED, destinations=alone) == []
    assert said(found(WITHOUT_MAPS, destinations=alone)) == [
        ("pacs", "no_heat_map", ("plain@1",), True)
    ]
    assert said(found(TRAINED, WITHOUT_MAPS, destinations=beside)) == [
        ("pacs", "no_heat_map", ("plain@1",), False)
    ]
    triage = found(TRAINED, destinations=alone, report={"intended_use": "triage"})
    assert said(triage) == [("pacs", "no_heat_map", (), True)]


def test_every_cause_says_why_and_what_to_do() -> None:
    for reason, cause in BY_REASON.items():
        assert cause.reason == reason
        assert all("{name}" in text for text in (cause.why, cause.advice))


def test_the_forecast_and_the_sending_agree() -> None:
    """One table decides both: what is named before is withheld, and nothing else is."""
    for release in (TRAINED, UNTRAINED):
        for accepts in (True, False):
            settings = Settings.model_validate(
                {
                    "models": {"releases": [release.id]},
                    "destinations": {"pacs": {"accept_untrained": accepts}},
                }
            )
            cause = cause_of(
                settings.destinations["pacs"], Subject(release.is_trained, "CR1", "10.0.0.1")
            )
            assert [item.reason for item in refusals(settings, in_place(settings, KNOWN, []))] == (
                [cause.reason] if cause else []
            )

"""The rules decide once, at the first image of a study, and its row keeps the decision."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest
from sqlalchemy import Row

from hilum.domain import Instance, Outcome, Priority, StudyJob
from hilum.receive.indexing.arrivals import arrivals_of
from hilum.services.rules.replay import replay
from hilum.settings import Settings
from hilum.store.admin.reanalyse import Reanalysis, ReanalysisRequest
from hilum.store.ledger import RecordOutcome, StudyDecided
from hilum.store.queries.views import LedgerViews
from hilum.store.schema.tables import instance, reading, result, study
from tests.support.ledger.rolling import Rolling
from tests.support.rules.studies import image, settings_with

URGENT = {
    "name": "chest",
    "when": {"StudyDescription": "*chest*"},
    "then": {"priority": "urgent", "quiet_seconds": 2.0, "destinations": ["pacs"]},
}
KEPT_OUT = {
    "name": "no consent",
    "when": {"Modality": "DX"},
    "then": {"not_analysed": True, "reason": "no consent for AI"},
}


def receive(rolling: Rolling, settings: Settings, *instances: Instance) -> list[RecordOutcome]:
    """Images arrive at a listener with these settings."""
    ledger = rolling.ledger
    return ledger.record(
        arrivals_of(instances, settings, ledger.known_studies, ledger.campaigns_of)
    )


def only_study(rolling: Rolling) -> Row[Any]:
    (found,) = rolling.rows(study)
    return found


def test_the_rule_of_the_first_image_stands_in_the_studys_row(rolling: Rolling) -> None:
    settings = settings_with(URGENT)
    receive(rolling, settings, image("1.1.1", "1.1", {"StudyDescription": "CHEST pa"}))

    found = only_study(rolling)
    assert (found.rule, found.priority) == ("chest", Priority.URGENT)
    assert found.quiet_until == found.first_received_at + 2.0
    assert found.rule_effect == {
        "priority": "urgent",
        "quiet_seconds": 2.0,
        "destinations": ["pacs"],
    }
    decided = rolling.ledger.known_studies(["1.1"])["1.1"].decision
    assert settings.rule_table is not None
    assert decided == settings.rule_table.rows[0].decision


def test_a_later_image_changes_nothing(rolling: Rolling) -> None:
    settings = settings_with(URGENT)
    receive(rolling, settings, image("1.1.1", "1.1", {"StudyDescription": "Chest"}))
    receive(rolling, settings, image("1.1.2", "1.1", {"StudyDescription": "Hand"}))

    assert only_study(rolling).rule == "chest"
    assert {row.priority for row in rolling.rows(reading)} == {Priority.URGENT}


def test_the_first_image_of_a_batch_decides(rolling: Rolling) -> None:
    batch = [
        image("1.1.1", "1.1", {"StudyDescription": "Hand"}),
        image("1.1.2", "1.1", {"StudyDescription": "Chest"}),
    ]
    receive(rolling, settings_with(URGENT), *batch)

    assert only_study(rolling).rule == "default"


@pytest.mark.parametrize("rules", [[], [{**URGENT, "name": "other", "then": {}}]])
def test_rules_that_change_meanwhile_change_nothing_of_the_study(
    rolling: Rolling, rules: list[Mapping[str, Any]]
) -> None:
    receive(rolling, settings_with(URGENT), image("1.1.1", "1.1", {"StudyDescription": "Chest"}))
    before = only_study(rolling)
    receive(rolling, settings_with(*rules), image("1.1.2", "1.1", {"StudyDescription": "Chest"}))

    after = only_study(rolling)
    assert (after.rule, after.rules_digest) == (before.rule, before.rules_digest)
    assert {row.priority for row in rolling.rows(reading)} == {Priority.URGENT}


def test_an_image_after_all_rules_were_taken_out_is_recorded(rolling: Rolling) -> None:
    bare = Settings.model_validate({"models": {"releases": ["chest@1"]}})
    receive(rolling, settings_with(URGENT), image("1.1.1", "1.1", {"StudyDescription": "Chest"}))

    receive(rolling, bare, image("1.1.2", "1.1", {"StudyDescription": "Chest"}))

    assert len(rolling.rows(instance)) == 2
    assert only_study(rolling).rule == "chest"


def test_without_rules_nothing_is_kept_and_the_ledger_is_not_asked(rolling: Rolling) -> None:
    bare = Settings.model_validate({"models": {"releases": ["chest@1"]}})

    def never(_: object) -> Any:
        raise AssertionError

    rolling.ledger.record(arrivals_of([image("1.1.1", "1.1", {})], bare, never))
    found = only_study(rolling)
    assert (found.rule, found.rules_digest, found.rule_effect) == (None, None, None)


def test_a_study_from_before_there_were_rules_is_decided_by_its_next_image(
    rolling: Rolling,
) -> None:
    bare = Settings.model_validate({"models": {"releases": ["chest@1"]}})
    receive(rolling, bare, image("1.1.1", "1.1", {"StudyDescription": "Chest"}))
    receive(rolling, settings_with(URGENT), image("1.1.2", "1.1", {"StudyDescription": "Chest"}))

    assert only_study(rolling).rule == "chest"


def test_of_two_listeners_with_one_new_study_the_faster_one_decides(rolling: Rolling) -> None:
    settings = settings_with(URGENT)
    slow = arrivals_of(
        [image("1.1.2", "1.1", {"StudyDescription": "Chest"})], settings, lambda _: {}
    )
    receive(rolling, settings, image("1.1.1", "1.1", {"StudyDescription": "Hand"}))

    with pytest.raises(StudyDecided):
        rolling.ledger.record(slow)
    assert len(rolling.rows(instance)) == 1, "nothing is recorded by halves"
    receive(rolling, settings, slow[0].instance)
    assert only_study(rolling).rule == "default"
    assert {row.priority for row in rolling.rows(reading)} == {Priority.LIVE}


def test_of_two_listeners_with_a_study_from_before_the_rules_the_faster_one_decides(
    rolling: Rolling,
) -> None:
    settings = settings_with(URGENT)
    bare = Settings.model_validate({"models": {"releases": ["chest@1"]}})
    receive(rolling, bare, image("1.1.1", "1.1", {}))
    ledger = rolling.ledger
    late = image("1.1.3", "1.1", {"StudyDescription": "Chest"})
    slow = arrivals_of([late], settings, ledger.known_studies)
    receive(rolling, settings, image("1.1.2", "1.1", {"StudyDescription": "Hand"}))

    with pytest.raises(StudyDecided):
        ledger.record(slow)
    receive(rolling, settings, late)
    assert only_study(rolling).rule == "default"
    assert {row.priority for row in rolling.rows(reading)} == {Priority.LIVE}


def test_a_study_that_a_rule_keeps_from_releases_is_answered_as_not_analysed(
    rolling: Rolling,
) -> None:
    settings = settings_with(KEPT_OUT)
    receive(
        rolling,
        settings,
        image("1.1.1", "1.1", {"Modality": "DX"}),
        image("1.1.2", "1.1", {"Modality": "DX"}),
    )
    assert rolling.claim("analyse") == []
    rolling.close_studies()

    assert {(row.state, row.reason, row.detail) for row in rolling.rows(reading)} == {
        ("not_analysed", "not_analysed_by_rule", "no consent for AI")
    }
    (made,) = rolling.rows(result)
    assert (made.outcome, made.outcome_reason) == (Outcome.NOT_ANALYSED, "not_analysed_by_rule")


def test_a_corrected_header_does_not_open_its_readings(rolling: Rolling) -> None:
    settings = settings_with(KEPT_OUT)
    receive(rolling, settings, image("1.1.1", "1.1", {"Modality": "DX"}))
    (outcome,) = receive(
        rolling, settings, image("1.1.1", "1.1", {"Modality": "CR"}, digest="another")
    )

    assert outcome is RecordOutcome.HEADER_REVISION
    assert rolling.claim("analyse") == []
    assert only_study(rolling).rule == "no consent"


def test_requeuing_everything_leaves_it_out_unless_it_is_named(rolling: Rolling) -> None:
    receive(rolling, settings_with(KEPT_OUT), image("1.1.1", "1.1", {"Modality": "DX"}))

    assert rolling.ledger.requeue("analyse") == 0
    assert rolling.ledger.requeue("analyse", study_uid="1.1") == 1


def test_an_archive_that_is_read_again_leaves_it_out_unless_it_is_named(
    rolling: Rolling,
) -> None:
    receive(rolling, settings_with(KEPT_OUT), image("1.1.1", "1.1", {"Modality": "DX"}))
    rolling.close_studies()

    with closing(Reanalysis(rolling.ledger.url, rolling.clock)) as opened:
        found = {
            named: sum(
                looked.count.studies
                for looked in opened.look(ReanalysisRequest("chest@2", named), opened.last_row())
            )
            for named in ((), ("1.1",))
        }
    assert found == {(): 0, ("1.1",): 1}


def test_the_assembler_and_the_dispatcher_read_the_decision(rolling: Rolling) -> None:
    receive(rolling, settings_with(URGENT), image("1.1.1", "1.1", {"StudyDescription": "Chest"}))
    rolling.read()
    rolling.clock.now += 100.0
    (job,) = rolling.claim("assemble")

    assert isinstance(job, StudyJob)
    assert job.study.decision is not None
    assert job.study.decision.rule == "chest"
    other = settings_with({**URGENT, "then": {"destinations": ["research"]}})
    assert other.handling(job.study.decision).destinations == ("pacs",)


def test_a_replay_names_what_other_rules_would_change(rolling: Rolling) -> None:
    settings = settings_with(URGENT)
    for number, text in enumerate(("Chest", "chest pa", "Hand"), 1):
        uid = f"1.{number}"
        receive(rolling, settings, image(f"{uid}.1", uid, {"StudyDescription": text}))
    other = settings_with({**URGENT, "when": {"StudyDescription": "chest"}})

    with closing(LedgerViews(rolling.ledger.url)) as views:
        same = replay(views, settings, settings.rule_table, 10)
        found = replay(views, other, other.rule_table, 10)
        newest = replay(views, other, other.rule_table, 1)
        none = replay(views, other, None, 10)
        first, last = views.rule_matches(["chest", "default", "never"])

    assert (same.studies, same.unchanged, same.changes) == (3, 3, [])
    assert (found.studies, found.unchanged, newest.unchanged) == (3, 2, 1)
    (change,) = found.changes
    assert (change.was, change.would_be, change.studies) == ("chest", "default", 1)
    assert change.examples == ["1.2"]
    assert change.effects == {
        "priority": ("urgent", None),
        "destinations": (("pacs",), None),
        "quiet_seconds": (2.0, None),
    }
    assert {item.was for item in none.changes} == {"chest", "default"}
    assert first is not None
    assert set(last) == {"chest", "default"}

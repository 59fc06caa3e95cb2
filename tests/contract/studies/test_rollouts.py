"""Rollouts on the ledger, the same on SQLite and on a real PostgreSQL.

Who reads a study, and what a shadow may never touch.
"""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import delete, event

from hilum.domain import Advance, ReadingJob, ReadingState, RolloutMode, RolloutState
from hilum.store.admin.erase import Erasure
from hilum.store.archive.archive import Archive
from hilum.store.ledger import RecordOutcome
from hilum.store.queries.views import LedgerViews
from hilum.store.rollouts import reassign
from hilum.store.rollouts.manifests import KeptManifest
from hilum.store.rollouts.rollouts import CannotRollOut, RolloutRequest, Rollouts
from hilum.store.schema.tables import (
    assignment,
    comparison,
    document,
    reading,
    release_manifest,
    result,
    rollout_event,
    study,
)
from tests.support.ledger.database import engine_of, statements, transaction
from tests.support.ledger.rolling import CONFIGURED, Rolling, by_study, kept

SHADOW, SWITCH, HALF = (
    RolloutRequest(RolloutMode.SHADOW),
    RolloutRequest(RolloutMode.SWITCH),
    RolloutRequest(RolloutMode.CANARY, 0.5),
)


def running(rolling: Rolling, order: RolloutRequest, candidate: str = "chest@2") -> None:
    """An order that an analyser has confirmed."""
    rolling.rollouts.start(CONFIGURED, kept(candidate), order, "a person")
    rolling.rollouts.confirm("chest", candidate, "analyser", kept(candidate).digest)


def readers(rolling: Rolling) -> dict[str, set[str]]:
    """Releases whose readings are reported, by study."""
    return dict(by_study(rolling.rows(reading, is_shadow=False), "release"))


def test_without_a_rollout_the_settings_decide_and_nothing_is_written(rolling: Rolling) -> None:
    rolling.receive("1.2", 1)
    assert readers(rolling) == {"1.2": {"chest@1"}}
    assert rolling.rows(assignment) == []


def test_until_an_analyser_has_proved_it_a_candidate_gets_nothing(rolling: Rolling) -> None:
    rolling.rollouts.start(CONFIGURED, kept("chest@2"), SWITCH, "a person")
    rolling.receive("1.2", 1)
    rolling.rollouts.refuse("chest", "chest@2", "wrong answers", "analyser")
    rolling.receive("1.3", 1)
    assert readers(rolling) == {"1.2": {"chest@1"}, "1.3": {"chest@1"}}
    assert rolling.rollouts.find("chest").problem == "wrong answers"


def test_a_switch_is_for_new_studies_and_the_old_release_finishes_its_own(rolling: Rolling) -> None:
    rolling.receive("1.1", 1)  # before there was any rollout
    rolling.rollouts.start(CONFIGURED, kept("chest@2"), SWITCH, "a person")
    rolling.receive("1.2", 1)  # while it is being loaded
    rolling.rollouts.confirm("chest", "chest@2", "analyser", kept("chest@2").digest)
    for name in ("1.1", "1.2", "1.3"):
        rolling.receive(name, 2)
    assert readers(rolling) == {"1.1": {"chest@1"}, "1.2": {"chest@1"}, "1.3": {"chest@2"}}
    assert sorted(rolling.read()) == ["chest@1"] * 4 + ["chest@2"]
    rolling.close_studies()
    assert sorted(rolling.report()) == [("1.1", "chest@1"), ("1.2", "chest@1"), ("1.3", "chest@2")]


def test_rollback_is_for_new_studies_and_a_late_image_is_read_as_its_study_was(
    rolling: Rolling,
) -> None:
    running(rolling, SWITCH)
    rolling.receive("1.1", 1)
    rolling.rollouts.roll_back("chest", "a person")
    rolling.receive("1.1", 2)
    rolling.receive("1.2", 1)
    assert readers(rolling) == {"1.1": {"chest@2"}, "1.2": {"chest@1"}}
    assert rolling.rollouts.is_assigned("1.1", "chest@2")
    assert rolling.rollouts.has_open_readings("chest@2")


def test_a_rollback_can_take_back_what_is_not_reported_yet(rolling: Rolling) -> None:
    running(rolling, SWITCH)
    for name in ("1.1", "1.2", "1.3"):
        rolling.receive(name, 1)
    rolling.read(limit=1)
    rolling.close_studies()
    assert rolling.report() == [("1.1", "chest@2")]
    rolling.receive("1.2", 2)
    (held, *_) = rolling.claim("analyse", 1)
    rolling.rollouts.roll_back("chest", "a person", is_pending=True)
    assert rolling.ledger.advance(
        "analyse", [(held.lease, Advance(ReadingState.ANALYSED, {"logits": [9.0]}))]
    ) == [False]
    rolling.receive("1.1", 2)
    rolling.receive("1.3", 2)
    assert readers(rolling) == {"1.1": {"chest@2"}, "1.2": {"chest@1"}, "1.3": {"chest@1"}}
    assert {row.study_instance_uid: row.open_readings for row in rolling.rows(study)} == {
        "1.1": 1,
        "1.2": 2,
        "1.3": 2,
    }
    assert len(rolling.read()) == 5
    rolling.close_studies()
    assert sorted(rolling.report()) == [("1.1", "chest@2"), ("1.2", "chest@1"), ("1.3", "chest@1")]


def test_many_studies_are_taken_back_some_at_a_time_and_a_step_back_that_fails_is_repeated(
    rolling: Rolling, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reassign, "TOGETHER", 1)
    running(rolling, SWITCH)
    for name in ("1.1", "1.2", "1.3"):
        rolling.receive(name, 1)

    def fail(*call: Any) -> None:
        if call[2].startswith("UPDATE rollout"):
            raise OSError("killed")

    event.listen(engine_of(rolling.rollouts), "before_cursor_execute", fail)
    with pytest.raises(OSError, match="killed"):
        rolling.rollouts.roll_back("chest", "a person", is_pending=True)
    event.remove(engine_of(rolling.rollouts), "before_cursor_execute", fail)
    assert readers(rolling) == {"1.1": {"chest@1"}, "1.2": {"chest@1"}, "1.3": {"chest@2"}}
    rolling.receive("1.4", 1)
    rolling.rollouts.roll_back("chest", "a person", is_pending=True)
    assert set(by_study(rolling.rows(reading), "release")) == {"1.1", "1.2", "1.3", "1.4"}
    assert all(names == {"chest@1"} for names in readers(rolling).values())
    assert [row.detail for row in rolling.rows(rollout_event, verb="rollback")] == [
        "2 studies taken back from chest@2"
    ]


def test_what_another_shadow_has_read_is_compared_with_the_release_that_took_the_study_back(
    rolling: Rolling,
) -> None:
    running(rolling, SWITCH)
    running(rolling, SHADOW, "chest@3")
    rolling.receive("1.1", 1)
    rolling.rollouts.roll_back("chest", "a person")
    rolling.rollouts.roll_back("chest", "a person", is_pending=True)
    rolling.read()
    rolling.close_studies()
    assert rolling.report() == [("1.1", "chest@1")]
    rolling.clock.now += 3601
    assert rolling.compare() == 1
    assert [(row.release, row.shadow, row.state) for row in rolling.rows(comparison)] == [
        ("chest@1", "chest@3", "compared")
    ]


def test_a_study_is_taken_back_by_a_release_that_has_read_it_along(
    rolling: Rolling, ledger_url: str
) -> None:
    running(rolling, SHADOW)
    rolling.receive("1.1", 1)
    assert rolling.read("chest@2") == ["chest@2"]
    rolling.rollouts.promote("chest", SWITCH, "a person")
    running(rolling, SWITCH, "chest@1")
    rolling.rollouts.roll_back("chest", "a person", is_pending=True)
    assert readers(rolling) == {"1.1": {"chest@2"}}
    assert rolling.read() == ["chest@2"]
    rolling.close_studies()
    assert rolling.report() == [("1.1", "chest@2")]
    views = LedgerViews(ledger_url)
    found = views.study("1.1")
    views.close()
    assert found is not None
    assert [item["release"] for item in found["results"]] == ["chest@2"], (
        "and it is shown as what was reported"
    )


def test_a_canary_reads_its_share_and_a_larger_share_keeps_the_smaller(rolling: Rolling) -> None:
    running(rolling, RolloutRequest(RolloutMode.CANARY, 0.2))
    names = [f"1.2.{number}" for number in range(60)]
    for name in names:
        rolling.receive(name, 1)
    first = {name for name, said in readers(rolling).items() if said == {"chest@2"}}
    assert 3 <= len(first) <= 24
    rolling.rollouts.promote("chest", HALF, "a person")
    for name in names:
        rolling.receive(name, 2)
        rolling.receive(f"{name}.0", 1)
    assert {name for name in names if readers(rolling)[name] == {"chest@2"}} == first, (
        "a study keeps its release"
    )
    assert all(len(said) == 1 for said in readers(rolling).values())


def test_a_shadow_reads_along_last_and_the_study_does_not_wait_for_it(rolling: Rolling) -> None:
    running(rolling, SHADOW)
    rolling.receive("1.1", 1)
    (first,) = rolling.claim("analyse", 1)
    assert isinstance(first, ReadingJob)
    assert first.release == "chest@1", "it is claimed alone: a shadow is no sibling"
    rolling.ledger.retry("analyse", first.lease, "", 0.0)
    assert rolling.read("chest@1") == ["chest@1"]
    rolling.close_studies()
    assert rolling.report() == [("1.1", "chest@1")]
    assert rolling.compare() == 0
    assert rolling.read() == ["chest@2"]
    assert rolling.rows(study)[0].state == "closed"
    assert rolling.compare() == 1
    shadow, reported = (rolling.rows(result, release=name)[0] for name in ("chest@2", "chest@1"))
    assert (shadow.state, shadow.is_current, reported.state, reported.is_current) == (
        "shadow",
        False,
        "reported",
        True,
    )
    assert rolling.report() == []
    assert [row.result_id for row in rolling.rows(document)] == [reported.id]


def test_a_shadow_that_reads_first_waits_for_what_is_reported(rolling: Rolling) -> None:
    running(rolling, SHADOW)
    rolling.receive("1.1", 1)
    assert sorted(rolling.read()) == ["chest@1", "chest@2"]
    assert rolling.compare() == 0, "the quiet period runs"
    rolling.close_studies()
    assert rolling.compare() == 1


def test_what_both_say_is_kept_and_counted(rolling: Rolling) -> None:
    rolling.says["chest@2"] = (-2.0, -1.25, 2.5, 3.0, -0.1, 5.0)
    running(rolling, SHADOW)
    for number in range(3):
        rolling.receive(f"1.{number}", 1)
    rolling.read()
    rolling.close_studies()
    assert rolling.compare() == 3
    views = LedgerViews(rolling.ledger.url, rolling.clock)
    compared = views.compared("chest@1", "chest@2", 2)
    assert compared.states == {"compared": 3}
    assert len(compared.said) == 2
    assert compared.said[0]["effusion"][2:] == ["present", "absent"]
    assert "masked" not in compared.said[0]
    assert views.last_compared({"chest@1", "chest@2"}) == ("chest@1", "chest@2")
    assert views.last_compared({"chest@1", "chest@3"}) is None
    views.close()


def test_a_late_image_is_compared_again_and_the_first_shadow_result_is_superseded(
    rolling: Rolling,
) -> None:
    running(rolling, SHADOW)
    for number in (1, 2):
        rolling.receive("1.1", number)
        rolling.read()
        rolling.close_studies()
        assert rolling.compare() == 1
    shadows = rolling.rows(result, release="chest@2")
    assert [(row.state, row.revision) for row in shadows] == [("superseded", 1), ("shadow", 2)]
    assert shadows[1].supersedes_id == shadows[0].id


def test_a_corrected_header_is_read_again_by_both_and_waited_for_once(rolling: Rolling) -> None:
    running(rolling, SHADOW)
    rolling.receive("1.1", 1)
    rolling.read()
    rolling.close_studies()
    rolling.compare()
    assert rolling.receive("1.1", 1, header_revision=2) is RecordOutcome.HEADER_REVISION
    assert rolling.rows(study)[0].open_readings == 1
    rolling.read("chest@1")
    assert rolling.rows(study)[0].open_readings == 0
    rolling.close_studies()
    assert rolling.compare() == 0
    rolling.read()
    assert rolling.compare() == 1


@pytest.mark.parametrize("state", [ReadingState.FAILED, ReadingState.NOT_ANALYSED])
def test_a_shadow_that_fails_changes_nothing_that_is_reported(
    rolling: Rolling, state: ReadingState
) -> None:
    running(rolling, SHADOW)
    rolling.receive("1.1", 1)
    rolling.read("chest@1")
    (job,) = rolling.claim("analyse")
    rolling.ledger.advance("analyse", [(job.lease, Advance(state, {"reason": "too_large"}))])
    assert rolling.rows(study)[0].open_readings == 0
    rolling.close_studies()
    assert rolling.report() == [("1.1", "chest@1")]
    assert rolling.compare() == 1
    assert rolling.rows(result, release="chest@2")[0].outcome == "not_analysed"


def test_requeue_and_completion_wait_for_no_shadow(rolling: Rolling) -> None:
    running(rolling, SHADOW)
    rolling.receive("1.1", 1)
    done = rolling.ledger.complete("1.1", is_waiting=False)
    assert done is not None
    assert (done.ended_readings, done.waits_for) == (1, 0)
    rolling.ledger.requeue("analyse", study_uid="1.1")
    assert rolling.rows(study)[0].open_readings == 1
    assert sorted(rolling.read()) == ["chest@1", "chest@2"]
    assert rolling.rows(study)[0].open_readings == 0


def test_a_shadow_that_was_stopped_reads_no_late_images(rolling: Rolling) -> None:
    running(rolling, SHADOW)
    rolling.receive("1.1", 1)
    rolling.rollouts.stop("chest", "a person")
    rolling.receive("1.1", 2)
    rolling.receive("1.2", 1)
    assert len(rolling.rows(reading, is_shadow=True)) == 1
    assert rolling.rows(comparison)[0].shadow == "chest@2"


def test_erasure_leaves_no_assignment_and_no_score(rolling: Rolling, tmp_path: object) -> None:
    running(rolling, SHADOW)
    rolling.receive("1.1", 1)
    rolling.read()
    rolling.close_studies()
    rolling.compare()
    erasure = Erasure(rolling.ledger.url, Archive(tmp_path), rolling.clock)  # type: ignore[arg-type]
    erasure.erase_study("1.1")
    erasure.close()
    assert rolling.rows(assignment) == []
    (left,) = rolling.rows(comparison)
    assert (left.state, left.content) == ("erased", None)
    assert left.study_instance_uid != "1.1"
    assert {row.state for row in rolling.rows(result)} == {"erased"}


def test_settings_that_name_another_release_end_a_rollout_and_keep_studies_with_their_release(
    rolling: Rolling,
) -> None:
    running(rolling, SWITCH)
    rolling.receive("1.1", 1)
    (closed,) = rolling.rollouts.close_stale(["chest@3"])
    assert (closed.state, closed.candidate) == (RolloutState.CLOSED, None)
    assert "chest@3" in (closed.problem or "")
    assert rolling.rollouts.close_stale(["chest@3"]) == []
    rolling.receive("1.1", 2, configured="chest@3")
    rolling.receive("1.2", 1, configured="chest@3")
    assert readers(rolling) == {"1.1": {"chest@2"}, "1.2": {"chest@3"}}


def test_every_change_is_remembered_with_who_made_it(rolling: Rolling) -> None:
    running(rolling, HALF)
    rolling.rollouts.promote("chest", SWITCH, "somebody else")
    rolling.rollouts.roll_back("chest", "a person")
    views = LedgerViews(rolling.ledger.url, rolling.clock)
    events = [
        (item["verb"], item["state"], item["serving"], item["changed_by"])
        for item in views.rollout_events("chest")
    ]
    views.close()
    assert events == [
        ("rollback", "done", "chest@1", "a person"),
        ("promote", "switched", "chest@2", "somebody else"),
        ("confirm", "running", "chest@1", "analyser"),
        ("start", "loading", "chest@1", "a person"),
    ]


def test_of_two_analysers_the_second_confirms_nothing(rolling: Rolling) -> None:
    running(rolling, HALF)
    with pytest.raises(CannotRollOut):
        rolling.rollouts.confirm("chest", "chest@2", "another analyser", kept("chest@2").digest)
    with pytest.raises(CannotRollOut, match="no candidate"):
        rolling.rollouts.confirm("chest", "chest@3", "another analyser", kept("chest@3").digest)
    assert rolling.rollouts.find("chest").state is RolloutState.RUNNING


def test_of_two_who_begin_with_an_alias_at_once_the_second_is_told_why_not(
    rolling: Rolling, ledger_url: str
) -> None:
    """Both have looked before either writes: on PostgreSQL there is no row to lock yet.

    SQLite lets the second look only then.
    """
    both_have_looked = threading.Barrier(2)

    def wait(*called: object) -> None:
        if str(called[2]).startswith("INSERT INTO rollout "):
            with contextlib.suppress(threading.BrokenBarrierError):
                both_have_looked.wait(0.5)

    def start(rollouts: Rollouts, candidate: str) -> str:
        event.listen(engine_of(rollouts), "before_cursor_execute", wait)
        try:
            return rollouts.start(CONFIGURED, kept(candidate), SWITCH, "a person").candidate or ""
        except CannotRollOut as error:
            return str(error)

    with (
        contextlib.closing(Rollouts(ledger_url, rolling.clock)) as other,
        ThreadPoolExecutor(2) as people,
    ):
        said = set(people.map(start, (rolling.rollouts, other), ("chest@2", "chest@3")))
    winner = rolling.rollouts.find("chest").candidate
    assert said == {
        winner,
        f"{winner} is being rolled out already: promote it, roll it back or stop first",
    }
    assert len(rolling.rows(rollout_event)) == 1


def test_images_of_one_study_that_listeners_record_at_once_have_one_reader(
    rolling: Rolling, ledger_url: str
) -> None:
    running(rolling, HALF)
    stop = threading.Event()

    def toggle() -> None:
        """Somebody who cannot make up their mind, so that both answers are about.

        SQLite's lock is not fair: without a pause the listeners would seldom get it.
        """
        person = Rollouts(ledger_url, rolling.clock)
        while not stop.wait(0.005):
            person.promote("chest", SWITCH, "a person")
            person.roll_back("chest", "a person")
            person.start(CONFIGURED, kept("chest@2"), HALF, "a person")
            person.confirm("chest", "chest@2", "analyser", kept("chest@2").digest)
        person.close()

    def listen(numbers: range) -> None:
        own = Rolling(ledger_url)
        for number in numbers:
            for name in range(8):
                own.receive(f"1.2.{name}", number)
        own.close()

    listeners = [
        threading.Thread(target=listen, args=(range(start, start + 3),)) for start in (0, 10, 20)
    ]
    person = threading.Thread(target=toggle)
    for thread in (*listeners, person):
        thread.start()
    for thread in listeners:
        thread.join()
    stop.set()
    person.join()
    assert {name: len(said) for name, said in readers(rolling).items()} == {
        f"1.2.{name}": 1 for name in range(8)
    }
    assert len(rolling.rows(reading)) == 8 * 9
    assert {row.open_readings for row in rolling.rows(study)} == {9}


def test_a_ledger_without_rollouts_is_asked_once_a_batch(rolling: Rolling) -> None:
    with statements(rolling.ledger) as asked:
        rolling.receive("1.1", 1)
        rolling.receive("1.1", 2)
    assert sum("FROM rollout" in text for text in asked) <= 2
    assert not any("assignment" in text or "comparison" in text for text in asked)


FIRST, EDITED = (
    KeptManifest("chest@2", "d1", "version = 2"),
    KeptManifest("chest@2", "d2", "version = 2 # and more"),
)


def test_what_was_proved_is_refused_once_it_is_something_else(rolling: Rolling) -> None:
    rollouts = rolling.rollouts
    assert rollouts.manifest("chest@2") is None
    rollouts.start(CONFIGURED, FIRST, SHADOW, "a person")
    assert rollouts.manifest("chest@2") == FIRST
    rollouts.stop("chest", "a person")
    rollouts.start(CONFIGURED, EDITED, SHADOW, "a person")
    with pytest.raises(CannotRollOut, match="started again, while it was being proved"):
        rollouts.confirm("chest", "chest@2", "analyser", FIRST.digest)
    assert rollouts.find("chest").state is RolloutState.LOADING
    assert (
        rollouts.confirm("chest", "chest@2", "analyser", EDITED.digest).state
        is RolloutState.RUNNING
    )
    rollouts.stop("chest", "a person")
    with pytest.raises(CannotRollOut, match="give the edited one a version of its own"):
        rollouts.start(CONFIGURED, FIRST, SHADOW, "a person")
    assert rollouts.find("chest").state is RolloutState.DONE
    assert rollouts.start(CONFIGURED, EDITED, SHADOW, "a person").state is RolloutState.LOADING


def test_a_server_that_starts_renews_what_the_settings_name_and_nothing_else(
    rolling: Rolling,
) -> None:
    rollouts = rolling.rollouts
    configured = KeptManifest(CONFIGURED, "c1", "version = 1", is_proved=True)
    other = KeptManifest("lung@1", "l1", "version = 1", is_proved=True)
    running(rolling, SWITCH)
    with transaction(rolling.ledger) as connection:
        connection.execute(delete(release_manifest))  # by a Hilum that kept nothing
    seen = KeptManifest("chest@2", "d1", "version = 2", is_proved=True)
    assert rollouts.begin([configured, seen, other], [CONFIGURED]) == []
    assert [rollouts.manifest(name) for name in (CONFIGURED, "chest@2", "lung@1")] == [
        configured,
        seen,
        None,
    ]
    changed = [
        KeptManifest(item.release, "new", item.text, is_proved=True) for item in (configured, seen)
    ]
    assert rollouts.begin(changed, [CONFIGURED]) == [CONFIGURED]
    assert [rollouts.manifest(name) for name in (CONFIGURED, "chest@2")] == [changed[0], seen]

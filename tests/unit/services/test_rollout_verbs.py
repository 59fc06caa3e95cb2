"""What a person may order of rollouts, by REST and by command, and what is refused with what to do."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hilum.assemble.agreement import agreements, kappa
from hilum.cli import app
from hilum.services.releases.rollouts import RolloutVerbs
from hilum.settings import Models, Settings, Site
from hilum.store.queries.views import LedgerViews
from hilum.store.rollouts.rollouts import Rollouts
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.ledger.rolling import Rolling
from tests.support.models.releases import Tiny, make_tiny
from tests.support.models.versions import add_version
from tests.support.server.api_client import TOKEN, Rig, open_rig


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """chest@1 and chest@2, built, and chest@3, not built."""
    made = make_tiny(tmp_path_factory.mktemp("tiny"), name="chest")
    add_version(made, "2")
    add_version(made, "3", is_built=False)
    return made


@pytest.fixture
def url(tmp_path: Path) -> str:
    (tmp_path / "state").mkdir()
    return migrated_sqlite(tmp_path / "state")


@pytest.fixture
def rig(tmp_path: Path, tiny: Tiny, url: str) -> Iterator[Rig]:
    models = Models(manifests=tiny.manifests_dir, built=tiny.built_dir, releases=("chest@1",))
    settings = Settings(site=Site(state_dir=tmp_path / "state"), models=models)
    with (
        contextlib.closing(Rollouts(url)) as rollouts,
        contextlib.closing(LedgerViews(url)) as views,
    ):
        verbs = RolloutVerbs(settings, rollouts, views)
        with open_rig(tmp_path, url=url, rollouts=verbs) as opened:
            yield opened


def post(
    rig: Rig, verb: str, status: int = 200, alias: str = "chest", **order: Any
) -> dict[str, Any]:
    response = rig.client.post(f"/api/v1/rollouts/{alias}/{verb}", json=order)
    assert response.status_code == status, response.text
    found: dict[str, Any] = response.json()
    return found


def confirm(url: str, candidate: str = "chest@2") -> None:
    with contextlib.closing(Rollouts(url)) as rollouts:
        found = rollouts.manifest(candidate)
        assert found is not None
        rollouts.confirm("chest", candidate, "analyser", found.digest)


def test_the_whole_way_by_rest(rig: Rig, url: str) -> None:
    (before,) = rig.get("/api/v1/rollouts")["rollouts"]
    assert (before["alias"], before["serving"], before["state"], before["changed_at"]) == (
        "chest",
        "chest@1",
        "done",
        None,
    )
    assert post(rig, "start", release="chest@2", mode="shadow")["state"] == "loading"
    assert post(rig, "promote", 409)["detail"].startswith("no candidate is running")
    confirm(url)
    assert post(rig, "promote", fraction=0.25)["fraction"] == 0.25
    assert post(rig, "promote")["serving"] == "chest@2"
    assert post(rig, "rollback")["serving"] == "chest@1"
    assert "no way back" in post(rig, "rollback", 409)["detail"]
    assert "nothing is going on" in post(rig, "stop", 409)["detail"]
    found = rig.get("/api/v1/rollouts/chest")
    assert [item["verb"] for item in found["events"]] == [
        "rollback",
        "promote",
        "promote",
        "confirm",
        "start",
    ]
    assert found["comparison"] is None
    rig.get("/api/v1/rollouts/lung", 404)


@pytest.mark.parametrize(
    ("alias", "order", "said"),
    [
        ("lung", {"release": "lung@2"}, "they name releases of chest"),
        ("chest", {"release": "chest@9"}, "has no manifest"),
        ("chest", {"release": "chest@3"}, "hilum models build chest@3"),
        ("chest", {"release": "chest@1"}, "reads new studies already"),
        ("chest", {"release": "chest@2", "mode": "canary"}, "a canary needs one"),
        (
            "chest",
            {"release": "chest@2", "mode": "shadow", "fraction": 0.5},
            "a fraction belongs to a canary",
        ),
    ],
)
def test_what_cannot_be_rolled_out_is_refused_with_what_to_do(
    rig: Rig, alias: str, order: dict[str, Any], said: str
) -> None:
    assert said in post(rig, "start", 409, alias, **order)["detail"]
    assert rig.get("/api/v1/rollouts")["rollouts"][0]["serving"] == "chest@1"


def test_a_rollout_names_who_started_it_as_its_row_of_the_audit_does(rig: Rig) -> None:
    post(rig, "start", release="chest@2", mode="shadow")
    found = rig.get("/api/v1/rollouts/chest")
    (row,) = rig.get("/api/v1/audit", verb="start_rollout")["rows"]
    assert found["changed_by"] == found["events"][0]["changed_by"] == row["actor"] == "local"
    assert (row["thing"], row["name"], row["detail"], row["outcome"]) == (
        "alias",
        "chest",
        "chest@2 shadow",
        "done",
    )


def test_a_release_that_reads_already_is_no_candidate(tiny: Tiny, url: str, tmp_path: Path) -> None:
    models = Models(
        manifests=tiny.manifests_dir, built=tiny.built_dir, releases=("chest@1", "chest@2")
    )
    settings = Settings(site=Site(state_dir=tmp_path / "state"), models=models)
    with open_rig(
        tmp_path, url=url, rollouts=RolloutVerbs(settings, Rollouts(url), LedgerViews(url))
    ) as rig:
        assert "leave one of them" in post(rig, "start", 409, release="chest@2")["detail"]


@pytest.mark.parametrize("verb", ["start", "promote", "rollback", "stop"])
def test_verbs_are_guarded_as_all_that_change_something(tmp_path: Path, verb: str) -> None:
    with open_rig(tmp_path, token=TOKEN) as rig:
        path = f"/api/v1/rollouts/chest/{verb}"
        assert rig.client.post(path).status_code == 401
        foreign = {"Authorization": f"Bearer {TOKEN}", "Sec-Fetch-Site": "cross-site"}
        assert rig.client.post(path, headers=foreign).status_code == 403


def test_a_study_shows_its_shadow_apart(rig: Rig, url: str) -> None:
    post(rig, "start", release="chest@2", mode="shadow")
    confirm(url)
    with contextlib.closing(Rolling(url)) as rolling:
        rolling.says["chest@2"] = (-2.0, -1.25, 2.5, 3.0, -0.1, 5.0)
        rolling.receive("1.2.3", 1)
        rolling.read()
        rolling.close_studies()
        assert rolling.compare() == 1
    found = rig.get("/api/v1/studies/1.2.3")
    assert [(item["release"], item["is_shadow"]) for item in found["images"][0]["readings"]] == [
        ("chest@1", False),
        ("chest@2", True),
    ]
    assert [item["release"] for item in found["results"]] == ["chest@1"]
    assert [
        (item["release"], item["state"], item["is_current"]) for item in found["shadow_results"]
    ] == [("chest@2", "shadow", False)]
    (listed,) = rig.get("/api/v1/studies")["studies"]
    assert [item["release"] for item in listed["results"]] == ["chest@1"]
    comparison = rig.get("/api/v1/rollouts/chest")["comparison"]
    assert (comparison["release"], comparison["shadow"], comparison["compared"]) == (
        "chest@1",
        "chest@2",
        1,
    )
    flips = {item["finding"]: (item["decided"], item["flips"]) for item in comparison["findings"]}
    assert flips["effusion"] == (1, 1)
    assert flips["pneumothorax"] == (1, 0)
    assert flips["nodule"] == (0, 0), "a label without operating point decides nothing"
    page = rig.client.get("/studies/1.2.3").text
    assert "chest@2 (shadow)" in page
    assert "Shadow, not reported" in page


@pytest.fixture
def config(tiny: Tiny, tmp_path: Path, url: str) -> Path:
    file = tmp_path / "hilum.toml"
    file.write_text(
        f'[site]\nstate_dir = "{tmp_path / "state"}"\n[models]\nmanifests ='
        f' "{tiny.manifests_dir}"\nbuilt = "{tiny.built_dir}"\nreleases ='
        f' ["chest@1"]\n[ledger]\nurl = "{url}"\n'
    )
    return file


def test_an_archive_is_read_by_the_candidate(config: Path, url: str) -> None:
    def hilum(*words: str, status: int = 0) -> str:
        answer = CliRunner().invoke(app, [*words, "--config", str(config)])
        assert answer.exit_code == status, answer.output
        return answer.output

    with contextlib.closing(Rolling(url)) as rolling:
        for study in ("1.2", "1.3"):
            rolling.receive(study, 1)
        rolling.read()
        rolling.close_studies()
        rolling.report()
        rolling.receive("1.4", 1)
        assert "`hilum rollout start ALIAS chest@2 --shadow`" in hilum(
            "reanalyse", "chest@2", status=2
        )
        hilum("rollout", "start", "chest", "chest@2", "--shadow")
        assert "is not proved yet" in hilum("reanalyse", "chest@2", status=2)
        confirm(url)
        assert hilum("reanalyse", "chest@2", "--shadow", "--dry-run").startswith(
            "2 images of 2 studies would be due for chest@2 as a shadow\n"
        )
        assert hilum("reanalyse", "chest@2", "--shadow", "--study", "1.2").startswith(
            "1 image of 1 study due for chest@2 as a shadow\n"
        )
        rest = hilum("reanalyse", "chest@2", "--shadow", "--since", "2001-01-01")
        assert "1 image of 1 study due" in rest
        assert "left out: 1 study not closed" in rest
        assert "no closed study is left for chest@2" in hilum(
            "reanalyse", "chest@2", "--shadow", "--until", "2001-01-01", status=1
        )
        rolling.clock.now = time.time() + 1  # that of the command
        assert rolling.read("chest@2") == ["chest@2"] * 2
        assert rolling.compare() == 2
    assert "chest@2 read along with chest@1: 2 studies compared" in hilum(
        "rollout", "show", "chest"
    )


def test_the_whole_way_by_command(config: Path, url: str) -> None:
    def hilum(*words: str, status: int = 0) -> str:
        answer = CliRunner().invoke(app, ["rollout", *words, "--config", str(config)])
        assert answer.exit_code == status, answer.output
        return answer.output

    assert hilum("list") == "chest: done, chest@1 reads new studies\n"
    assert "exclude each other" in hilum(
        "start", "chest", "chest@2", "--shadow", "--canary", "0.1", status=1
    )
    assert (
        hilum("start", "chest", "chest@2", "--canary", "0.1")
        == "chest: loading, chest@1 reads new studies, chest@2 as canary 10%\n"
    )
    confirm(url)
    assert hilum("promote", "chest").startswith(
        "chest: switched, chest@2 reads new studies, chest@1 is kept for rollback"
    )
    assert (
        hilum("stop", "chest")
        == "chest: done, chest@2 reads new studies, the settings still name chest@1\n"
    )
    assert "no way back" in hilum("rollback", "chest", status=1)
    assert "promote" in hilum("show", "chest")
    hilum("show", "lung", status=1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user without a name")
def test_a_user_without_a_name_is_a_number() -> None:
    code = (
        "import os; from hilum.cli.frame import actor_here; os.setuid(54321);"
        " print(actor_here().name)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={}, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "uid 54321", done.stderr


def test_cohens_kappa() -> None:
    # The worked example that is in every textbook: 20 yes and yes, 5 yes and no, 10 no and yes, 15
    # no and no: kappa 0.4.
    pairs = (
        [("present", "present")] * 20
        + [("present", "absent")] * 5
        + [("absent", "present")] * 10
        + [("absent", "absent")] * 15
    )
    assert kappa(pairs) == pytest.approx(0.4)
    assert kappa([("absent", "absent")] * 5) is None
    assert kappa([]) is None


def test_agreement_counts_what_both_decide() -> None:
    studies = [
        {
            "effusion": (0.9, 0.7, "present", "present"),
            "nodule": (0.2, 0.4, "undecided", "undecided"),
        },
        {
            "effusion": (0.6, 0.4, "present", "absent"),
            "nodule": (0.2, 0.1, "undecided", "undecided"),
        },
        {"effusion": (0.1, 0.1, "absent", "absent")},
    ]
    effusion, nodule = agreements(studies)
    assert (effusion.finding, effusion.studies, effusion.decided, effusion.flips) == (
        "effusion",
        3,
        3,
        1,
    )
    assert effusion.mean_difference == pytest.approx(0.4 / 3)
    assert effusion.kappa == pytest.approx(0.4)
    assert (nodule.studies, nodule.decided, nodule.flips, nodule.kappa) == (2, 0, 0, None)

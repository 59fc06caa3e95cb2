"""REST: one result in the form that the client asks for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hilum.api.negotiation import preferred
from hilum.settings import FolderDestination, Settings
from testing.phantoms.phantom import make_study
from tests.support.ledger.dispatching import Dispatcher
from tests.support.ledger.ledgers import migrated_sqlite
from tests.support.reports.results import make_release
from tests.support.server.api_client import Rig, open_rig

RELEASE = make_release()
OFFERED = ("application/json", "application/fhir+json")


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("application/fhir+json", "application/fhir+json"),
        ("Application/FHIR+JSON; fhirVersion=4.0", "application/fhir+json"),
        ("application/json;q=0.5, application/fhir+json", "application/fhir+json"),
        ("application/json;q=0, */*;q=0.1", "application/fhir+json"),
        ("text/html, */*;q=0.8", "application/json"),
        ("application/fhir+json;q=0", None),
        ("application/fhir+xml", None),
        ("text/html", None),
        (",;/ fhir", None),
    ],
)
def test_the_form_that_is_wanted_most_is_chosen(accept: str, chosen: str | None) -> None:
    assert preferred(accept, OFFERED) == chosen


@pytest.fixture(params=[("json", "fhir"), ("json",)], ids=["with a Bundle", "without"])
def kinds(request: pytest.FixtureRequest) -> tuple[str, ...]:
    found: tuple[str, ...] = request.param
    return found


@pytest.fixture
def reported(tmp_path: Path, kinds: tuple[str, ...]) -> Iterator[tuple[Rig, str]]:
    """A study with a report, and a destination that takes these kinds."""
    (tmp_path / "archive" / "locks").mkdir(parents=True)
    settings = Settings(
        site={"state_dir": tmp_path},  # type: ignore[arg-type]
        ledger={"url": migrated_sqlite(tmp_path)},  # type: ignore[arg-type]
        destinations={"out": FolderDestination(path=tmp_path / "out", documents=kinds)},
    )
    (image,) = make_study(7, views=("PA",), rows=32, columns=32)
    with closing(Dispatcher(settings, RELEASE)) as dispatcher:
        study = dispatcher.read(image)
        dispatcher.assemble()
        dispatcher.report()
        with open_rig(tmp_path, url=settings.ledger_url) as rig:
            yield rig, study


def path_of(rig: Rig, study: str) -> str:
    (result,) = rig.get(f"/api/v1/studies/{study}")["results"]
    return f"/api/v1/studies/{study}/results/{result['id']}"


def test_a_result_is_given_in_the_form_that_is_asked_for(
    reported: tuple[Rig, str], kinds: tuple[str, ...]
) -> None:
    rig, study = reported
    path = path_of(rig, study)
    stored = {
        item["kind"]: rig.client.get(f"/api/v1/documents/{item['id']}").content
        for item in rig.get(f"/api/v1/studies/{study}/documents")["documents"]
    }

    usual = rig.client.get(path)
    bundle = rig.client.get(path, headers={"Accept": "application/fhir+json"})

    assert (usual.content, usual.headers["content-type"]) == (stored["json"], "application/json")
    assert usual.headers["vary"] == "Accept"
    if "fhir" in kinds:
        assert bundle.content == stored["fhir"]
        assert bundle.headers["content-type"] == "application/fhir+json"
    else:
        assert bundle.status_code == 406
        assert "stored as application/json" in bundle.json()["detail"]


@pytest.mark.parametrize("kinds", [("json",)], indirect=True)
def test_a_form_that_no_result_has_is_406(reported: tuple[Rig, str]) -> None:
    rig, study = reported

    answer = rig.client.get(path_of(rig, study), headers={"Accept": "application/fhir+xml"})

    assert answer.status_code == 406
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("kinds", [("json",)], indirect=True)
def test_a_result_of_another_study_is_not_found(reported: tuple[Rig, str]) -> None:
    rig, study = reported
    path = path_of(rig, study)

    for other in (path.replace(study, "1.2.3"), f"{path}9"):
        assert rig.client.get(other).status_code == 404

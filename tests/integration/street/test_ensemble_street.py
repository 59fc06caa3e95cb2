"""Three networks as one release through the whole server.

Read once by a real tritonserver, reported with the numbers of each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from hilum.report import json_schema
from testing.serving import Hilum
from tests.support.models.ensembles import MEMBERS, make_trio, member_logits
from tests.support.models.triton import require_triton
from tests.support.server import commands
from tests.support.server.installation import (
    START_SECONDS,
    hilum_with,
    save_all,
    send_to,
    small_study,
    wait_for,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hilum]:
    require_triton()
    folder = tmp_path_factory.mktemp("ensemble")
    destinations = {
        "lab": {"kind": "folder", "path": str(folder / "lab"), "documents": ["sr", "json"]}
    }
    with hilum_with(
        folder, make_trio(folder / "release"), destinations, quiet_seconds=3.0
    ) as running:
        running.wait_until_ready(START_SECONDS)
        yield running


@pytest.fixture(scope="module")
def sent(server: Hilum, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A study of two frontal views, received."""
    files = save_all(tmp_path_factory.mktemp("sent"), small_study(7))
    assert send_to(server, files).is_ok
    return files


@pytest.fixture(scope="module")
def reported(server: Hilum, sent: list[Path]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What REST says of the study, and its JSON document."""
    found = wait_for(
        lambda: list((server.folder / "lab").rglob("*.json")), what="the study's report"
    )
    content = json.loads(found[0].read_text())
    return server.get(f"/api/v1/studies/{content['study']['study_instance_uid']}").json(), content


def _sigmoid(logits: Any) -> Any:
    return 1 / (1 + np.exp(-np.asarray(logits)))


def test_each_image_keeps_what_each_member_said(
    reported: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    study, _ = reported
    for image in study["images"]:
        (reading,) = image["readings"]
        assert np.shape(reading["member_logits"]) == (3, 3)
        assert (
            np.abs(_sigmoid(reading["logits"]) - _sigmoid(reading["member_logits"]).mean(0)).max()
            < 1e-5
        )


def test_the_result_names_the_members_and_their_scores_by_finding(
    reported: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    study, content = reported
    assert not list(Draft202012Validator(json_schema()).iter_errors(content))
    assert (content["release"]["members"], content["release"]["rule"]) == (
        list(MEMBERS),
        "mean_score",
    )
    for finding in content["findings"]:
        assert list(finding["member_scores"]) == list(MEMBERS)
        assert finding["score"] == pytest.approx(
            np.mean(list(finding["member_scores"].values())), abs=1e-6
        )
    for image in content["source_images"]:
        assert set(image["member_scores"]) == set(MEMBERS)
        for key, score in image["scores"].items():
            assert score == pytest.approx(
                np.mean([scores[key] for scores in image["member_scores"].values()]), abs=1e-6
            )
    assert (
        study["results"][0]["findings"][0]["member_scores"]
        == content["findings"][0]["member_scores"]
    )


def test_the_server_says_what_the_members_say_of_the_same_pixels(
    reported: tuple[dict[str, Any], dict[str, Any]], server: Hilum, sent: list[Path], tmp_path: Path
) -> None:
    said = {
        image["sop_instance_uid"]: image["readings"][0]["member_logits"]
        for image in reported[0]["images"]
    }
    for number, file in enumerate(sent):
        tensor = tmp_path / f"{number}.npy"
        commands.hilum(
            *server.command("prepare", str(file), "--release", "trio@1", "--out", str(tensor))[1:]
        ).check_returncode()
        assert np.abs(member_logits(np.load(tensor)[None])[0] - said[file.stem]).max() < 1e-4

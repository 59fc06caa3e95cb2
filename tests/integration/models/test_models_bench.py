"""`hilum models bench` as a user runs it.

On an embedded Triton of its own, on one that runs already, and where it cannot.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from testing.serving import as_toml
from tests.support.models.releases import Tiny
from tests.support.models.triton import RemoteTriton, killed_afterwards
from tests.support.server import commands

pytestmark = pytest.mark.usefixtures("embedded_triton")


def run(
    tiny: Tiny, folder: Path, *words: str, **triton: object
) -> subprocess.CompletedProcess[str]:
    sections = {
        "site": {"state_dir": str(folder / "state")},
        "models": {
            "manifests": str(tiny.manifests_dir),
            "built": str(tiny.built_dir),
            "releases": [tiny.release.id],
        },
        "triton": triton,
    }
    settings = folder / "hilum.toml"
    settings.write_text(as_toml(sections), encoding="utf-8")
    return commands.hilum("models", "bench", *words, "--seconds", "0.2", "--config", settings)


def test_an_embedded_triton_is_started_and_stopped(tiny: Tiny, tmp_path: Path) -> None:
    done = run(tiny, tmp_path, "tiny@1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "tiny@1 on embedded"
    assert [line.split()[0] for line in lines[3:]] == ["1", "4"]
    assert max(map(len, lines)) <= 80
    assert not (tmp_path / "state").exists(), "it touched the installation's state"


def test_the_tritons_of_the_settings_are_measured(tiny: Tiny, tmp_path: Path) -> None:
    with killed_afterwards(
        RemoteTriton(tiny.built_dir, tmp_path / "triton", [tiny.release.triton_name])
    ) as server:
        url = server.start()
        done = run(tiny, tmp_path, "tiny@1", "--json", url=url)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["release"], found["endpoints"], found["in_flight"]) == ("tiny@1", [url], 2)
    assert [speed["batch"] for speed in found["speeds"]] == [1, 4]
    assert all(
        speed["images_per_second"] > 0 and 0 < speed["p50_ms"] <= speed["p95_ms"]
        for speed in found["speeds"]
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [("tony@1", "unknown release 'tony@1'; did you mean 'tiny@1'"), ("tiny@1", "does not answer")],
)
def test_what_is_not_there_is_said(tiny: Tiny, tmp_path: Path, name: str, said: str) -> None:
    done = run(tiny, tmp_path, name, url="127.0.0.1:9")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr

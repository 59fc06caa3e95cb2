"""A pool's own steps, run in order: models, plans, Triton. trtexec and tritonserver are stand-ins."""

from __future__ import annotations

import json

import pytest

from tests.support.kubernetes.pods import Cluster, Pod
from tests.support.kubernetes.rendering import example, render
from tests.support.models.fake_tensorrt import stand_ins
from tests.support.models.releases import Tiny

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny) -> Cluster:
    folder = tmp_path_factory.mktemp("cluster")
    values = example("fleet", settings=f"[models]\nreleases = ['{tiny.release.id}']\n")
    (rendering,) = render([values])
    assert rendering.error == ""
    (folder / "claims").mkdir()
    (folder / "claims/hilum-releases").symlink_to(tiny.manifests_dir)
    return Cluster(rendering.objects, folder, {}, stand_ins(folder / "programs"))


def test_a_pool_serves_plans_that_it_built_itself_and_keeps_them(cluster: Cluster) -> None:
    first = _served(cluster)
    assert "tiny__1: fp16 plan for NVIDIA L4" in first.log
    assert f"--model-repository={first.volume('built')}/tensorrt" in first.log
    assert "--model-control-mode=explicit" in first.log
    plan = json.loads((first.volume("built") / "tensorrt/tiny__1/1/plan.json").read_text())
    assert plan["gpu"] == "NVIDIA L4"

    again = _served(cluster)
    assert "tiny__1: up to date" in again.log, "the claim is that of the pod before"


def _served(cluster: Cluster) -> Pod:
    pod = cluster.start("StatefulSet", "hilum-triton-l4")
    pod.initialise()
    assert pod.complete() == 0, pod.log
    return pod

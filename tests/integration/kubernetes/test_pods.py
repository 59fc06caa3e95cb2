"""The chart's own commands, environment and probes, run as processes on a real PostgreSQL."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from pydicom import Dataset
from pynetdicom import AE, Association
from pynetdicom.sop_class import DigitalXRayImageStorageForPresentation
from sqlalchemy import make_url

from deploy.chart import CHART, ROOT
from hilum.store.queries.views import LedgerViews
from testing.phantoms import phantom
from tests.support.kubernetes.pods import Cluster, Pod
from tests.support.kubernetes.rendering import example, render
from tests.support.ledger.postgres import fresh_database
from tests.support.machine.waiting import wait_for
from tests.support.models.releases import Tiny

pytestmark = pytest.mark.slow

ROLES = ("listener", "analyser", "dispatcher", "api")
SETTINGS = """
[site]
name = "Example Hospital"

[receive]
reserve_bytes = 268435456

[studies]
quiet_seconds = 1.0

[models]
releases = ["{release}"]

[destinations.outbox]
kind = "folder"
path = "{outbox}"
documents = ["json"]
accept_untrained = true
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, postgres_url: str, tiny: Tiny) -> Cluster:
    """An empty database, and a claim with a small release."""
    folder = tmp_path_factory.mktemp("cluster")
    outbox = folder / "claims/outbox"
    values = example(
        "cpu",
        settings=SETTINGS.format(release=tiny.release.id, outbox=outbox),
        models__manifestsClaim="manifests",
        dispatcher__extraVolumes=[
            {"name": "outbox", "persistentVolumeClaim": {"claimName": "outbox"}}
        ],
        dispatcher__extraVolumeMounts=[{"name": "outbox", "mountPath": "/srv/outbox"}],
        listener__preStopSeconds=1,
        api__preStopSeconds=1,
        migration__waitSeconds=100,
    )
    (rendering,) = render([values])
    assert rendering.error == ""
    secrets = {"hilum-ledger": {"url": fresh_database(_for_everybody(postgres_url))}}
    found = Cluster(rendering.objects, folder, secrets)
    (folder / "claims").mkdir()
    (folder / "claims/manifests").symlink_to(tiny.manifests_dir)
    return found


@pytest.fixture(scope="module")
def pods(cluster: Cluster, tiny: Tiny) -> Iterator[dict[str, Pod]]:
    """A pod of each role, whose first containers have ended. They do not run yet.

    The first container is the same in each role, so one of them runs it: before the migration. The
    analyser finds its model built, which saves the test half a minute.
    """
    made = {role: cluster.start("Deployment", f"hilum-{role}") for role in ROLES}
    listener = made["listener"]
    (awaiting,) = listener.spec["initContainers"]
    waiting = listener.begin(awaiting)
    try:
        wait_for(lambda: "waits: ledger: revision none" in listener.log, what="a pod that waits")
        assert waiting.poll() is None
        assert _migrate(cluster) == 0
        assert waiting.wait(60) == 0, listener.log
        shutil.copytree(tiny.built_dir, made["analyser"].volume("built"), dirs_exist_ok=True)
        made["analyser"].initialise()
        yield made
    finally:
        waiting.kill()
        for pod in made.values():
            pod.kill()


def test_a_study_is_read_by_what_the_chart_says_and_nothing_else(
    pods: dict[str, Pod], cluster: Cluster
) -> None:
    """From an empty database to a report in the destination, over the pods' own probes."""
    for pod in pods.values():
        pod.run()
    for role, pod in pods.items():
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            wait_for(lambda pod=pod, probe=probe: pod.passes(probe), 240.0, f"{probe} of {role}")
    (image,) = phantom.make_study(seed=1, views=("PA",), rows=128, columns=128)
    with closing(_Sender(pods["listener"])) as sender:
        assert sender.send(image) == 0
    wait_for(lambda: list(cluster.claim("outbox").glob("*.json")), what="a report")


def test_hilum_check_knows_models_and_triton_in_the_pod_that_page_and_notes_name(
    pods: dict[str, Pod],
) -> None:
    """The other pods have no models, and the network policies keep them from a Triton."""
    said = [(ROOT / "docs/operate/kubernetes.md"), (CHART / "templates/NOTES.txt")]
    named = [
        re.findall(r"exec deploy/\S.*-(\w+) -- hilum check", path.read_text()) for path in said
    ]
    assert named == [["analyser"], ["analyser"]]
    pod = pods["analyser"]
    if not pod.is_running:
        pod.run()
    wait_for(lambda: pod.passes("readinessProbe"), 240.0, "an analyser")
    pod.begin({**pod.container, "name": "check", "args": ["check"]}).wait(60)
    problems = [line for line in pod.log.splitlines() if line.startswith("PROBLEM")]
    assert [line.split(":")[0] for line in problems] == ["PROBLEM api TLS"], problems
    assert "1 loaded, all ours" in pod.log


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to take its rights away")
def test_the_pods_of_these_tests_have_a_read_only_root_and_no_capabilities(
    pods: dict[str, Pod],
) -> None:
    """Else a folder outside of them that Hilum writes in would go unseen here."""
    pod = pods["dispatcher"]
    if not pod.is_running:
        pod.run()
        wait_for(lambda: pod.passes("livenessProbe"))
    status = Path(f"/proc/{pod.pid}/status").read_text()
    for capabilities in ("CapPrm", "CapEff", "CapBnd"):
        assert f"{capabilities}:\t0000000000000000" in status
    assert "NoNewPrivs:\t1" in status
    (root,) = [
        line.split()[5]
        for line in Path(f"/proc/{pod.pid}/mountinfo").read_text().splitlines()
        if line.split()[4] == "/"
    ]
    assert "ro" in root.split(",")


def test_a_listener_that_ends_keeps_what_it_answered_with_success(
    pods: dict[str, Pod], cluster: Cluster
) -> None:
    """Associations go on while the hook runs; then the message in work gets its answer."""
    listener = pods["listener"]
    if not listener.is_running:
        listener.run()
    wait_for(lambda: listener.passes("readinessProbe"), what="a listener")
    images = phantom.make_study(seed=2, views=("PA",) * 40, rows=512, columns=512)
    answered = list[str]()
    with closing(_Sender(listener)) as sender:
        assert sender.send(images[0]) == 0
        end = listener.terminate()
        assert next(end) == "preStop"
        assert sender.send(images[1]) == 0, "the association was there before"
        assert next(end) == "SIGTERM"
        rest = threading.Thread(target=_send_all, args=(sender, images[2:], answered))
        rest.start()
        assert next(end) == "ended", listener.log
        rest.join()
    acknowledged = [*(str(each.SOPInstanceUID) for each in images[:2]), *answered]
    with closing(LedgerViews(cluster.secret("hilum-ledger", "url"))) as views:
        assert set(views.digests(acknowledged)) == set(acknowledged)


def test_the_other_roles_end_in_the_time_that_the_chart_gives_them(pods: dict[str, Pod]) -> None:
    """Each with exit status 0: nothing of it had to be killed."""
    ending = {role: pods[role] for role in ROLES if role != "listener"}
    for pod in ending.values():
        if not pod.is_running:
            pod.run()
            wait_for(lambda pod=pod: pod.passes("livenessProbe"))
    with ThreadPoolExecutor() as threads:
        ends = list(threads.map(lambda pod: list(pod.terminate())[-1], ending.values()))
    assert ends == ["ended"] * len(ending), [pod.log for pod in ending.values()]


def _for_everybody(url: str) -> str:
    """The address of a server whose socket a container without capabilities may reach."""
    folder = Path(str(make_url(url).query["host"]))
    folder.chmod(0o755)
    return url


def _migrate(cluster: Cluster) -> int:
    (job,) = [each for each in cluster.objects if each["kind"] == "Job"]
    return cluster.start("Job", job["metadata"]["name"]).complete()


class _Sender:
    """An open association with the listener of a pod."""

    def __init__(self, pod: Pod) -> None:
        client = AE("MODALITY")
        client.add_requested_context(DigitalXRayImageStorageForPresentation)
        self.association: Association = client.associate(
            "127.0.0.1", pod.port("dicom"), ae_title="HILUM"
        )
        assert self.association.is_established

    def send(self, image: Dataset) -> int | None:
        """The status of a C-STORE; None: there was no answer."""
        if not self.association.is_established:
            return None
        status = self.association.send_c_store(image)
        return int(status.Status) if "Status" in status else None

    def close(self) -> None:
        """Release the association, if the listener has not ended it."""
        if self.association.is_established:
            self.association.release()


def _send_all(sender: _Sender, images: list[Dataset], answered: list[str]) -> None:
    for image in images:
        if sender.send(image) != 0:
            return
        answered.append(str(image.SOPInstanceUID))

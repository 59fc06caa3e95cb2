"""The chart's own commands, environment and probes, run as processes on a real PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pydicom import Dataset
from pynetdicom import AE, Association
from pynetdicom.sop_class import DigitalXRayImageStorageForPresentation

from hilum.store.queries.views import LedgerViews
from testing.phantoms import phantom
from tests.support.kubernetes.pods import Cluster, Pod
from tests.support.kubernetes.rendering import example, render
from tests.support.ledger.postgres import fresh_database
from tests.support.machine.waiting import wait_for
from tests.support.models.releases import Tiny

pytestmark = pytest.mark.slow

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
def cluster(
    tmp_path_factory: pytest.TempPathFactory, postgres_url: str, tiny: Tiny
) -> Iterator[Cluster]:
    """An empty database, and a release that is built already."""
    folder = tmp_path_factory.mktemp("cluster")
    outbox = folder / "outbox"
    values = example(
        "cpu",
        settings=SETTINGS.format(release=tiny.release.id, outbox=outbox),
        models={"manifestsClaim": "manifests", "builtClaim": "built"},
        listener__preStopSeconds=1,
        migration__waitSeconds=100,
    )
    (rendering,) = render([values])
    assert rendering.error == ""
    secrets = {"hilum-ledger": {"url": fresh_database(postgres_url)}}
    found = Cluster(rendering.objects, folder, secrets)
    (folder / "claims").mkdir()
    (folder / "claims/manifests").symlink_to(tiny.manifests_dir)
    (folder / "claims/built").symlink_to(tiny.built_dir)
    yield found


def test_roles_wait_for_the_migration_and_then_read_a_study(cluster: Cluster) -> None:
    """From an empty database to a report, by what the chart says and nothing else."""
    pods = {role: cluster.start("Deployment", f"hilum-{role}") for role in ROLES}
    waiting = pods["listener"].begin(pods["listener"].spec["initContainers"][0])
    try:
        wait_for(lambda: "waiting: ledger: revision none" in pods["listener"].log)
        assert waiting.poll() is None

        assert _migrate(cluster) == 0
        assert waiting.wait(60) == 0

        for pod in pods.values():
            pod.initialise()
            pod.run()
        for role, pod in pods.items():
            wait_for(lambda pod=pod: pod.passes("startupProbe"), what=f"{role} started")
            wait_for(lambda pod=pod: pod.passes("readinessProbe"), what=f"{role} ready")
            assert pod.passes("livenessProbe")

        (image,) = phantom.make_study(seed=1, views=("PA",), rows=128, columns=128)
        with closing(_Sender(pods["listener"])) as sender:
            assert sender.send(image) == 0
        wait_for(lambda: list((cluster.folder / "outbox").glob("*.json")), what="a report")

        ends = [list(pod.terminate())[-1] for pod in pods.values()]
        assert ends == ["ended"] * len(pods), [pod.log for pod in pods.values()]
    finally:
        waiting.kill()
        for pod in pods.values():
            pod.kill()


def test_a_listener_that_ends_keeps_what_it_answered_with_success(cluster: Cluster) -> None:
    """Associations go on while the hook runs; then the message in work gets its answer."""
    assert _migrate(cluster) == 0, "again, and nothing happens"
    pod = cluster.start("Deployment", "hilum-listener")
    images = phantom.make_study(seed=2, views=("PA",) * 40, rows=512, columns=512)
    answered = list[str]()
    try:
        pod.run()
        wait_for(lambda: pod.passes("readinessProbe"))
        with closing(_Sender(pod)) as sender:
            assert sender.send(images[0]) == 0
            end = pod.terminate()
            assert next(end) == "preStop"
            assert sender.send(images[1]) == 0, "the association was there before"
            assert next(end) == "SIGTERM"
            rest = threading.Thread(target=_send_all, args=(sender, images[2:], answered))
            rest.start()
            assert next(end) == "ended", pod.log
            rest.join()
    finally:
        pod.kill()
    acknowledged = [*(str(each.SOPInstanceUID) for each in images[:2]), *answered]
    with closing(LedgerViews(cluster.secret("hilum-ledger", "url"))) as views:
        assert set(views.digests(acknowledged)) == set(acknowledged)


ROLES = ("listener", "analyser", "dispatcher", "api")


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

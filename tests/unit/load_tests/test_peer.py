"""The peer of `make load-peer`.

It computes what torchxrayvision computes, and its figures are compared as they should be.
"""

from __future__ import annotations

import numpy as np
import pytest
from skimage.transform import resize

from load_tests.peer import comparison, preparation, run
from load_tests.peer.comparison import Measured
from load_tests.peer.orthanc import configuration
from load_tests.peer.peer_system import peer_role
from load_tests.peer.phases import RunBroken, Saturation
from load_tests.peer.report import Label, build, scores_in
from load_tests.peer.serve import parse
from testing.phantoms import phantom
from tests.support.objects.radiograph import radiograph, scene


def reference(stored, bits: int):
    """torchxrayvision 1.5.7 in double precision."""
    picture = (2 * (stored.astype(np.float64) / (2**bits - 1)) - 1) * 1024
    rows, columns = picture.shape
    side = min(rows, columns)
    top, left = rows // 2 - side // 2, columns // 2 - side // 2
    return resize(
        picture[top : top + side, left : left + side],
        (224, 224),
        mode="constant",
        preserve_range=True,
    )


@pytest.mark.parametrize("shape", [(600, 500), (301, 800)])
def test_plain_is_torchxrayvision(shape):
    stored = scene(*shape)
    found = preparation.plain(radiograph(stored, 12))
    assert (found.shape, found.dtype) == ((1, 224, 224), np.float32)
    assert np.abs(found[0] - reference(stored, 12)).max() < 0.01


def test_monochrome1_is_inverted():
    stored = scene(400, 400)
    expected = preparation.plain(radiograph(4095 - stored, 12))
    assert np.array_equal(
        preparation.plain(radiograph(stored, 12, PhotometricInterpretation="MONOCHROME1")), expected
    )


def test_informed_is_the_same_picture_by_another_kernel():
    """Far from edges the kernels agree.

    A wrong scale, crop or polarity would differ by hundreds.
    """
    stored = scene(600, 500)
    plain, informed = (
        prepare(radiograph(stored, 12)) for prepare in (preparation.plain, preparation.informed)
    )
    assert (informed.shape, informed.dtype) == (plain.shape, plain.dtype)
    assert np.abs(plain - informed).mean() < 15
    assert np.abs(plain - informed).max() > 0


def test_colour_is_refused():
    with pytest.raises(NotImplementedError, match="RGB"):
        preparation.plain(radiograph(scene(64, 64), 12, PhotometricInterpretation="RGB"))


def test_a_report_says_each_score():
    labels = [
        Label("edema", ("19242006", "SCT", "Pulmonary edema")),
        Label("pneumothorax", ("36118008", "SCT", "Pneumothorax")),
    ]
    report = build(phantom.make_study(rows=32, columns=32), labels, [0.25, 0.987654])
    assert scores_in(report) == pytest.approx({"edema": 0.25, "pneumothorax": 0.987654})


def test_orthanc_is_set_for_speed(tmp_path):
    found = configuration(tmp_path, 4242, 8042, 1)
    wanted = {
        "StableAge": 1,
        "TcpNoDelay": True,
        "KeepAlive": True,
        "HttpCompressionEnabled": False,
        "StorageCompression": False,
    }
    assert wanted.items() <= found.items()


def test_roles_of_its_processes():
    assert peer_role(["/usr/sbin/Orthanc", "x.json"], "poller") == "orthanc"
    assert (
        peer_role(
            ["python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()"], "poller"
        )
        == "worker"
    )
    assert peer_role(["python", "-m", "load_tests.peer.serve"], "") == "poller"


def test_two_workers_share_the_cores():
    ports = ["--dicom-port", "1", "--http-port", "2", "--pacs", "h:3", "--pacs-ae-title", "P"]
    options = parse(["--folder", "f", "--material", "m", "--variant", "plain", *ports])
    assert options.workers == 2
    assert options.threads >= 1


def measured(cpu: float, rate: float, idle: float) -> Measured:
    return Measured(
        (idle, idle), Saturation(10, rate, {"a": cpu / 2, "b": cpu / 2}, (1.0,)), 0, 0.01
    )


def a_round(hilum_cpu: float = 0.1) -> dict[str, Measured]:
    return {
        "plain": measured(0.8, 2.0, 0.8),
        "informed": measured(0.4, 4.0, 0.5),
        "hilum": measured(hilum_cpu, 12.0, 0.2),
    }


def test_goals_are_medians_of_the_ratios_of_rounds():
    rounds = [a_round(), a_round(0.2), a_round(0.05)]
    found = {goal.name: goal for goal in comparison.goals(rounds)}
    assert found["CPU of the plain peer / Hilum's"].value == pytest.approx(8)
    assert found["CPU of the informed peer / Hilum's"].value == pytest.approx(4)
    assert found["studies/s of Hilum / the plain peer"].value == pytest.approx(6)
    assert found["idle p95 of Hilum / the plain peer"].value == pytest.approx(0.25)
    assert len(found) == 4
    assert comparison.ratios(rounds)["CPU of the plain peer / Hilum's"] == pytest.approx([8, 4, 16])


def test_scores_of_other_labels_are_no_comparison():
    assert comparison.differences(
        {"plain": {"a": 0.5, "b": 0.1}, "hilum": {"a": 0.4, "b": 0.3}}
    ) == {"plain": pytest.approx(0.2)}
    with pytest.raises(RunBroken, match=r"plain and Hilum differ in the labels \['b'\]"):
        comparison.differences({"plain": {"a": 0.5, "b": 0.1}, "hilum": {"a": 0.4}})


def test_a_peer_that_computes_something_else_is_no_comparison():
    ours = {"a": 0.5, "b": 0.2}
    assert run.same_reading({"plain": {"a": 0.52, "b": 0.2}, "hilum": ours}) == {
        "plain": pytest.approx(0.02)
    }
    with pytest.raises(RunBroken, match=r"plain by 0\.100"):
        run.same_reading({"plain": {"a": 0.6, "b": 0.2}, "hilum": ours})

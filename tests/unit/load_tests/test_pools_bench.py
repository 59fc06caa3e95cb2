"""What `make bench-pools` says of two engines."""

from __future__ import annotations

import numpy as np

from load_tests.bench.pools import Batch, _measured


def test_largest_difference_and_a_figure_for_each_round() -> None:
    def exported(image: Batch) -> dict[str, Batch]:
        return {"logits": np.array([[float(image.mean()), 1.0]], np.float32)}

    def built(image: Batch) -> dict[str, Batch]:
        return {"logits": exported(image)["logits"] + np.array([[0.0, 0.25]], np.float32)}

    row = _measured((exported, built), "f32", rounds=3)
    assert row["largest_logit_difference"] == 0.25
    assert [len(row["cpu_ms"][name]) for name in ("exported", "built")] == [3, 3]

"""What `make bench-echo` says of a server that stands still."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from load_tests.bench.echo import echoes, goals


class Association:
    """Answers at once, but for the C-ECHOs that `stalls` names by their number, with their seconds."""

    def __init__(self, stalls: Mapping[int, float], status: int = 0) -> None:
        self._stalls, self._status = stalls, status
        self.asked = 0

    def echo(self) -> int:
        time.sleep(self._stalls.get(self.asked, 0.0))
        self.asked += 1
        return self._status


def test_a_stall_counts_for_each_echo_that_was_to_be_sent_meanwhile() -> None:
    """0.2 s of 0.6: one echo of 300 that waits leaves the 99th percentile alone, and a hundred do not."""
    server = Association({100: 0.2})
    found = echoes(server, 0.6, every_seconds=0.002)  # type: ignore[arg-type]
    assert len(found) == server.asked == 300
    assert sum(taken > 50 for taken in found) >= 70
    assert [goal.holds for goal in goals([0.5], found)] == [False, True]


def test_a_quick_server_keeps_both_goals() -> None:
    found = echoes(Association({}), 0.1)  # type: ignore[arg-type]
    assert len(found) == 5
    assert goals([0.5], [*found, *[0.5] * 995])[0].holds


def test_another_answer_ends_the_run() -> None:
    with pytest.raises(RuntimeError, match="answered 1"):
        echoes(Association({}, status=1), 0.1)  # type: ignore[arg-type]

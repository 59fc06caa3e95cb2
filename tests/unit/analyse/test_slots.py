"""Slots: arrays come out as they went in, what does not fit is not cut, and a lease that is over cannot be read."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hilum.analyse.decode.slots import Area, SlotLease, SlotMemory, StaleSlot

AREA = Area(count=3, size_bytes=4096)


@given(
    st.lists(
        arrays.arrays(
            st.sampled_from([np.uint8, np.uint16, np.float16]),
            arrays.array_shapes(max_dims=3, max_side=8),
        ),
        max_size=3,
    )
)
def test_arrays_come_out_of_another_mapping_as_they_went_in(given_arrays: list[np.ndarray]) -> None:
    ours = SlotMemory(AREA)
    theirs = SlotMemory(AREA, os.dup(ours.descriptor))
    lease = SlotLease(2, 7)
    placed = theirs.write(lease, given_arrays)
    assert placed is not None
    for array, place in zip(given_arrays, placed, strict=True):
        read = ours.read(lease, place)
        assert read.dtype == array.dtype
        assert read.tobytes() == array.tobytes()
    ours.close()
    theirs.close()


def test_what_does_not_fit_is_not_written() -> None:
    memory = SlotMemory(AREA)
    before = memory.write(SlotLease(0, 1), [np.zeros(16, np.uint8)])
    assert before is not None
    assert memory.write(SlotLease(0, 2), [np.ones(4097, np.uint8)]) is None
    assert not memory.read(SlotLease(0, 1), before[0]).any()


def test_slots_do_not_touch_each_other() -> None:
    memory = SlotMemory(AREA)
    leases = [SlotLease(index, 1) for index in range(AREA.count)]
    placed = [
        memory.write(lease, [np.full(AREA.size_bytes, lease.number, np.uint8)]) for lease in leases
    ]
    for lease, places in zip(leases, placed, strict=True):
        assert places is not None
        assert (memory.read(lease, places[0]) == lease.number).all()


def test_what_a_process_that_was_given_up_wrote_is_not_read() -> None:
    """Trap 39."""
    memory = SlotMemory(AREA)
    current, given_up = SlotLease(1, 5), SlotLease(1, 4)
    placed = memory.write(given_up, [np.zeros(8, np.uint8)])
    assert placed is not None
    with pytest.raises(StaleSlot, match="generation 4, not 5"):
        memory.read(current, placed[0])

"""While a codec works, other threads of its process do, too.

A decoder that kept the interpreter's lock would hold all of them up.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable

import imagecodecs
import numpy as np
import pytest
from pydicom.encaps import encapsulate
from pydicom.uid import HTJ2KLossless, JPEG2000Lossless, JPEGLosslessSV1, JPEGLSLossless

from hilum_preprocessing import decode
from testing.phantoms import phantom
from tests.support.objects.radiograph import radiograph, under

ENCODERS = {
    JPEG2000Lossless: lambda pixels: imagecodecs.jpeg2k_encode(
        pixels, level=0, codecformat="j2k", reversible=True
    ),
    JPEGLSLossless: imagecodecs.jpegls_encode,
    JPEGLosslessSV1: imagecodecs.ljpeg_encode,
    HTJ2KLossless: imagecodecs.htj2k_encode,
}


def turns_during(work: Callable[[], object]) -> int:
    """How often another thread gets the interpreter's lock while we work, which nobody takes from us: we must let it go."""
    turns, done, before = 0, threading.Event(), sys.getswitchinterval()

    def take_and_give_back() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            time.sleep(0)

    other = threading.Thread(target=take_and_give_back)
    sys.setswitchinterval(60)
    other.start()
    try:
        at_start = turns
        work()
        return turns - at_start
    finally:
        done.set()
        other.join()
        sys.setswitchinterval(before)


def test_who_keeps_the_lock_is_seen() -> None:
    """The control: one foreign function is called with the lock, the other one without."""
    assert turns_during(lambda: ctypes.PyDLL(None).usleep(30_000)) == 0
    assert max(turns_during(lambda: ctypes.CDLL(None).usleep(30_000)) for _ in range(20)) > 100


@pytest.mark.parametrize("uid", ENCODERS, ids=lambda uid: uid.name)
def test_another_thread_goes_on_while_a_picture_is_decoded(uid: str) -> None:
    """Trap 41."""
    pixels = phantom.make_instance(3, rows=1400, columns=1200).pixel_array
    dataset = radiograph(pixels, 12)
    dataset.PixelData = encapsulate([bytes(ENCODERS[uid](pixels))])
    under(dataset, uid)
    assert np.array_equal(
        decode(dataset).array, pixels
    )  # what is loaded on the first use does not count
    turns = [
        turns_during(lambda: decode(dataset)) for _ in range(20)
    ]  # the other one may have no core for the length of a picture
    assert max(turns) > 50, "the other thread stood still"

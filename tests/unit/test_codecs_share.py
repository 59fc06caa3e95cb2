"""While a codec works, other threads of its process do, too: a decoder that kept the interpreter's lock would hold all of them up."""

from __future__ import annotations

import threading

import imagecodecs
import numpy as np
import pytest
from pydicom.encaps import encapsulate
from pydicom.uid import HTJ2KLossless, JPEG2000Lossless, JPEGLosslessSV1, JPEGLSLossless

from hilum_preprocessing import decode
from load_tests import phantom
from tests.support.radiograph import radiograph, under

ENCODERS = {
    JPEG2000Lossless: lambda pixels: imagecodecs.jpeg2k_encode(pixels, level=0, codecformat="j2k", reversible=True),
    JPEGLSLossless: imagecodecs.jpegls_encode,
    JPEGLosslessSV1: imagecodecs.ljpeg_encode,
    HTJ2KLossless: imagecodecs.htj2k_encode,
}


@pytest.mark.parametrize("uid", ENCODERS, ids=lambda uid: uid.name)
def test_another_thread_goes_on_while_a_picture_is_decoded(uid: str) -> None:
    """Trap 41."""
    pixels = phantom.make_instance(3, rows=1400, columns=1200).pixel_array
    dataset = radiograph(pixels, 12)
    dataset.PixelData = encapsulate([bytes(ENCODERS[uid](pixels))])
    under(dataset, uid)
    turns, done = 0, threading.Event()

    def work() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1

    other = threading.Thread(target=work)
    before = decode(dataset)  # what is loaded on the first use does not count
    other.start()
    gained = 0
    try:
        for _ in range(20):  # on a busy machine it may have no core for the length of one picture
            at_start = turns
            after = decode(dataset)
            if (gained := turns - at_start) > 2_000:
                break
    finally:
        done.set()
        other.join()
    assert np.array_equal(before.array, pixels)
    assert np.array_equal(after.array, pixels)
    assert gained > 2_000, "the other thread stood still"

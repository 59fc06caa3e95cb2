"""Silence around other people's code that quotes what it complains about, and what it complains about here is a patient's."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator

from pydicom import config

for _name in ("pydicom", "highdicom"):
    # Their warnings go to standard error wherever nobody has configured logging, as in the
    # processes of a pool.
    logging.getLogger(_name).setLevel(logging.CRITICAL)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """No warnings, and no validation of values.

    They were cleaned before, or are to be copied whatever they are.
    """
    with warnings.catch_warnings(), config.disable_value_validation():
        warnings.simplefilter("ignore")
        yield

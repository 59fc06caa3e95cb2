"""Suppresses warnings of libraries that quote header values, which are patient data."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator

from pydicom import config

for _name in ("pydicom", "highdicom"):
    # Their warnings go to standard error wherever logging is not configured, as in the
    # processes of a pool.
    logging.getLogger(_name).setLevel(logging.CRITICAL)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Run the block without warnings, and without validation of values.

    The values were cleaned before, or are to be copied unchanged.
    """
    with warnings.catch_warnings(), config.disable_value_validation():
        warnings.simplefilter("ignore")
        yield

"""Fixtures that every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.ledgers import clock, empty_url, ledger_url, postgres_url, street  # noqa: F401 - fixtures
from tests.support.models import built_models  # noqa: F401 - a fixture


@pytest.fixture(scope="session")
def test_data() -> Path:
    """Folder of real radiographs, named by HILUM_TEST_DATA. They are not ours to publish, so a fresh checkout has none."""
    named = os.environ.get("HILUM_TEST_DATA")
    if not named or not Path(named, "manifest.json").is_file():
        if os.environ.get("CI") == "true" and named:
            pytest.fail(f"HILUM_TEST_DATA={named} holds no manifest.json")
        pytest.skip("HILUM_TEST_DATA does not name a folder of test radiographs")
    return Path(named).resolve()
